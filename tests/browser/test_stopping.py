"""Stop means stop, wherever the run stands and whoever looks; what was said until then is kept."""

from typing import Any

import pytest
from playwright.async_api import Route, expect
from tests.browser.console import Console, Reader, said_texts
from tests.integration.fixtures import on_sqlite
from tests.integration.stack import Stack
from tests.standin import calls, hold, says

pytestmark = [pytest.mark.anyio, on_sqlite]


async def test_a_stop_keeps_what_was_said(stack: Stack, reader: Reader, unique: str) -> None:
    stack.standin.answers(says("One,", hold(unique), " two."), says("Again."))
    here = await reader.opens("/?agent=talker")
    await here.say("Count.")
    await here.answers("One,")
    there = await reader.opens(f"/?run={here.run_id}")
    await there.answers("One,")
    await here.stop.click()
    request = await stack.standin.request(len(stack.standin.calls))
    assert await request.ended() == "client_closed"
    for console in (here, there):
        await console.ends("Cancelled")
        await expect(console.stop).to_have_count(0)
        await expect(console.page.locator(".badge")).to_have_text("Cancelled")
        messages = await reader.api.messages(console.run_id or "")
        assert await console.shown_texts() == said_texts(messages) == ["One,"]
    await expect(here.draft).to_be_focused()
    await here.page.reload()
    await here.ends("Cancelled")
    await here.answers("One,")
    await here.say("And now?")
    await here.ends(turns=2)
    await here.answers("One,", "Again.")
    stack.standin.gate(unique).release()


async def test_everybody_sees_that_a_run_is_stopping(stack: Stack, reader: Reader, unique: str) -> None:
    """The tool does not hear of it; what is sent meanwhile is for the turn after that."""
    stack.standin.answers(calls("hold", {"gate": unique}), says("Next."))
    here = await reader.opens("/?agent=clerk")
    await here.say("Wait.")
    await stack.gate_reached(unique)
    await expect(here.card("hold")).to_be_visible()  # the worker may be ahead of the page, which learns the run's id
    there = await reader.opens(f"/?run={here.run_id}")
    await expect(there.stop).to_have_text("Stop")
    await here.stop.click()
    for console in (here, there):
        await expect(console.stop).to_have_text("Stopping")
        await expect(console.status).to_contain_text("Stopping")
        await expect(console.page.locator(".badge")).to_have_text("Stopping")
    await there.page.reload()
    await expect(there.stop).to_have_text("Stopping")
    await here.say("And then?")
    for console in (here, there):
        await console.waits("And then?")
    stack.open_gate(unique)
    for console in (here, there):
        await console.ends(turns=2)
        await expect(console.page.locator(".ending").first).to_contain_text("Cancelled")
        await expect(console.inputs).to_have_text(["Wait.", "And then?"])
        await expect(console.chips).to_have_count(0)
        await console.answers("Next.")


async def test_a_queued_run_stops_at_once_and_gives_back_what_waited(reader: Reader) -> None:
    console = await reader.opens("/?agent=unserved")
    await console.say("Begin.")
    await expect(console.status).to_contain_text("Queued")
    await console.say("also this")
    await console.waits("also this")
    await console.say("and that")
    await console.waits("also this", "and that")
    await console.page.reload()
    await expect(console.inputs).to_have_text(["Begin."])
    await console.waits("also this", "and that")
    await console.stop.click()
    await console.ends("Cancelled")
    await expect(console.inputs).to_have_text(["Begin."])
    await expect(console.chips).to_have_count(0)
    await expect(console.draft).to_have_value("also this\n\nand that")
    await console.page.reload()
    await expect(console.draft).to_have_value("also this\n\nand that")


async def test_escape_stops_when_it_is_pressed_twice(stack: Stack, reader: Reader, unique: str) -> None:
    stack.standin.answers(says("Going ", hold(unique), "on."))
    console = await reader.opens("/?agent=talker")
    keyboard = console.page.keyboard
    await console.say("go")
    await console.answers("Going")
    hint = console.page.locator("#draft-hint")
    async with console.at_a_standstill():
        await keyboard.press("Escape")
        await expect(hint).to_contain_text("Press Escape again")
        await keyboard.type("x")
        await expect(hint).not_to_contain_text("Press Escape again")
        await keyboard.press("Escape")
        await expect(hint).to_contain_text("Press Escape again")
        await expect(console.page.locator(".badge")).to_have_text("Running")
        await keyboard.press("Escape")
    await console.ends("Cancelled")
    await expect(console.draft).to_have_value("x")
    stack.standin.gate(unique).release()


async def test_a_stop_that_does_not_arrive_is_told(stack: Stack, reader: Reader, unique: str) -> None:
    stack.standin.answers(says("Going ", hold(unique), "on."))
    reader.foresees("ERR_FAILED")
    console = await reader.opens("/?agent=talker")
    await console.say("go")
    await console.answers("Going")
    said: list[Any] = []

    async def lose(route: Route) -> None:
        said.append(route.request.post_data_json)
        await route.abort()

    await console.page.route("**/cancel", lose)
    await console.stop.click()
    await expect(console.failure).to_contain_text("UNREACHABLE")
    run = (await reader.api.get(f"/v1/runs/{console.run_id}")).json()
    assert said == [{"invocationId": run["invocationId"]}]
    await _is_still_running(console)
    await console.page.unroute("**/cancel")
    await console.stop.click()
    await console.ends("Cancelled")
    await expect(console.failure).to_have_count(0)
    stack.standin.gate(unique).release()


async def _is_still_running(console: Console) -> None:
    await expect(console.stop).to_have_text("Stop")
    await expect(console.status).to_contain_text("Writing")
