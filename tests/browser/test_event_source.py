"""A browser's own EventSource: with the lines that docs/streaming.md has for it, and as it comes back by itself."""

import re
import signal
from pathlib import Path

import pytest
from tests.browser.console import Reader
from tests.clients.answer import TERMINAL, AnswerText
from tests.clients.api import replay
from tests.clients.sse import Event
from tests.integration.fixtures import on_sqlite
from tests.integration.stack import Stack
from tests.ports import free_port
from tests.standin import fail, hold, says

pytestmark = [pytest.mark.anyio, on_sqlite]

PAGE = Path(__file__).parents[2] / "docs/streaming.md"
READ = """async ([script, stream]) => {
    const [source, answer] = new Function("stream", `${script}; return [source, () => answer]`)(stream);
    await new Promise((resolve) => {
        const look = () => source.readyState === EventSource.CLOSED ? resolve() : setTimeout(look, 10);
        look();
    });
    return answer();
}"""

LOOKALIKES = ('{"seq":', '1,"role":"user"}', '{"seq":7,"role":"assistant"}', "a\r\nb", '{"seq": 1}', " {", "🙂 end")


async def test_answer_text_is_told_from_rows(stack: Stack, reader: Reader) -> None:
    (script,) = re.findall(r"```js\n(.*?)```", PAGE.read_text(), re.DOTALL)
    stack.standin.answers(
        says("This is withdrawn. 🙂").then(fail("overloaded_error")),
        says("Kept 🙂").calls("look_up", {"order": "1"}),
        says(*LOOKALIKES),
    )
    reader.foresees("favicon.ico")
    async with stack.starting_gateway(RUNYARD_AUTH="dev") as gateway:
        base_url = f"http://{gateway.host}:{gateway.port}"
        result = await gateway.anonymous().run("clerk")
        reader.origins.add(base_url)
        page = await reader.context.new_page()
        await page.goto(f"{base_url}/healthz")
        assert await page.evaluate(READ, [script, result["streamId"]]) == "Kept 🙂" + "".join(LOOKALIKES)
        await page.close()


OPEN = """async ([token, stream, types]) => {
    const headers = {Authorization: `Bearer ${token}`};
    const answer = await fetch(`/v1/streams/${stream}/tickets`, {method: "POST", headers});
    const {ticket} = await answer.json();
    const cookies = document.cookie;
    const source = new EventSource(`/v1/streams/${stream}?ticket=${ticket}`);
    window.seen = [];
    window.text = "";
    for (const type of types)
        source.addEventListener(type, ({lastEventId, data}) => {
            if (data === undefined) return;
            window.seen.push([lastEventId, type, data]);
            if (type === "message" && !data.startsWith('{"seq":')) window.text += data;
        });
    window.source = source;
    return cookies;
}"""
OPEN_BESIDE = """async ([token, paths]) => {
    const headers = {Authorization: `Bearer ${token}`};
    window.opened = {};
    window.changed = [];
    for (const path of paths) {
        const {ticket} = await (await fetch(`${path}/tickets`, {method: "POST", headers})).json();
        const source = new EventSource(`${path}?ticket=${ticket}`);
        source.onopen = () => { window.opened[path] = (window.opened[path] ?? 0) + 1; };
        source.addEventListener("run", ({data}) => window.changed.push(JSON.parse(data).status));
        window[path] = source;
    }
}"""
BESIDE = ("/v1/feed", "/v1/rooms/lobby")
TYPES = ("message", "text", "thinking", "rewind", "status", "tool_start", "tool", "steered", "result", "error")


async def test_it_comes_back_by_itself(stack: Stack, reader: Reader, unique: str) -> None:
    """With a ticket, which is used by then: a gateway leaves, another one is killed, one is there for the end. So do
    one on the feed and one in a room.
    """
    first, second, third = (f"{unique}-{part}" for part in range(3))
    stack.standin.answers(says("one ", hold(first), "two ", hold(second), "three ", hold(third), "four"))
    reader.foresees("favicon.ico", "ERR_", "Failed to load resource")
    port = free_port()
    base_url = f"http://127.0.0.1:{port}"
    reader.origins.add(base_url)
    stream_id = (await reader.api.start("talker"))["streamId"]
    page = await reader.context.new_page()
    async with stack.starting_gateway(RUNYARD_PORT=str(port)) as gateway:
        await page.goto(f"{base_url}/healthz")
        token = reader.api.headers["Authorization"].removeprefix("Bearer ")
        assert await page.evaluate(OPEN, [token, stream_id, TYPES]) == "", "no script reads the cookie"
        await page.evaluate(OPEN_BESIDE, [token, BESIDE])
        await page.wait_for_function("window.text === 'one '")
        await page.wait_for_function("Object.keys(window.opened).length === 2")
        gateway.process.send(signal.SIGTERM)
        assert await gateway.process.exited() == 0
    stack.standin.gate(first).release()
    async with stack.starting_gateway(RUNYARD_PORT=str(port)):
        await page.wait_for_function("window.text === 'one two '")
    stack.standin.gate(second).release()
    async with stack.starting_gateway(RUNYARD_PORT=str(port)):
        await page.wait_for_function("window.text === 'one two three '")
        await page.wait_for_function("Object.values(window.opened).every((times) => times >= 2)")
        stack.standin.gate(third).release()
        await page.wait_for_function("window.source.readyState === EventSource.CLOSED")
        await page.wait_for_function("window.changed.at(-1) === 'completed'")
        seen = await page.evaluate("window.seen")
    events = await replay(reader.api, stream_id)
    assert [event for event in seen if event[1] != "status"] == [
        [event.id, event.type or "message", event.data] for event in events if event.type != "status"
    ]
    await page.close()


LINE_ENDS = (
    "a\r",
    "\nb",
    "c\n",
    "\n\n",
    "x\u2028y",
    "z\u0085",
    "\u000b",
    " led by a space",
    "event: result",
    "\r\n",
    "🙂\r",
)


async def test_three_readers_have_the_same_text(stack: Stack, reader: Reader) -> None:
    """The tests' own parser, httpx2's and Chromium's, whatever the text holds that looks like the end of a line."""
    (script,) = re.findall(r"```js\n(.*?)```", PAGE.read_text(), re.DOTALL)
    stack.standin.answers(says(*LINE_ENDS))
    reader.foresees("favicon.ico")
    async with stack.starting_gateway(RUNYARD_AUTH="dev") as gateway:
        base_url = f"http://{gateway.host}:{gateway.port}"
        async with gateway.anonymous().streaming("clerk") as live:
            await live.rest()
        async with gateway.anonymous().resuming(live.stream_id) as replayed:
            await replayed.rest()
        answer = AnswerText()
        async with gateway.http.sse(f"/v1/streams/{live.stream_id}") as source:
            async for event in source:
                kind = "" if event.event == "message" and not event.data.startswith('{"seq":') else event.event
                answer.feed(Event(type=kind, data=event.data, last_event_id=event.id, id=event.id or None))
                if kind in TERMINAL:
                    break
        reader.origins.add(base_url)
        page = await reader.context.new_page()
        await page.goto(f"{base_url}/healthz")
        shown = await page.evaluate(READ, [script, live.stream_id])
        await page.close()
    assert [live.text, replayed.text, answer.text, shown] == 4 * ["".join(LINE_ENDS)]
