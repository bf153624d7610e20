"""The bytes of a streamed answer: headers, heartbeat, ids, line ends, and how it ends, as any HTTP client sees them."""

import asyncio
import json
from itertools import pairwise
from typing import Any

import pytest
from tests.clients.answer import answer_text, is_terminal
from tests.clients.api import STREAM, Reading, replay
from tests.clients.sse import EventStreamParser
from tests.clients.wire import wire
from tests.integration.fixtures import on_sqlite
from tests.integration.processes import eventually
from tests.integration.stack import Stack
from tests.standin import hold, says

pytestmark = [pytest.mark.anyio, on_sqlite]

AWKWARD = (
    "a\r",
    "\nb",
    "c\n",
    "\n\n",
    "x\u2028y",
    "z\u0085",
    "\u000b",
    " space",
    "event: result",
    "\r\r\n",
    ":",
    "\0!",
)
"""Deltas that hold what some reader takes for the end of a line, or for a field."""

STORED = "".join(AWKWARD).replace("\0", "\N{REPLACEMENT CHARACTER}")


async def test_headers_retry_and_heartbeat_come_before_the_first_frame(stack: Stack, unique: str) -> None:
    """The agent's queue has no worker: what is there without any frame is seen."""
    api = stack.gateway.user()
    async with api.streaming("unserved") as reading:
        headers = reading.response.headers
        assert headers["content-type"] == "text/event-stream"
        assert headers["cache-control"] == "no-cache"
        assert headers["x-accel-buffering"] == "no"
        assert headers["x-stream-id"].startswith("st_")
        assert headers["x-request-id"]
        invocation = (await api.get(headers["location"])).json()
        assert invocation["streamId"] == headers["x-stream-id"]
        assert invocation["runId"] == headers["x-run-id"]
        await reading.opened()
        (retry_ms,) = reading.parser.retries_ms
        assert 1000 <= retry_ms <= 3000
        assert reading.events == []
    async with api.resuming(headers["x-stream-id"]) as again:
        assert again.response.headers["x-stream-id"] == headers["x-stream-id"]
        assert again.response.headers["cache-control"] == "no-cache"
        assert again.response.headers["x-accel-buffering"] == "no"
        await again.opened()
        assert again.parser.retries_ms


async def test_every_frame_has_its_number_and_json_where_it_is_typed(stack: Stack) -> None:
    stack.standin.answers(says("I ", "look.").calls("look_up", {"order": "1"}), says("Found."))
    async with stack.gateway.user().streaming("clerk") as reading:
        events = await reading.rest()
    assert [event.id for event in events] == [str(number) for number in range(1, len(events) + 1)]
    for event in events:
        if event.type:
            assert isinstance(json.loads(event.data), dict)
    assert [event.type for event in events] == [
        "status",
        "message",
        "",
        "",
        "message",
        "tool_start",
        "tool",
        "message",
        "",
        "message",
        "result",
    ]
    messages = [json.loads(event.data) for event in events if event.type == "message"]
    assert messages == [
        {"seq": 1, "role": "user"},
        {"seq": 2, "role": "assistant"},
        {"seq": 3, "role": "user"},
        {"seq": 4, "role": "assistant"},
    ]
    begun, ended = (json.loads(event.data) for event in events if event.type in {"tool_start", "tool"})
    assert begun == {"id": begun["id"], "name": "look_up", "input": {"order": "1"}}
    assert ended == begun | {"isError": False, "durationMs": ended["durationMs"]}


async def test_the_terminal_frame_says_what_the_result_says(stack: Stack) -> None:
    stack.standin.answers(says("done"))
    api = stack.gateway.user()
    async with api.streaming("talker", sessionId="s") as reading:
        events = await reading.rest()
    told = json.loads(events[-1].data)
    assert set(told) == {
        "runId",
        "sessionId",
        "invocationId",
        "streamId",
        "status",
        "text",
        "steps",
        "usage",
        "cost",
        "model",
        "finishReason",
    }
    invocation = await api.settled(told["invocationId"])
    assert told == {name: invocation[name] for name in told}
    assert told["streamId"] == reading.stream_id


async def test_a_failed_run_ends_with_the_body_of_its_error(stack: Stack) -> None:
    stack.standin.answers(*[says("x ").calls("nothing")] * 3)
    api = stack.gateway.user()
    async with api.streaming("talker") as reading:
        events = await reading.rest()
        request_id = reading.response.headers["x-request-id"]
    assert events[-1].type == "error"
    error = json.loads(events[-1].data)["error"]
    assert error["code"] == "AGENT_MAX_STEPS"
    assert error["requestId"] == request_id
    assert error["retryable"] is False
    assert error["status"] == "failed"
    run = (await api.get(f"/v1/runs/{error['runId']}")).json()
    assert run["error"] == {"code": error["code"], "message": error["message"]}
    assert reading.text == "x x x "


async def test_awkward_text_comes_byte_for_byte_live_and_replayed(stack: Stack) -> None:
    stack.standin.answers(says(*AWKWARD))
    api = stack.gateway.user()
    async with api.streaming("talker") as reading:
        events = await reading.rest()
    assert reading.text == STORED
    assert [is_terminal(event) for event in events] == [False] * (len(events) - 1) + [True]
    assert await replay(api, reading.stream_id) == events
    for before, after in pairwise(events):
        assert await replay(api, reading.stream_id, before.id) == events[events.index(after) :]
    (_, answer) = await api.messages(reading.response.headers["x-run-id"])
    assert answer["content"] == [{"type": "text", "text": STORED}]


async def test_a_connection_kept_alive_serves_on_after_the_terminal_frame(stack: Stack) -> None:
    stack.standin.answers(says("one"), says("two"))
    headers = {"Host": "x", **STREAM, **stack.gateway.user().headers}
    async with wire(stack.gateway.host, stack.gateway.port) as link:
        for text in ("one", "two"):
            await link.send("POST /v1/agents/talker/runs HTTP/1.1", headers, b'{"input": "go"}')
            head = await link.head()
            assert (head.status, head.version) == (200, "HTTP/1.1")
            assert head.headers["transfer-encoding"] == "chunked"
            assert "close" not in head.headers.get("connection", "")
            events = EventStreamParser().feed(await link.body(head))
            assert answer_text(events) == text
            assert is_terminal(events[-1])
        await link.send("GET /healthz HTTP/1.1", {"Host": "x"})
        head = await link.head()
        assert json.loads(await link.body(head)) == {"status": "ok"}


@pytest.mark.parametrize("connection", [{}, {"Connection": "keep-alive"}], ids=["plain", "keep-alive"])
async def test_a_client_of_http_1_0_gets_no_chunks(stack: Stack, connection: dict[str, str]) -> None:
    """RFC 9112, section 6.1: its answer ends with the connection."""
    stack.standin.answers(says("one"))
    headers = {**STREAM, **connection, **stack.gateway.user().headers}
    async with wire(stack.gateway.host, stack.gateway.port) as link:
        await link.send("POST /v1/agents/talker/runs HTTP/1.0", headers, b'{"input": "go"}')
        head = await link.head()
        assert head.status == 200
        assert "transfer-encoding" not in head.headers
        assert head.headers["connection"] == "close"
        parser = EventStreamParser()
        events = parser.feed(await link.to_the_end())
        assert parser.at_rest
        assert answer_text(events) == "one"
        assert is_terminal(events[-1])


async def test_an_answer_of_json_to_http_1_0_has_its_length(stack: Stack) -> None:
    async with wire(stack.gateway.host, stack.gateway.port) as link:
        await link.send("GET /healthz HTTP/1.0", {})
        head = await link.head()
        assert json.loads(await link.body(head)) == {"status": "ok"}
        assert await link.to_the_end() == b""


async def test_a_reader_who_sent_another_request_is_missed_as_well(stack: Stack, unique: str) -> None:
    stack.standin.answers(says("half ", hold(unique), "whole"))
    api = stack.gateway.user()
    async with api.streaming("talker") as reading:
        await reading.until_text("half ")
    channel = f"{stack.backing.prefix}:live:{reading.stream_id}"
    headers = {"Host": "x", **api.headers}
    async with wire(stack.gateway.host, stack.gateway.port) as link:
        await link.send(f"GET /v1/streams/{reading.stream_id} HTTP/1.1", headers)
        await link.send("GET /healthz HTTP/1.1", headers)
        assert (await link.head()).status == 200
        await eventually(lambda: watchers(stack, channel), "subscription")
    await eventually(lambda: not watchers(stack, channel), "end of it")
    stack.standin.gate(unique).release()
    assert stack.gateway.process.complaints() == []


def watchers(stack: Stack, channel: str) -> int:
    ((_, count),) = stack.redis.pubsub_numsub(channel)
    return int(count)


async def test_a_disconnect_never_cancels(stack: Stack, unique: str) -> None:
    stack.standin.answers(says("half ", hold(unique), "whole"))
    api = stack.gateway.user()
    async with api.streaming("talker") as reading:
        await reading.until_text("half ")
    stack.standin.gate(unique).release()
    result = await api.settled(reading.response.headers["location"].rsplit("/", 1)[-1])
    assert (result["status"], result["text"]) == ("completed", "half whole")
    events = reading.events + await replay(api, reading.stream_id, reading.last_event_id)
    assert answer_text(events) == "half whole"


async def test_head_tells_of_a_stream_without_a_body(stack: Stack, unique: str) -> None:
    stack.standin.answers(says(hold(unique), "x"))
    api = stack.gateway.user()
    started = await api.start("talker")
    response = await api.call("HEAD", f"/v1/streams/{started['streamId']}")
    assert response.status_code == 200
    assert response.headers["content-type"] == "text/event-stream"
    assert response.content == b""
    stack.standin.gate(unique).release()
    await api.settled(started["invocationId"])


QUEUED = {"status": "queued", "waitReason": "no_worker"}


async def test_those_who_wait_for_a_worker_are_told_where_they_stand(stack: Stack, unique: str) -> None:
    """Beside the stream: un-numbered, so that no cursor moves, and told anew when it changes."""
    api, other = stack.gateway.user(tenant=unique), stack.gateway.user(tenant=f"{unique}-2")
    ahead = await api.start("unserved")
    async with api.streaming("unserved") as reading, other.streaming("unserved") as elsewhere:
        ending = asyncio.create_task(reading.next())
        assert await told(reading, 1) == {**QUEUED, "position": 2}
        async with api.resuming(reading.stream_id) as late:
            late_ending = asyncio.create_task(late.next())
            assert await told(late, 1) == {**QUEUED, "position": 2}
            assert (await api.post(f"/v1/runs/{ahead['runId']}/cancel")).status_code == 200
            assert await told(reading, 2) == await told(late, 2) == {**QUEUED, "position": 1}
            run_id = reading.response.headers["x-run-id"]
            assert (await api.post(f"/v1/runs/{run_id}/cancel")).status_code == 200
            for first in (await ending, await late_ending):
                assert first is not None
                assert first.id == "1"
        other_ending = asyncio.create_task(elsewhere.next())
        assert await told(elsewhere, 1) == {**QUEUED, "position": 1}
        run_id = elsewhere.response.headers["x-run-id"]
        assert (await other.post(f"/v1/runs/{run_id}/cancel")).status_code == 200
        await other_ending


async def told(reading: Reading, count: int) -> Any:
    await eventually(lambda: len(reading.notices) >= count, f"notice {count}")
    assert len(reading.notices) == count
    return json.loads(reading.notices[-1].data)
