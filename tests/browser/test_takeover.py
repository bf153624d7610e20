"""A worker dies in the middle of an answer: what it had not saved is withdrawn, and the answer goes on elsewhere."""

import signal

import pytest
from playwright.async_api import expect
from tests.browser.console import SCRIBE, Reader, said_texts
from tests.integration.fixtures import on_sqlite
from tests.integration.stack import Stack
from tests.standin import hold, thinks

pytestmark = [pytest.mark.anyio, on_sqlite]


async def test_the_text_of_a_dead_worker_is_withdrawn(stack: Stack, reader: Reader, unique: str) -> None:
    stack.standin.answers(
        thinks("Plan.").says("I write it down.").calls("note", {"text": unique}),
        thinks("Lost thought.").says("This is never s", hold(unique), "aved."),
        thinks("Kept thought.").says("This is saved."),
    )
    async with stack.starting_worker(**SCRIBE) as worker:
        console = await reader.opens("/?agent=scribe")
        page = console.page
        await console.say("Write.")
        await console.answers("I write it down.", "This is never s")
        await expect(page.locator(".thinking")).to_have_count(2)
        async with stack.starting_worker(**SCRIBE) as successor:
            worker.send(signal.SIGKILL)
            await console.ends()
            assert successor.events("run settled")
    assert console.run_id is not None
    messages = await reader.api.messages(console.run_id)
    for _ in ("as it was followed", "from its rows"):
        assert await console.shown_texts() == said_texts(messages) == ["I write it down.", "This is saved."]
        assert await page.locator(".thinking .said").all_text_contents() == ["Plan.", "Kept thought."]
        await expect(console.card("note")).to_have_count(1)
        await expect(console.card("note")).to_have_attribute("data-state", "done")
        await page.reload()
        await console.ends()
    stack.standin.gate(unique).release()
