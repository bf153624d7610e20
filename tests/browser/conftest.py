"""One Chromium a session; each test has a profile and a user of its own, whose token its pages have already."""

from collections.abc import AsyncIterator

import pytest
from playwright.async_api import Browser, async_playwright, expect
from scripts.browser import CHROMIUM
from scripts.services.service import Unusable
from tests.browser.console import Reader
from tests.integration.stack import Stack

GUARD_MS = 60_000
"""Far beyond anything that happens on a loaded machine: only a fault reaches it."""

FLAGS = (
    "--no-sandbox",  # root has none
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--renderer-process-limit=1",  # a process for each page costs more than what most of them do
)

expect.set_options(timeout=GUARD_MS)


@pytest.fixture(scope="session")
async def chromium() -> AsyncIterator[Browser]:
    """Without a Chromium the test fails."""
    try:
        binary = CHROMIUM.find()
    except Unusable as error:
        pytest.fail(str(error), pytrace=False)
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=binary, args=FLAGS)
        yield browser
        await browser.close()


@pytest.fixture
async def reader(stack: Stack, chromium: Browser) -> AsyncIterator[Reader]:
    """A user with a browser. A page that broke a rule of its own fails the test."""
    gateway = stack.gateway
    context = await chromium.new_context(viewport={"width": 1280, "height": 800}, locale="en-GB")
    context.set_default_timeout(GUARD_MS)
    reader = Reader(context=context, api=gateway.user(), base_url=f"http://{gateway.host}:{gateway.port}")
    await reader.prepare()
    yield reader
    await context.close()
    reader.check()
