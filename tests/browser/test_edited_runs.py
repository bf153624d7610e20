"""Runs that are changed by hand while a page has them open: it shows what they are now."""

from typing import Any

import pytest
from playwright.async_api import expect
from tests.browser.console import Reader
from tests.integration.fixtures import on_sqlite
from tests.integration.stack import Stack
from tests.standin import says

pytestmark = [pytest.mark.anyio, on_sqlite]


def told(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


async def test_a_history_that_nobody_answered_is_shown_and_goes_on(stack: Stack, reader: Reader) -> None:
    stack.standin.answers(says("Read."))
    response = await reader.api.post("/v1/runs", {"agent": "talker", "messages": [told("brought along")]})
    console = await reader.opens(f"/?run={response.json()['id']}")
    await expect(console.inputs).to_have_text(["brought along"])
    await expect(console.page.locator(".badge")).to_have_text("Idle")
    await console.say("Read that.")
    await console.ends()
    await console.answers("Read.")
    await reader.api.post(f"/v1/runs/{console.run_id}/messages", {"messages": [told("added")]})
    await expect(console.inputs).to_have_text(["brought along", "Read that.", "added"])
    await console.page.reload()
    await expect(console.inputs).to_have_text(["brought along", "Read that.", "added"])
    await expect(console.failure).to_have_count(0)


async def test_what_is_cleared_or_erased_elsewhere_is_gone_here(stack: Stack, reader: Reader) -> None:
    stack.standin.answers(says("First."), says("Anew."))
    console = await reader.opens("/?agent=talker")
    await console.say("one")
    await console.ends()
    path = f"/v1/runs/{console.run_id}"
    assert (await reader.api.call("DELETE", f"{path}/messages")).status_code == 204
    await expect(console.inputs).to_have_count(0)
    await console.answers()
    await console.say("two")
    await console.ends()
    await expect(console.inputs).to_have_text(["two"])
    await console.answers("Anew.")
    reader.foresees("status of 404")
    assert (await reader.api.call("DELETE", path)).status_code == 204
    await expect(console.failure).to_contain_text("RUN_NOT_FOUND")
