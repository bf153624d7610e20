"""A page that comes late, or again: the transcript so far, the answer that is being written, each once."""

import pytest
from playwright.async_api import expect
from tests.browser.console import Reader, said_texts
from tests.integration.fixtures import on_sqlite
from tests.integration.stack import Stack
from tests.standin import hold, says, thinks

pytestmark = [pytest.mark.anyio, on_sqlite]


async def test_a_reload_while_the_model_holds_goes_on(stack: Stack, reader: Reader, unique: str) -> None:
    first, second = f"{unique}-1", f"{unique}-2"
    stack.standin.answers(
        thinks("Hm.").says("One, ", hold(first), "two.").calls("look_up", {"order": unique}),
        says("Three, ", hold(second), "four."),
    )
    console = await reader.opens("/?agent=clerk")
    page = console.page
    await console.say("Count.")
    await console.answers("One,")
    run_id = console.run_id
    await page.reload()
    await console.answers("One,")
    await expect(page.locator(".thinking")).to_have_count(1)
    stack.standin.gate(first).release()
    await console.answers("One, two.", "Three,")
    await page.reload()
    await console.answers("One, two.", "Three,")
    await expect(page.locator(".thinking")).to_have_count(1)
    await expect(console.card("look_up")).to_have_attribute("data-state", "done")
    await expect(page.locator(".badge")).to_have_text("Running")
    stack.standin.gate(second).release()
    await console.ends()
    messages = await reader.api.messages(run_id or "")
    for _ in ("as it was followed", "from its rows"):
        await expect(console.inputs).to_have_text(["Count."])
        await expect(page.locator(".card.tool")).to_have_count(1)
        await expect(page.locator(".card .aside")).to_contain_text("s")
        assert await console.shown_texts() == said_texts(messages) == ["One, two.", "Three, four."]
        assert console.run_id == run_id
        await page.reload()
        await console.ends()


async def test_a_second_page_follows_the_same_run(stack: Stack, reader: Reader, unique: str) -> None:
    stack.standin.answers(says("Both ", hold(unique), "see it."))
    here = await reader.opens("/?agent=talker")
    await here.say("go")
    await here.answers("Both")
    there = await reader.opens(f"/?run={here.run_id}")
    await there.answers("Both")
    stack.standin.gate(unique).release()
    for console in (here, there):
        await console.ends()
        await console.answers("Both see it.")


async def test_two_calls_at_once_are_told_apart(stack: Stack, reader: Reader, unique: str) -> None:
    """The run of one page is busy when another one, which does not know it yet, sends."""
    stack.standin.answers(says("Ready."), says("Mine ", hold(unique), "alone."))
    here = await reader.opens("/?agent=talker")
    await here.say("hello")
    await here.ends()
    # From its start: a look that is under way may take its time, and then tell of what it should not know.
    await reader.context.add_init_script("Object.defineProperty(document, 'hidden', {value: true})")
    there = await reader.opens(f"/?run={here.run_id}")
    await there.ends()
    await here.say("me first")
    await here.answers("Ready.", "Mine")
    reader.foresees("status of 409")
    await there.say("no, me")
    await expect(there.failure).to_contain_text("RUN_BUSY")
    await expect(there.page.get_by_label("Message")).to_have_value("no, me")
    await there.answers("Ready.", "Mine")
    stack.standin.gate(unique).release()
    for console in (here, there):
        await console.ends(turns=2)
        await console.answers("Ready.", "Mine alone.")
        await expect(console.inputs).to_have_text(["hello", "me first"])


async def test_what_happened_while_nobody_looked_is_shown(stack: Stack, reader: Reader, unique: str) -> None:
    stack.standin.answers(says("First."), says("Second ", hold(unique), "one."))
    console = await reader.opens("/?agent=talker")
    await console.say("one")
    await console.ends()
    await reader.api.start("talker", "two", runId=console.run_id)
    await stack.standin.gate(unique).reached()
    await console.page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    await console.answers("First.", "Second")
    await expect(console.inputs).to_have_text(["one", "two"])
    stack.standin.gate(unique).release()
    await console.ends(turns=2)
    await console.answers("First.", "Second one.")


async def test_a_long_transcript_is_shown_from_its_end(stack: Stack, reader: Reader, unique: str) -> None:
    steps = 55
    calls = [says(f"Step {step}.").calls("look_up", {"order": unique}) for step in range(steps)]
    stack.standin.answers(*calls, says("All done."), says("More ", hold(unique), "to say."))
    result = await reader.api.run("clerk", "Much to do.")
    console = await reader.opens(f"/?run={result['runId']}")
    await console.ends()
    await console.page.get_by_role("button", name="Show what came before").click()
    await expect(console.page.locator(".card.tool")).to_have_count(steps)
    await expect(console.inputs).to_have_text(["Much to do."])
    await console.say("And?")
    await console.answers(*(f"Step {step}." for step in range(steps)), "All done.", "More")
    stack.standin.gate(unique).release()
    await console.ends(turns=2)


async def test_a_long_invocation_that_goes_on_is_read_whole(stack: Stack, reader: Reader, unique: str) -> None:
    steps = 55
    calls = [says(f"Step {step}.").calls("look_up", {"order": unique}) for step in range(steps)]
    stack.standin.answers(*calls, says("All ", hold(unique), "done."))
    started = await reader.api.start("clerk")
    await stack.standin.gate(unique).reached()
    console = await reader.opens(f"/?run={started['runId']}")
    said = [f"Step {step}." for step in range(steps)]
    await console.answers(*said, "All")
    stack.standin.gate(unique).release()
    await console.ends()
    await console.answers(*said, "All done.")
