"""Models that fail, workers that leave, runs that end with an error: told while it is so, and no longer."""

import pytest
from playwright.async_api import expect
from tests.browser.console import SCRIBE, Reader, said_texts
from tests.integration.fixtures import on_sqlite
from tests.integration.stack import Stack
from tests.standin import cut, fail, hold, refuses, says

pytestmark = [pytest.mark.anyio, on_sqlite]

RETRYING = "Asking claude-sonnet-4-5 again"


async def test_a_retry_is_told_until_the_model_answers(stack: Stack, reader: Reader, unique: str) -> None:
    stack.standin.answers(
        refuses(529, "overloaded_error", "Overloaded"),
        says("Here ", hold(f"{unique}-said"), "I am.").before("head", hold(unique)),
    )
    here = await reader.opens("/?agent=talker")
    await here.say("go")
    await expect(here.status).to_contain_text(RETRYING)
    await expect(here.status).to_contain_text("attempt 2")
    there = await reader.opens(f"/?run={here.run_id}")
    await expect(there.status).to_contain_text(RETRYING)
    stack.standin.gate(unique).release()
    for console in (here, there):
        await console.answers("Here")
        await expect(console.status).to_have_text("Writing")
        await expect(console.page.locator(".badge")).to_have_text("Running")
    stack.standin.gate(f"{unique}-said").release()
    for console in (here, there):
        await console.ends()
        await expect(console.status).to_have_count(0)


async def test_what_a_broken_answer_showed_is_seen_to_be_withdrawn(stack: Stack, reader: Reader, unique: str) -> None:
    stack.standin.answers(
        says("This breaks ", hold(unique), cut()),
        says("This ", hold(f"{unique}-said"), "holds."),
    )
    console = await reader.opens("/?agent=talker")
    await console.say("go")
    await console.answers("This breaks")
    stack.standin.gate(unique).release()
    await console.answers("This")
    await expect(console.status).to_contain_text("Unfinished output was withdrawn")
    stack.standin.gate(f"{unique}-said").release()
    await console.ends()
    messages = await reader.api.messages(console.run_id or "")
    assert await console.shown_texts() == said_texts(messages) == ["This holds."]


async def test_a_failed_run_keeps_what_it_did_not_read(stack: Stack, reader: Reader, unique: str) -> None:
    stack.standin.answers(
        says("Half ", hold(unique)).then(fail("invalid_request_error", "no more")), says("All ", "answered.")
    )
    console = await reader.opens("/?agent=talker")
    await console.say("go")
    await console.answers("Half")
    await console.say("one thing")
    await console.waits("one thing")
    await console.say("another")
    await console.waits("one thing", "another")
    stack.standin.gate(unique).release()
    await console.ends("Failed")
    told = (await reader.api.get(f"/v1/runs/{console.run_id}")).json()["error"]
    for _ in ("as it happened", "from its rows"):
        await expect(console.failure.locator("code")).to_have_text(told["code"])
        await expect(console.failure.locator("p")).to_have_text(told["message"])
        await expect(console.page.locator(".waiting header")).to_contain_text("2 inputs not read")
        await console.waits("one thing", "another", receipt="unanswered")
        await console.page.reload()
    await console.page.get_by_role("button", name="Send again").click()
    await console.ends(turns=2)
    await expect(console.chips).to_have_count(0)
    await expect(console.inputs).to_have_text(["go", "one thing\n\nanother"])
    await console.answers("All answered.")
    await expect(console.draft).to_be_focused()


async def test_runs_that_wait_for_a_worker_say_so(stack: Stack, reader: Reader, unique: str) -> None:
    """One that its worker has left, and one that none has begun."""
    stack.standin.answers(says("Not ", hold(unique), "kept."), says("Kept."), contains=f"Left {unique}")
    stack.standin.answers(says("Written."), contains=f"New {unique}")
    async with stack.starting_worker(**SCRIBE, RUNYARD_DRAIN_S="0") as worker:
        left = await reader.opens("/?agent=scribe")
        await left.say(f"Left {unique}")
        await left.answers("Not")
        await worker.stop()
    await expect(left.status).to_contain_text("Its worker has left. No worker with this agent is alive")
    await expect(left.page.locator(".badge")).to_have_text("Queued")
    new = await reader.opens("/?agent=scribe")
    await new.say(f"New {unique}")
    for _ in ("as it was sent", "from its row"):
        await expect(new.status).to_contain_text("Queued. No worker with this agent is alive")
        await expect(new.inputs).to_have_text([f"New {unique}"])
        await new.page.reload()
    async with stack.starting_worker(**SCRIBE):
        for console, text in ((left, "Kept."), (new, "Written.")):
            await console.ends()
            messages = await reader.api.messages(console.run_id or "")
            assert await console.shown_texts() == said_texts(messages) == [text]
    await expect(new.inputs).to_have_text([f"New {unique}"])
    stack.standin.gate(unique).release()
