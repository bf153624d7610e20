"""A function's run on the page: its arguments, what it writes, its value; and nothing that it would not take."""

import json

import pytest
from playwright.async_api import expect
from tests.browser.console import Console, Reader
from tests.integration.fixtures import on_sqlite
from tests.integration.stack import Stack

pytestmark = [pytest.mark.anyio, on_sqlite]

ONE_CALL = "A function is one call: its run takes no messages."


async def shown(console: Console, name: str) -> dict[str, str]:
    """What lies open of a call: label and text."""
    sections = console.card(name).locator(".source")
    labels, texts = sections.locator("h4"), sections.locator("pre")
    return dict(zip(await labels.all_inner_texts(), await texts.all_inner_texts(), strict=True))


async def test_a_call_is_watched_and_stopped(stack: Stack, reader: Reader, unique: str) -> None:
    arguments = {"words": ["one ", "two"], "gate": unique}
    started = (await reader.api.post("/v1/functions/recite", {"input": arguments})).json()
    await stack.gate_reached(unique)
    console = await reader.opens(f"/?run={started['runId']}")
    await console.answers("one")
    assert json.loads((await shown(console, "recite"))["Arguments"]) == arguments
    await expect(console.draft).to_have_count(0)
    await expect(console.inputs).to_have_count(0)
    stop = console.page.get_by_role("button", name="Stop")
    await stop.click()
    await expect(console.page.get_by_role("button", name="Stopping")).to_be_visible()
    stack.open_gate(unique)
    await console.ends("Cancelled")
    await expect(console.page.get_by_text(ONE_CALL)).to_be_visible()
    await expect(stop).to_have_count(0)
    await expect(console.draft).to_have_count(0)


async def test_a_call_that_has_ended_shows_its_value(stack: Stack, reader: Reader, unique: str) -> None:
    body = {"input": {"words": ["one ", "two"], "gate": None}}
    ended = (await reader.api.post("/v1/functions/recite", body, headers={"Prefer": "wait=30"})).json()
    console = await reader.opens(f"/?run={ended['runId']}")
    await console.answers("one two")
    await console.ends()
    called = await shown(console, "recite")
    assert {label: json.loads(text) for label, text in called.items()} == {
        "Arguments": body["input"],
        "Output": {"count": 2},
    }
    await expect(console.page.locator(".ending .facts > span")).to_have_text(["Completed"])
    await expect(console.page.locator(".head h1")).to_have_text("recite")
    await expect(console.page.locator(".runs .words").first).to_have_text('words: ["one ","two"], gate: null')
    await expect(console.page.locator(".runs .agent").first).to_have_text("recite")


async def test_a_call_that_was_refused_shows_what_its_caller_was_told(stack: Stack, reader: Reader) -> None:
    refused = (await reader.api.post("/v1/functions/refuse", {"input": {"status": 404}, "title": "Ask"})).json()
    await reader.api.settled(refused["invocationId"])
    console = await reader.opens(f"/?run={refused['runId']}")
    await console.ends("Failed")
    told = json.loads((await shown(console, "refuse"))["Error"])
    assert told == {"code": "NOT_TODAY", "message": "Come back tomorrow", "opensAt": "09:00"}
    await expect(console.failure).to_contain_text("Come back tomorrow")
    await expect(console.page.locator(".head h1")).to_have_text("Ask")
    await expect(console.page.locator(".head .agent")).to_have_text("Function refuse")


async def test_a_call_that_waits_shows_its_arguments(stack: Stack, reader: Reader) -> None:
    waiting = (await reader.api.post("/v1/functions/nowhere", {"input": {}})).json()
    console = await reader.opens(f"/?run={waiting['runId']}")
    await expect(console.status).to_contain_text("Queued")
    await expect(console.page.locator(".turn .source pre")).to_have_text("{}")
    await expect(console.page.locator(".chip")).to_have_count(0)
    async with console.at_a_standstill():
        await console.page.keyboard.press("Escape")
        await expect(console.page.get_by_text("Press Escape again to stop it")).to_be_visible()
        await console.page.keyboard.press("Escape")
    await console.ends("Cancelled")
