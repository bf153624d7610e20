"""A chat: every kind of output as it comes, and what is left of it afterwards."""

import re

import pytest
from playwright.async_api import expect
from tests.browser.console import Reader, said_texts
from tests.integration.fixtures import on_sqlite
from tests.integration.stack import Stack
from tests.standin import hold, refuses, says, thinks

pytestmark = [pytest.mark.anyio, on_sqlite]


async def test_tokens_thinking_and_tools_are_seen_as_they_come(stack: Stack, reader: Reader, unique: str) -> None:
    stack.standin.answers(
        thinks("Where is it? ", hold(f"{unique}-thought")).says("I look.").calls("look_up", {"order": unique}),
        says("It is ", hold(f"{unique}-said"), "open."),
    )
    console = await reader.opens()
    page = console.page
    await console.choose("clerk")
    await console.say(f"Where is {unique}?")
    await expect(page.locator(".thinking .said")).to_have_text("Where is it?")
    await expect(page.locator(".thinking .said")).to_be_visible()
    await expect(page.locator(".badge")).to_have_text("Running")
    stack.standin.gate(f"{unique}-thought").release()
    await console.answers("I look.", "It is")
    await expect(console.status).to_contain_text("Writing")
    card = console.card("look_up")
    await expect(card).to_have_attribute("data-state", "done")
    await expect(page.locator(".thinking .said")).to_be_hidden()
    stack.standin.gate(f"{unique}-said").release()
    await console.ends()
    assert console.run_id is not None
    messages = await reader.api.messages(console.run_id)
    assert await console.shown_texts() == said_texts(messages) == ["I look.", "It is open."]
    await expect(console.inputs).to_have_text([f"Where is {unique}?"])
    await expect(page.locator(".badge")).to_have_text("Completed")
    await card.locator("summary").click()
    await expect(card.locator("pre")).to_contain_text([unique, '"state": "open"'])
    await expect(card.locator(".aside")).to_have_text(re.compile(r"\d+ (ms|s)"))
    await expect(page.get_by_role("link", name=f"Where is {unique}?")).to_have_attribute("aria-current", "page")
    assert stack.effects(console.run_id)


async def test_what_a_call_told_and_how_it_failed_is_on_its_card(stack: Stack, reader: Reader, unique: str) -> None:
    stack.standin.answers(
        says("Both.").calls("narrate", {"parts": ["one ", "two"]}).calls("explode", {"text": f"no {unique}"}),
        says("Done."),
    )
    console = await reader.opens("/?agent=clerk")
    await console.say("go")
    await console.ends()
    narrated, exploded = console.card("narrate"), console.card("explode")
    await expect(exploded).to_have_attribute("data-state", "error")
    await exploded.locator("summary").click()
    await expect(exploded.locator("pre.is-error")).to_contain_text(f"no {unique}")
    await narrated.locator("summary").click()
    await expect(narrated.locator("pre").nth(1)).to_have_text("one two")


async def test_usage_and_cost_are_told_at_the_end(stack: Stack, reader: Reader) -> None:
    stack.standin.answers(says("Paid.").costs(1000, 2000))
    console = await reader.opens("/?agent=talker")
    await console.say("What is it?")
    await console.ends()
    facts = console.page.locator(".ending .facts")
    for fact in ("1 step", "1,000 tokens in, 2,000 out", "US$0.033", "claude-sonnet-4-5"):
        await expect(facts).to_contain_text(fact)


async def test_a_conversation_goes_on(stack: Stack, reader: Reader, unique: str) -> None:
    stack.standin.answers(says("First."), says("Second."))
    console = await reader.opens("/?agent=talker")
    await console.say(f"one {unique}")
    await console.ends()
    run_id = console.run_id
    await console.say("two")
    await console.ends(turns=2)
    assert console.run_id == run_id
    await expect(console.inputs).to_have_text([f"one {unique}", "two"])
    await console.answers("First.", "Second.")
    await expect(console.page.locator(".runs a")).to_have_count(1)
    request = await stack.standin.request(len(stack.standin.calls))
    assert len(request.body["messages"]) == 3


async def test_a_failed_run_says_why(stack: Stack, reader: Reader) -> None:
    stack.standin.answers(refuses(403, "permission_error", "not for you"))
    console = await reader.opens("/?agent=talker")
    await console.say("go")
    await console.ends("Failed")
    told = (await reader.api.get(f"/v1/runs/{console.run_id}")).json()["error"]
    for _ in ("as it happened", "from its rows"):
        await expect(console.failure.locator("code")).to_have_text(told["code"])
        await expect(console.failure.locator("p")).to_have_text(told["message"])
        await console.page.reload()


async def test_enter_sends_and_shift_enter_begins_a_line(stack: Stack, reader: Reader) -> None:
    stack.standin.answers(says("Read."))
    console = await reader.opens("/?agent=talker")
    keyboard = console.page.keyboard
    await expect(console.page.get_by_label("Message")).to_be_focused()
    await keyboard.type("first")
    await keyboard.press("Shift+Enter")
    await keyboard.type("second")
    await keyboard.press("Enter")
    await console.ends()
    assert await console.inputs.all_inner_texts() == ["first\nsecond"]
    await expect(console.page.get_by_label("Message")).to_have_value("")


async def test_the_answer_is_copied_as_it_was_written(stack: Stack, reader: Reader) -> None:
    stack.standin.answers(says("It is **bold** and `code`."))
    await reader.context.grant_permissions(["clipboard-read", "clipboard-write"])
    console = await reader.opens("/?agent=talker")
    await console.say("go")
    await console.ends()
    await expect(console.page.locator(".answer strong")).to_have_text("bold")
    async with console.at_a_standstill():
        await console.page.get_by_role("button", name="Copy the answer").click()
        await expect(console.page.locator(".ending .copy")).to_have_text("Copied")
    assert await console.page.evaluate("navigator.clipboard.readText()") == "It is **bold** and `code`."
