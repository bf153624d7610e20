"""The page around a conversation: tokens, one's runs, a phone, the keyboard."""

import asyncio
import re

import pytest
from playwright.async_api import Browser, Page, Request, Route, expect
from tests.browser.console import EFFECTS, Reader, holding
from tests.clients.tokens import token
from tests.integration.fixtures import on_sqlite
from tests.integration.processes import eventually
from tests.integration.stack import Stack
from tests.standin import says

pytestmark = [pytest.mark.anyio, on_sqlite]

AT_ONCE = """
new MutationObserver((_, observer) => {
  const agent = document.querySelector("input[value=%s]");
  if (agent === null) return;
  observer.disconnect();
  agent.click();
}).observe(document, { childList: true, subtree: true });
"""
"""Clicks before the frame is shown that the agents come with."""

RUNS = 23
PHONE = {"width": 390, "height": 844}


async def test_an_agent_that_has_a_worker_is_offered_first(reader: Reader) -> None:
    async def without_the_first_ones_workers(route: Route) -> None:
        answer = await route.fetch()
        told = await answer.json()
        told["items"][0]["liveWorkers"], told["items"][1]["liveWorkers"] = 0, 1  # whatever an earlier test left behind
        await route.fulfill(response=answer, json=told)

    await reader.context.route("**/v1/agents", without_the_first_ones_workers)
    console = await reader.opens()
    agents = console.page.get_by_role("radio")
    await expect(console.page.locator(".agent-card").first).to_contain_text(re.compile("tools?, no worker alive"))
    await expect(agents.nth(1)).to_be_checked()
    await expect(agents.first).not_to_be_checked()


async def test_who_chooses_an_agent_before_the_page_does_has_it(reader: Reader) -> None:
    await reader.context.add_init_script(AT_ONCE % "talker")
    console = await reader.opens()
    agent = console.page.get_by_role("radio", name="talker")
    await expect(agent).to_be_visible()
    await console.page.evaluate(EFFECTS)
    await expect(agent).to_be_checked()


async def test_names_that_are_long_are_read_to_their_end_on_a_phone(reader: Reader) -> None:
    names = [f"{'support_' * 7}{which}" for which in ("first", "second")]

    async def with_long_names(route: Route) -> None:
        answer = await route.fetch()
        told = await answer.json()
        for name, item in zip(names, told["items"], strict=False):
            item["name"], item["liveWorkers"] = name, 1
        await route.fulfill(response=answer, json=told)

    await reader.context.route("**/v1/agents", with_long_names)
    console = await reader.opens()
    await console.page.set_viewport_size(PHONE)
    await expect(console.page.get_by_role("radio", name=names[1])).to_be_visible()
    reaches = "parts => Math.max(...parts.map(part => part.getBoundingClientRect().left + part.scrollWidth))"
    assert await console.page.locator(".picker, .picker *").evaluate_all(reaches) <= PHONE["width"]


async def test_a_token_is_asked_for_and_kept_for_the_tab(stack: Stack, chromium: Browser, unique: str) -> None:
    stack.standin.answers(says("Known."))
    gateway = stack.gateway
    context = await chromium.new_context()
    page = await context.new_page()
    await page.goto(f"http://{gateway.host}:{gateway.port}/")
    field = page.get_by_label("Token")
    await field.fill("not.a.token")
    await field.press("Enter")
    await expect(page.get_by_role("alert")).to_contain_text("the token is not valid")
    await field.fill(token(unique))
    await page.get_by_role("button", name="Use this token").click()
    await page.get_by_role("radio", name="talker").check()
    await page.get_by_label("Message").fill("Who am I?")
    await page.get_by_label("Message").press("Enter")
    await expect(page.locator(".answer")).to_have_text("Known.")
    await page.reload()
    await expect(page.locator(".answer")).to_have_text("Known.")
    assert await page.evaluate("localStorage.length") == 0
    other = await context.new_page()
    await other.goto(f"http://{gateway.host}:{gateway.port}/")
    await expect(other.get_by_label("Token")).to_be_visible()
    await page.get_by_role("button", name="Forget").click()
    await expect(page.get_by_label("Token")).to_be_visible()
    await expect(page.locator(".answer, .runs a")).to_have_count(0)
    await context.close()


async def test_a_late_refusal_of_the_token_before_is_no_refusal_of_this_one(
    stack: Stack, chromium: Browser, unique: str
) -> None:
    context = await chromium.new_context()
    page = await context.new_page()
    held, is_used = asyncio.Event(), asyncio.Event()

    async def hold_refusal(route: Route) -> None:
        response = await route.fetch()
        if route.request.headers.get("authorization") == "Bearer not.a.token":
            held.set()
            await is_used.wait()
        await route.fulfill(response=response)

    await page.route("**/v1/runs?*", hold_refusal)
    await page.goto(f"http://{stack.gateway.host}:{stack.gateway.port}/")
    field = page.get_by_label("Token")
    await field.fill("not.a.token")
    await field.press("Enter")
    await expect(page.get_by_role("alert")).to_contain_text("the token is not valid")
    await held.wait()
    await field.fill(token(unique))
    await field.press("Enter")
    agent = page.get_by_role("radio", name="talker")
    await expect(agent).to_be_visible()
    async with page.expect_response(lambda response: response.status == 401):
        is_used.set()
    await agent.check()
    await expect(page.get_by_label("Token")).to_have_count(0)
    await context.close()


async def test_ones_runs_are_listed_by_title_or_first_words(stack: Stack, reader: Reader, unique: str) -> None:
    stack.standin.answers_with(lambda _: says("Noted."))
    for number in range(RUNS - 1):
        await reader.api.run("talker", f"question {number} {unique}")
    last = await reader.api.run("talker", "anything", title=f"A title {unique}")
    await stack.gateway.user().run("talker", "somebody else's")
    console = await reader.opens()
    page = console.page
    runs = page.locator(".runs a")
    await expect(runs).to_have_count(20)
    await expect(runs.first.locator(".words")).to_have_text(f"A title {unique}")
    await expect(runs.nth(1).locator(".words")).to_have_text(f"question {RUNS - 2} {unique}")
    await page.get_by_role("button", name="Show more").click()
    await expect(runs).to_have_count(RUNS)
    await expect(page.get_by_role("button", name="Show more")).to_have_count(0)
    await runs.first.click()
    await expect(console.inputs).to_have_text(["anything"])
    assert console.run_id == last["runId"]
    await console.answers("Noted.")
    await runs.nth(1).click()
    await expect(console.inputs).to_have_text([f"question {RUNS - 2} {unique}"])
    await page.go_back()
    await expect(console.inputs).to_have_text(["anything"])
    assert console.run_id == last["runId"]


async def test_more_runs_stay_though_a_look_was_under_way(reader: Reader) -> None:
    for number in range(RUNS):
        await reader.api.start("unserved", title=f"Question {number}")
    page = (await reader.opens()).page
    runs = page.locator(".runs a")
    await expect(runs).to_have_count(20)
    looks = await holding(page, "**/v1/runs?limit=20")
    await page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    await eventually(lambda: bool(looks), "look at the runs")
    asked: list[Request] = []
    page.on("request", lambda request: asked.append(request) if "cursor=" in request.url else None)
    await page.get_by_role("button", name="Show more").click()
    await page.evaluate(EFFECTS)
    await come(page, *asked)
    await looks[0].continue_()
    await come(page, looks[0].request)
    await expect(runs).to_have_count(RUNS)
    for run in (await reader.api.get("/v1/runs", limit=100)).json()["items"]:
        await reader.api.post(f"/v1/runs/{run['id']}/cancel")


async def come(page: Page, *requests: Request) -> None:
    """Their answers have come, and are shown."""
    for request in requests:
        answer = await request.response()
        assert answer is not None
        await answer.finished()
        await page.evaluate(EFFECTS)


async def test_on_a_phone_the_runs_are_a_drawer(stack: Stack, reader: Reader, unique: str) -> None:
    stack.standin.answers(says("Small."))
    result = await reader.api.run("talker", f"on the way {unique}")
    console = await reader.opens(f"/?run={result['runId']}")
    page = console.page
    await page.set_viewport_size(PHONE)
    await console.answers("Small.")
    run = page.get_by_role("link", name=f"on the way {unique}")
    await expect(run).to_be_hidden()
    await page.get_by_role("button", name="Your runs").click()
    await expect(run).to_be_visible()
    await expect(page.get_by_role("button", name="Close the list of runs")).to_be_focused()
    await page.keyboard.press("Escape")
    await expect(run).to_be_hidden()
    await expect(page.get_by_role("button", name="Your runs")).to_be_focused()
    await page.get_by_role("button", name="Your runs").click()
    await page.get_by_role("link", name="New chat").click()
    await expect(page.get_by_role("radio", name="talker")).to_be_visible()
    await expect(run).to_be_hidden()
    width = await page.evaluate("document.scrollingElement.scrollWidth")
    assert width == PHONE["width"]


async def test_all_can_be_done_with_the_keyboard(stack: Stack, reader: Reader) -> None:
    stack.standin.answers(says("Look.").calls("explode", {"text": "no"}), says("Done."))
    console = await reader.opens()
    page, keyboard = console.page, console.page.keyboard
    await expect(page.get_by_role("radio", checked=True)).to_be_visible()
    await expect(page.get_by_label("Message")).to_be_focused()
    await page.keyboard.press("Shift+Tab")
    await expect(page.get_by_role("radio", checked=True)).to_be_focused()
    while not await page.get_by_role("radio", name="clerk").is_checked():
        await keyboard.press("ArrowDown")
    await keyboard.press("Tab")
    await expect(page.get_by_label("Message")).to_be_focused()
    await keyboard.type("go")
    await keyboard.press("Enter")
    await console.ends()
    summary = console.card("explode").locator("summary")
    await summary.focus()
    await keyboard.press("Enter")
    await expect(console.card("explode").locator("pre.is-error")).to_be_visible()
    await keyboard.press("Space")
    await expect(console.card("explode").locator("pre.is-error")).to_be_hidden()


async def test_what_an_agent_can_use_is_told(reader: Reader) -> None:
    console = await reader.opens("/?agent=clerk")
    tools = console.page.locator(".tools")
    await expect(tools.locator("dt")).to_contain_text(["charge", "look_up"])
    await expect(tools.locator("dd")).to_contain_text(["Take money: it must not happen twice."])
    await expect(console.page.get_by_role("radio", name="treasurer")).to_have_count(0)
