"""The page at `/docs`: the whole API, for whoever asks, from this server alone."""

import pytest
from playwright.async_api import expect
from tests.browser.console import Reader
from tests.clients.specification import DOCUMENT
from tests.integration.fixtures import on_sqlite
from tests.integration.stack import Stack

pytestmark = [pytest.mark.anyio, on_sqlite]


async def test_it_shows_every_operation_and_calls_with_a_token(stack: Stack, reader: Reader) -> None:
    """On one page: the browser draws for seconds before it has it all."""
    page = (await reader.opens("/docs")).page
    operations = [(method, path) for path, methods in DOCUMENT["paths"].items() for method in methods]
    shown = page.locator(".opblock")
    await expect(shown).to_have_count(len(operations))
    paths = await shown.locator("[data-path]").evaluate_all("them => them.map(it => it.dataset.path)")
    assert sorted(paths) == sorted(path for _, path in operations)

    block = page.locator("#operations-runs-runs_list_runs")
    await block.get_by_role("button", name="get /v1/runs", exact=False).first.click()
    await expect(block).to_contain_text("metadata.{key}")
    await expect(block).to_contain_text("UNAUTHENTICATED")
    await expect(block).to_contain_text("nextCursor")

    await page.get_by_role("button", name="Authorize").first.click()
    await page.locator("input[aria-label='auth-bearer-value']").fill(
        reader.api.headers["Authorization"].removeprefix("Bearer ")
    )
    await page.get_by_role("button", name="Apply credentials").click()
    await page.get_by_role("button", name="Close").last.click()
    block = page.locator("#operations-agents-agents_list_agents")
    await block.locator(".opblock-summary-control").click()
    await block.get_by_role("button", name="Try it out").click()
    await block.get_by_role("button", name="Execute").click()
    await expect(block.locator(".live-responses-table")).to_contain_text('"name": "clerk"')
