"""Input for a run at work: it waits, it may be taken back, it is read at its place, and is never lost."""

import pytest
from playwright.async_api import Route, expect
from tests.browser.console import Console, Reader, holding, said_texts
from tests.integration.fixtures import on_sqlite
from tests.integration.processes import eventually
from tests.integration.stack import Stack
from tests.standin import hold, says

from runyard.db.inputs import STEERING_MAX

pytestmark = [pytest.mark.anyio, on_sqlite]


async def shows(console: Console, *texts: str) -> None:
    """The conversation becomes this, in this order: inputs, answer texts, names of tools."""
    await expect(console.page.locator(".turn :is(.input .said, .answer, .card .name)")).to_have_text(list(texts))


async def at_a_tool(stack: Stack, reader: Reader, gate: str) -> Console:
    console = await reader.opens("/?agent=clerk")
    await console.say("Begin.")
    await stack.gate_reached(gate)
    await expect(console.card("hold")).to_have_attribute("data-state", "running")
    return console


async def test_input_is_read_at_the_tools_boundary_across_a_reload(stack: Stack, reader: Reader, unique: str) -> None:
    stack.standin.answers(
        says("I wait.").calls("hold", {"gate": unique}),
        says("Both, ", hold(f"{unique}-said"), "then."),
    )
    console = await at_a_tool(stack, reader, unique)
    await console.say("Do this too.")
    await console.waits("Do this too.")
    await console.page.reload()
    await console.waits("Do this too.")
    await expect(console.card("hold")).to_have_attribute("data-state", "running")
    await console.say("And that.")
    await console.waits("Do this too.", "And that.")
    stack.open_gate(unique)
    await console.answers("I wait.", "Both,")
    await expect(console.chips).to_have_count(0)
    expected = ["Begin.", "I wait.", "hold", "Do this too.", "And that."]
    await shows(console, *expected, "Both,")
    stack.standin.gate(f"{unique}-said").release()
    await console.ends()
    messages = await reader.api.messages(console.run_id or "")
    assert [row["role"] for row in messages] == ["user", "assistant", "user", "assistant"]
    assert [block.get("text") for block in messages[2]["content"]] == [None, "Do this too.", "And that."]
    for _ in ("as it was followed", "from its rows"):
        await shows(console, *expected, "Both, then.")
        assert await console.shown_texts() == said_texts(messages)
        await console.page.reload()
        await console.ends()


async def test_input_during_the_last_answer_goes_on_in_the_same_turn(stack: Stack, reader: Reader, unique: str) -> None:
    stack.standin.answers(says("First, ", hold(unique), "done."), says("Second."))
    here = await reader.opens("/?agent=talker")
    await here.say("one")
    await here.answers("First,")
    there = await reader.opens(f"/?run={here.run_id}")
    await there.answers("First,")
    await here.say("two")
    for console in (here, there):
        await console.waits("two")
    stack.standin.gate(unique).release()
    for console in (here, there):
        await console.ends()
        await expect(console.chips).to_have_count(0)
        await shows(console, "one", "First, done.", "two", "Second.")


async def test_what_waits_can_be_taken_back_from_any_page(stack: Stack, reader: Reader, unique: str) -> None:
    stack.standin.answers(says("I wait.").calls("hold", {"gate": unique}), says("Done."))
    here = await at_a_tool(stack, reader, unique)
    await here.say("keep")
    await here.waits("keep")
    await here.say("drop")
    await here.waits("keep", "drop")
    there = await reader.opens(f"/?run={here.run_id}")
    await there.waits("keep", "drop")
    await there.draft.fill("mine")
    await there.take_back("drop").click()
    for console in (here, there):
        await console.waits("keep")
    await expect(there.draft).to_have_value("drop\n\nmine")
    await expect(there.draft).to_be_focused()
    stack.open_gate(unique)
    for console in (here, there):
        await console.ends()
        await shows(console, "Begin.", "I wait.", "hold", "keep", "Done.")


async def test_what_is_read_already_cannot_be_taken_back(stack: Stack, reader: Reader, unique: str) -> None:
    stack.standin.answers(says("I wait.").calls("hold", {"gate": unique}), says("Read ", hold(f"{unique}-said"), "it."))
    reader.foresees("status of 409")
    console = await at_a_tool(stack, reader, unique)
    await console.say("too late")
    await console.waits("too late")
    held = await holding(console.page, "**/input/*")
    await console.take_back("too late").click()
    await eventually(lambda: bool(held), "the page's call")
    stack.open_gate(unique)
    await console.answers("I wait.", "Read")
    await held[0].continue_()
    await expect(console.failure).to_contain_text("ALREADY_FOLDED")
    await expect(console.failure).to_contain_text("in the transcript already")
    await expect(console.chips).to_have_count(0)
    await expect(console.draft).to_have_value("")
    await console.page.get_by_role("button", name="Dismiss").click()
    await expect(console.failure).to_have_count(0)
    stack.standin.gate(f"{unique}-said").release()
    await console.ends()


async def test_a_full_queue_gives_the_text_back(stack: Stack, reader: Reader, unique: str) -> None:
    stack.standin.answers(says("I wait.").calls("hold", {"gate": unique}), says("Done."))
    reader.foresees("status of 429")
    console = await at_a_tool(stack, reader, unique)
    for number in range(STEERING_MAX):
        response = await reader.api.post(f"/v1/runs/{console.run_id}/input", {"input": f"input {number}"})
        assert response.status_code == 202
    await console.say("one more")
    await expect(console.failure).to_contain_text("AGENT_INPUT_QUEUE_FULL")
    await expect(console.failure).to_contain_text(f"at most {STEERING_MAX} inputs")
    await expect(console.draft).to_have_value("one more")
    await console.waits(*(f"input {number}" for number in range(STEERING_MAX)))
    await console.take_back("input 31").click()
    await console.waits(*(f"input {number}" for number in range(STEERING_MAX - 1)))
    await expect(console.draft).to_have_value("input 31\n\none more")
    await expect(console.failure).to_have_count(0)
    stack.open_gate(unique)
    await console.ends()


async def test_input_for_a_turn_that_has_just_ended_begins_one(stack: Stack, reader: Reader, unique: str) -> None:
    stack.standin.answers(says("First, ", hold(unique), "done."), says("Second."))
    console = await reader.opens("/?agent=talker")
    await console.say("one")
    await console.answers("First,")
    held = await holding(console.page, "**/input")
    await console.say("two")
    await eventually(lambda: bool(held), "the page's call")
    stack.standin.gate(unique).release()
    await console.ends()
    await held[0].continue_()
    await console.ends(turns=2)
    await shows(console, "one", "First, done.", "two", "Second.")
    await expect(console.draft).to_have_value("")


async def test_input_that_does_not_arrive_is_given_back(stack: Stack, reader: Reader, unique: str) -> None:
    stack.standin.answers(says("Going ", hold(unique), "on."))
    reader.foresees("ERR_INTERNET_DISCONNECTED", "ERR_NETWORK_CHANGED", "ERR_INCOMPLETE_CHUNKED_ENCODING")
    console = await reader.opens("/?agent=talker")
    await console.say("go")
    await console.answers("Going")
    await reader.context.set_offline(True)
    await expect(console.page.locator(".offline")).to_contain_text("You are offline")
    await console.say("Do you hear me?")
    await expect(console.failure).to_contain_text("UNREACHABLE")
    await expect(console.draft).to_have_value("Do you hear me?")
    await reader.context.set_offline(False)
    await expect(console.page.locator(".offline")).to_have_count(0)
    stack.standin.gate(unique).release()
    await console.ends()
    await console.answers("Going on.")
    await expect(console.draft).to_have_value("Do you hear me?")


async def test_a_call_whose_answer_is_lost_is_taken_once(stack: Stack, reader: Reader, unique: str) -> None:
    stack.standin.answers(says("Once.").calls("hold", {"gate": unique}), says("Done."))
    reader.foresees("ERR_FAILED")
    console = await reader.opens("/?agent=clerk")

    async def lose_the_answer(route: Route) -> None:
        headers = {**route.request.headers, "accept": "application/json"}  # a stream's answer would not end
        response = await route.fetch(headers=headers)
        assert response.status == 202
        await route.abort()

    for pattern, text in (("**/clerk/runs", "Begin."), ("**/input", "And this.")):
        await console.page.route(pattern, lose_the_answer)
        await console.say(text)
        await expect(console.failure).to_contain_text("it is not taken twice")
        await expect(console.draft).to_have_value(text)
        await console.page.unroute(pattern)
        await console.send()
        await expect(console.draft).to_have_value("")
        await stack.gate_reached(unique)
    await console.waits("And this.")
    await expect(console.failure).to_have_count(0)
    stack.open_gate(unique)
    await console.ends()
    await shows(console, "Begin.", "Once.", "hold", "And this.", "Done.")
    await expect(console.page.locator(".runs a")).to_have_count(1)
