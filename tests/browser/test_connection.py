"""Connections that break, streams that are cut, runs that are not there: the page goes on, or says why not."""

import pytest
from playwright.async_api import Request, expect
from tests.browser.console import SCRIBE, Reader, said_texts
from tests.integration.fixtures import on_sqlite
from tests.integration.stack import Stack
from tests.standin import hold, says

pytestmark = [pytest.mark.anyio, on_sqlite]


async def test_a_gateway_that_dies_is_waited_for(stack: Stack, reader: Reader, unique: str) -> None:
    stack.standin.answers(says("Before, ", hold(unique), "after."))
    resumed: list[Request] = []
    reader.foresees("ERR_CONNECTION_REFUSED", "ERR_CONNECTION_RESET", "ERR_EMPTY")
    reader.foresees("ERR_INCOMPLETE_CHUNKED_ENCODING", "ERR_CONTENT_LENGTH_MISMATCH")  # of an answer that is cut off
    async with stack.starting_gateway() as gateway:
        console = await reader.opens("/?agent=talker", base_url=f"http://{gateway.host}:{gateway.port}")
        await console.say("go")
        await console.answers("Before,")
        console.page.on("request", lambda request: resumed.append(request) if "/streams/" in request.url else None)
        gateway.process.kill()
        await expect(console.status).to_contain_text("Connecting again")
        await console.answers("Before,")
    async with stack.starting_gateway(RUNYARD_PORT=str(gateway.port)):
        await expect(console.status).to_contain_text("Writing")
        stack.standin.gate(unique).release()
        await console.ends()
        await console.answers("Before, after.")
        assert (await resumed[-1].all_headers())["last-event-id"].isdigit()
        messages = await reader.api.messages(console.run_id or "")
        assert await console.shown_texts() == said_texts(messages)
        await console.page.close()


async def test_a_reader_of_a_trimmed_stream_sees_what_was_saved(stack: Stack, reader: Reader, unique: str) -> None:
    """The frames of the first step are dropped, those of the second are there."""
    saved = ["Saved."] * 60
    stack.standin.answers(
        says(*saved).calls("note", {"text": "x"}),
        says("Going ", hold(unique), "on."),
    )
    async with stack.starting_worker(**SCRIBE, RUNYARD_STREAM_MAX_BYTES="2500"):
        started = await reader.api.start("scribe")
        await stack.standin.gate(unique).reached()
        console = await reader.opens(f"/?run={started['runId']}")
        await console.answers("".join(saved), "Going")
        await expect(console.card("note")).to_have_attribute("data-state", "done")
        stack.standin.gate(unique).release()
        await console.ends()
        assert await console.shown_texts() == said_texts(await reader.api.messages(started["runId"]))


async def test_a_run_that_is_not_there_is_told(reader: Reader) -> None:
    reader.foresees("status of 404")
    console = await reader.opens("/?run=run_nobody_has")
    await expect(console.failure).to_contain_text("RUN_NOT_FOUND")
    await expect(console.failure).to_contain_text("Request req_")


async def test_an_agent_that_is_not_there_is_told(stack: Stack, reader: Reader) -> None:
    stack.standin.answers(says("Here."))
    console = await reader.opens("/?agent=nobody")
    await expect(console.page.locator(".picker .note")).to_contain_text("There is no agent nobody")
    await console.choose("talker")
    await console.say("go")
    await console.ends()
    await console.answers("Here.")
