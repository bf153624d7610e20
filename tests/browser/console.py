"""The console in a browser: one page (`Console`), and a user's browser, which opens pages (`Reader`)."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from playwright.async_api import BrowserContext, ConsoleMessage, Locator, Page, Request, Route, expect
from tests.clients.api import Api

SCRIBE = {"RUNYARD_QUEUES": "scribe", "RUNYARD_AGENTS": str(Path(__file__).parent / "agents")}
"""Settings of a worker that has the agent `scribe` alone, which no other worker has."""

TOKEN_IN_PLACE = """
if (location.protocol === "http:" && sessionStorage.getItem("runyard.token") === null)
  sessionStorage.setItem("runyard.token", %r);
"""


EFFECTS = "() => new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve)))"
"""Preact runs them behind a frame and a timer, both of which began before these."""


@dataclass(kw_only=True)
class Reader:
    """A user with a browser of their own. What its pages complain about or ask of other servers is remembered."""

    context: BrowserContext
    api: Api
    base_url: str
    complaints: list[str] = field(default_factory=list)
    foreseen: list[str] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)
    origins: set[str] = field(default_factory=set)

    async def prepare(self) -> None:
        self.origins.add(self.base_url)
        self.context.on("console", self._heard)
        self.context.on("weberror", lambda error: self.complaints.append(f"uncaught: {error.error}"))
        self.context.on("request", self._requested)
        await self.context.add_init_script(TOKEN_IN_PLACE % self.api.headers["Authorization"].removeprefix("Bearer "))

    async def opens(self, path: str = "/", *, base_url: str | None = None) -> "Console":
        """A page of its own."""
        page = await self.context.new_page()
        console = Console(page=page, base_url=base_url or self.base_url)
        self.origins.add(console.base_url)
        await page.goto(f"{console.base_url}{path}")
        return console

    def foresees(self, *complaints: str) -> None:
        """Expressions for what the browser itself logs about answers that the test provokes."""
        self.foreseen += complaints

    def check(self) -> None:
        unforeseen = [text for text in self.complaints if not any(re.search(known, text) for known in self.foreseen)]
        assert not unforeseen, f"the page complained: {unforeseen}"
        assert not self.foreign, f"the page asked other servers: {self.foreign}"

    def _heard(self, message: ConsoleMessage) -> None:
        """Violations of the content security policy are among the errors."""
        if message.type in ("error", "warning"):
            self.complaints.append(f"{message.type}: {message.text} ({message.location['url']})")

    def _requested(self, request: Request) -> None:
        if not any(request.url.startswith(f"{origin}/") for origin in self.origins):
            self.foreign.append(request.url)


@dataclass(frozen=True, kw_only=True)
class Console:
    page: Page
    base_url: str

    async def choose(self, agent: str) -> None:
        await self.page.get_by_role("radio", name=re.compile(rf"^{agent}\b")).check()

    async def say(self, text: str) -> None:
        await self.draft.fill(text)
        await self.send()

    async def send(self) -> None:
        """The draft, once what was sent before is accepted: until then the page takes no Enter."""
        await expect(self.page.get_by_role("button", name="Send")).to_be_enabled()
        await self.draft.press("Enter")

    async def show(self, run_id: str) -> None:
        await self.page.goto(f"{self.base_url}/?run={run_id}")

    async def answers(self, *texts: str) -> None:
        """The answer's texts, as they are seen, become these; no more and no fewer."""
        await expect(self.page.locator(".answer")).to_have_text(list(texts))

    async def waits(self, *texts: str, receipt: str = "queued") -> None:
        """These inputs, and no others, are shown as not read yet, each with this receipt."""
        await expect(self.chips.locator(".said")).to_have_text(list(texts))
        await expect(self.chips.locator(".receipt")).to_have_text([receipt] * len(texts))

    async def ends(self, status: str = "Completed", *, turns: int = 1) -> None:
        """So many turns have ended, the last one like this."""
        await expect(self.page.locator(".ending")).to_have_count(turns)
        await expect(self.page.locator(".ending").last).to_contain_text(status)

    @asynccontextmanager
    async def at_a_standstill(self) -> AsyncIterator[None]:
        """What is drawn has had its effects; and no timer that begins here runs, so what is shown for seconds is there
        for as long as a test looks.
        """
        await self.page.evaluate(EFFECTS)
        await self.page.clock.install()
        await self.page.clock.pause_at(datetime.now(UTC) + timedelta(days=1))
        yield
        await self.page.clock.resume()

    async def shown_texts(self) -> list[str]:
        """The answer's texts, character by character."""
        return await self.page.locator(".answer").all_inner_texts()

    def card(self, name: str) -> Locator:
        return self.page.locator(".card.tool").filter(has=self.page.get_by_text(name, exact=True))

    def take_back(self, text: str) -> Locator:
        return self.page.get_by_role("button", name=f"Take back: {text}")

    @property
    def draft(self) -> Locator:
        return self.page.get_by_label("Message")

    @property
    def stop(self) -> Locator:
        return self.page.locator(".composer .stop")

    @property
    def chips(self) -> Locator:
        """Inputs that the agent has not read."""
        return self.page.locator(".waiting .chip")

    @property
    def inputs(self) -> Locator:
        return self.page.locator(".input .said")

    @property
    def status(self) -> Locator:
        return self.page.locator(".progress")

    @property
    def failure(self) -> Locator:
        """Of the conversation or the page; the list of runs beside it has its own."""
        return self.page.locator("main .failure")

    @property
    def run_id(self) -> str | None:
        """The one in the page's address."""
        return parse_qs(urlsplit(self.page.url).query).get("run", [None])[0]


async def holding(page: Page, pattern: str) -> list[Route]:
    """The page's calls that are on their way, and go no further by themselves."""
    held: list[Route] = []

    def hold_back(route: Route) -> None:
        held.append(route)

    await page.route(pattern, hold_back)
    return held


def said_texts(messages: list[dict[str, Any]]) -> list[str]:
    """What the transcript holds of answer text, one text an assistant row."""
    rows = [row for row in messages if row["role"] == "assistant"]
    texts = ["".join(block["text"] for block in row["content"] if block["type"] == "text") for row in rows]
    return [text for text in texts if text]
