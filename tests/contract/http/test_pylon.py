"""Pylon's wire contract, as its clients use it."""

import asyncio
import json
import signal
from collections.abc import Mapping
from typing import Any

import httpx2
import pytest
from tests.clients.api import STREAM, Api, Reading
from tests.clients.sse import Event
from tests.integration.fixtures import on_sqlite
from tests.integration.stack import Stack
from tests.standin import hold, refuses, says

pytestmark = [pytest.mark.anyio, on_sqlite]

BOTH = {"Accept": "application/json, text/event-stream"}
NO_USAGE = {"input_tokens": 0, "output_tokens": 0}


async def call(api: Api, name: str, body: Any = None, headers: Mapping[str, str] | None = None) -> httpx2.Response:
    return await api.post(f"/api/fn/{name}", {} if body is None else body, headers=headers)


def streaming(api: Api, name: str, body: Any, headers: Mapping[str, str] = STREAM) -> Any:
    return api.reading("POST", f"/api/fn/{name}", headers=headers, json=body)


def resuming(api: Api, stream_id: str, last_event_id: str | None = None, query: str = "") -> Any:
    headers = {} if last_event_id is None else {"last-event-id": last_event_id}
    return api.reading("GET", f"/api/fn-streams/{stream_id}{query}", headers=headers)


def pylon_stream(reading: Reading) -> str:
    head = reading.response.headers
    assert reading.response.status_code == 200
    assert head["content-type"].startswith("text/event-stream")
    assert head["access-control-expose-headers"] == "X-Pylon-Stream-Id"
    return head["x-pylon-stream-id"]


def seen(events: list[Event]) -> list[tuple[str, Any]]:
    return [(event.type, json.loads(event.data) if event.type else event.data) for event in events]


def refused(response: httpx2.Response, status: int, code: str) -> dict[str, Any]:
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/json"
    error: dict[str, Any] = response.json()["error"]
    assert error["code"] == code
    return error


# Agents ------------------------------------------------------------------------------------------------------------


async def test_an_agent_answers_with_its_result(stack: Stack) -> None:
    stack.standin.answers(says("hello"))
    api = stack.gateway.user()
    response = await call(api, "talker", {"input": "hi", "title": "Chat", "context": {"a": 1}, "__agentContext": {}})
    assert response.status_code == 200
    value = response.json()
    assert set(value) == {"runId", "text", "steps", "usage"}
    assert (value["text"], value["steps"], set(value["usage"])) == ("hello", 1, {"input_tokens", "output_tokens"})
    run = (await api.get(f"/v1/runs/{value['runId']}")).json()
    assert (run["title"], run["context"], run["agent"]) == ("Chat", None, "talker")


@pytest.mark.parametrize("headers", [STREAM, BOTH], ids=["stream", "both"])
async def test_an_agent_streams_text_and_calls(stack: Stack, headers: Mapping[str, str]) -> None:
    stack.standin.answers(says("Let me see. ").calls("look_up", {"order": "A-1"}), says("It is ", "open."))
    async with streaming(stack.gateway.user(), "clerk", {"input": "A-1?"}, headers) as reading:
        pylon_stream(reading)
        events = await reading.rest()
        assert reading.parser.comments == reading.parser.retries_ms == []
    (*said, result) = seen(events)
    assert "".join(data for name, data in said if not name) == "Let me see. It is open."
    assert [data for name, data in said if name] == [{"name": "look_up", "input": {"order": "A-1"}, "isError": False}]
    assert [name for name, _ in said if name] == ["tool"]
    assert (result[0], result[1]["text"], result[1]["steps"]) == ("result", "It is open.", 2)
    assert [event.seq for event in events] == sorted({event.seq for event in events})


async def test_a_call_continues_a_run(stack: Stack) -> None:
    stack.standin.answers(says("one"), says("two"))
    api = stack.gateway.user()
    first = (await call(api, "talker", {"input": "a"})).json()
    again = (await call(api, "talker", {"input": "b", "runId": first["runId"]})).json()
    assert (again["runId"], again["text"]) == (first["runId"], "two")
    refused(await call(api, "clerk", {"input": "c", "runId": first["runId"]}), 400, "AGENT_MISMATCH")
    refused(await call(stack.gateway.user(), "talker", {"input": "c", "runId": first["runId"]}), 400, "RUN_NOT_FOUND")


async def test_input_for_a_run_at_work_is_answered_at_once(stack: Stack, unique: str) -> None:
    stack.standin.answers(says("Well, ", hold(unique)), says("both."))
    api = stack.gateway.user()
    async with streaming(api, "talker", {"input": "one"}) as reading:
        await reading.until_text("Well, ")
        run_id = (await api.get("/v1/runs")).json()["items"][0]["id"]
        value = {"runId": run_id, "text": "", "steps": 0, "usage": NO_USAGE, "queued": True}
        assert (await call(api, "talker", {"input": "two", "runId": run_id})).json() == value
        async with streaming(api, "talker", {"input": "three", "runId": run_id}) as queued:
            assert pylon_stream(queued) == pylon_stream(reading)
            assert seen(await queued.rest()) == [("queued", {"runId": run_id, "queued": 2}), ("result", value)]
        stack.standin.gate(unique).release()
        assert seen(await reading.rest())[-1][1]["text"] == "both."


async def test_a_cancel_is_answered_at_once(stack: Stack, unique: str) -> None:
    """A13: no model is called, nothing streams."""
    stack.standin.answers(says("Half", hold(unique)))
    api = stack.gateway.user()
    async with streaming(api, "talker", {"input": "go"}) as reading:
        await reading.until_text("Half")
        run_id = (await api.get("/v1/runs")).json()["items"][0]["id"]
        body = {"cancel": True, "runId": run_id, "input": "ignored"}
        refused(await call(api, "clerk", body), 400, "AGENT_MISMATCH")
        refused(await call(stack.gateway.user(), "talker", body), 400, "RUN_NOT_FOUND")
        response = await call(api, "talker", body, STREAM)
        assert response.headers["content-type"] == "application/json"
        assert response.json() == {"runId": run_id, "text": "", "steps": 0, "usage": NO_USAGE, "cancelled": True}
        name, value = seen(await reading.rest())[-1]
        assert (name, value["text"], value["cancelled"]) == ("result", "Half", True)


@pytest.mark.parametrize(
    ("body", "code", "words"),
    [
        ({"cancel": True}, "AGENT_CANCEL_NEEDS_RUN", "runId"),
        ({"cancel": True, "runId": ""}, "AGENT_CANCEL_NEEDS_RUN", "runId"),
        ({}, "AGENT_INPUT_REQUIRED", "input is required"),
        ({"input": ""}, "AGENT_INPUT_REQUIRED", "input is required"),
        ({"input": None, "runId": None, "title": None}, "AGENT_INPUT_REQUIRED", "input is required"),
        ({"input": 5}, "INVALID_ARGS", "input"),
        ({"input": "x", "title": 5}, "INVALID_ARGS", "title"),
    ],
)
@pytest.mark.parametrize("headers", [{}, STREAM], ids=["json", "stream"])
async def test_what_an_agent_cannot_do_is_refused(
    stack: Stack, body: Any, code: str, words: str, headers: Mapping[str, str]
) -> None:
    api = stack.gateway.user()
    error = refused(await call(api, "talker", body, headers), 400, code)
    assert words in error["message"]
    assert set(error) == {"code", "message"}
    assert (await api.get("/v1/runs")).json()["items"] == []


async def test_a_body_that_cannot_be_read_is_an_empty_one(stack: Stack) -> None:
    for content in (b"{", b"[1]", b"null", b"", b'"x"'):
        response = await stack.gateway.user().call("POST", "/api/fn/talker", content=content)
        refused(response, 400, "AGENT_INPUT_REQUIRED")


async def test_what_no_store_holds_is_refused(stack: Stack) -> None:
    """It is not taken for an empty body: a function would act on what nobody said."""
    api = stack.gateway.user()
    for name, body in (("talker", {"input": "a\0"}), ("add", {"first": 2**64, "second": 1}), ("who", {"x": "\ud800"})):
        content = json.dumps(body)
        error = refused(await api.call("POST", f"/api/fn/{name}", content=content), 400, "INVALID_ARGS")
        assert error["message"].startswith(next(iter(body)))
    assert (await api.get("/v1/runs")).json()["items"] == []


async def test_a_run_that_fails_is_told_with_its_code(stack: Stack) -> None:
    stack.standin.answers(refuses(400), refuses(400))
    api = stack.gateway.user()
    assert refused(await call(api, "talker", {"input": "x"}), 400, "PROVIDER_ERROR")["message"]
    refused(await call(api, "talker", {"input": "x"}, BOTH), 400, "PROVIDER_ERROR")


# Functions ---------------------------------------------------------------------------------------------------------


async def test_a_function_answers_with_its_value(stack: Stack) -> None:
    """A24: it is called by the same path, and is no agent."""
    api = stack.gateway.user()
    for headers in ({}, STREAM, BOTH):
        response = await call(api, "add", {"first": 2, "second": 3}, headers)
        assert (response.status_code, response.json()) == (200, 5)
        assert response.headers["content-type"] == "application/json"


async def test_a_function_that_writes_streams(stack: Stack) -> None:
    body = {"words": ["one\n", "two"]}
    async with streaming(stack.gateway.user(), "recite", body, BOTH) as reading:
        pylon_stream(reading)
        events = seen(await reading.rest())
    assert "".join(data for name, data in events if not name) == "one\ntwo"
    assert events[-1] == ("result", {"count": 2})
    assert (await call(stack.gateway.user(), "recite", body)).json() == {"count": 2}


async def test_a_caller_who_hangs_up_stops_nothing(stack: Stack, unique: str) -> None:
    api = stack.gateway.user()
    calling = asyncio.create_task(call(api, "recite", {"words": ["a", "b"], "gate": unique}))
    await stack.gate_reached(unique)
    calling.cancel()
    await asyncio.gather(calling, return_exceptions=True)
    stack.open_gate(unique)
    run = (await api.get("/v1/runs")).json()["items"][0]
    assert (await api.settled(run["invocationId"]))["text"] == "ab"
    assert [it for it in stack.gateway.process.events() if it.get("code") == "NOT_READY"] == []


async def test_a_gateway_that_leaves_says_that_the_call_goes_on(stack: Stack, unique: str) -> None:
    async with stack.starting_gateway() as gateway:
        api = gateway.user("ann")
        calling = asyncio.create_task(call(api, "recite", {"words": ["a", "b"], "gate": unique}))
        await stack.gate_reached(unique)
        gateway.process.send(signal.SIGTERM)
        refused(await calling, 503, "NOT_READY")
    stack.open_gate(unique)
    still = stack.gateway.user("ann")
    run = (await still.get("/v1/runs")).json()["items"][0]
    assert (await still.settled(run["invocationId"]))["text"] == "ab"


async def test_an_event_of_a_functions_own_is_typed(stack: Stack) -> None:
    async with streaming(stack.gateway.user(), "announce", {"name": "tick"}) as reading:
        assert seen(await reading.rest()) == [("tick", {"at": 1}), ("result", None)]


@pytest.mark.parametrize("headers", [{}, BOTH], ids=["json", "both"])
async def test_a_functions_error_is_400(stack: Stack, headers: Mapping[str, str]) -> None:
    api = stack.gateway.user()
    error = refused(await call(api, "refuse", {"status": 404}, headers), 400, "NOT_TODAY")
    assert error == {"code": "NOT_TODAY", "message": "Come back tomorrow"}
    refused(await call(api, "add", {"first": 1}, headers), 400, "INVALID_ARGS")
    masked = refused(await call(api, "fail", {}, headers), 400, "HANDLER_ERROR")
    assert masked == {"code": "HANDLER_ERROR", "message": "Internal handler error"}
    async with streaming(api, "refuse", {"status": 404, "saying": "Hm"}) as reading:
        assert seen(await reading.rest()) == [("", "Hm"), ("error", error)]


# Gates -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("headers", [{}, STREAM], ids=["json", "stream"])
async def test_the_gates_are_the_same_for_streams(stack: Stack, headers: Mapping[str, str]) -> None:
    nobody, user = stack.gateway.anonymous(), stack.gateway.user()
    refused(await call(nobody, "talker", {"input": "x"}, headers), 401, "AUTH_REQUIRED")
    refused(await call(nobody, "add", {}, headers), 401, "AUTH_REQUIRED")
    for name in ("treasurer", "payroll"):
        refused(await call(nobody, name, {"input": "x"}, headers), 403, "FORBIDDEN")
        refused(await call(user, name, {"input": "x"}, headers), 403, "FORBIDDEN")
    refused(await call(stack.gateway.bearer("garbage"), "add", {}, headers), 401, "INVALID_JWT")
    refused(await call(stack.gateway.bearer("ry_" + "1" * 64), "add", {}, headers), 401, "INVALID_API_KEY")
    assert (await call(nobody, "open_hours", {}, headers)).json() == {"user": "", "tenant": "default"}
    assert (await user.get("/v1/runs")).json()["items"] == []


async def test_an_internal_function_does_not_exist(stack: Stack) -> None:
    for caller in (stack.gateway.anonymous(), stack.gateway.user()):
        hidden, missing = [refused(await call(caller, name), 404, "FN_NOT_FOUND") for name in ("reindex", "nothing")]
        assert hidden["message"].replace("reindex", "nothing") == missing["message"]
    assert (await call(stack.gateway.user(roles=("admin",)), "reindex")).json() == "reindexed"


async def test_too_many_calls_are_told_when_to_come_again(stack: Stack) -> None:
    async with stack.starting_gateway(RUNYARD_RATE_USER_PER_MIN="1") as gateway:
        api = gateway.user()
        assert (await call(api, "add", {"first": 1, "second": 1})).json() == 2
        response = await call(api, "add", {"first": 1, "second": 1})
        error = refused(response, 429, "RATE_LIMITED")
        assert error["retry_after_secs"] == int(response.headers["retry-after"]) > 0


async def test_a_service_goes_on_with_a_users_run(stack: Stack) -> None:
    stack.standin.answers(says("one"), says("two"))
    user, service = stack.gateway.user(tenant="acme"), stack.gateway.user(tenant="acme", roles=("service",))
    run_id = (await call(user, "talker", {"input": "a"})).json()["runId"]
    assert (await call(service, "talker", {"input": "b", "runId": run_id})).json()["text"] == "two"
    refused(await call(service, "talker", {"input": "b"}), 400, "AGENT_REQUIRES_USER")
    refused(await call(service, "talker", {"input": "b", "runId": "run_none"}), 400, "RUN_NOT_FOUND")


# Streams -----------------------------------------------------------------------------------------------------------


async def test_a_stream_is_resumed_behind_what_was_read(stack: Stack, unique: str) -> None:
    """Read a frame, hang up, come back with its number."""
    api = stack.gateway.user()
    body = {"words": ["alpha", "beta", "line1\nline2"], "gate": unique}
    async with streaming(api, "recite", body) as reading:
        stream_id = pylon_stream(reading)
        first = await reading.next()
        assert first is not None
        assert first.data == "alpha"
    stack.open_gate(unique)
    async with resuming(api, stream_id, first.id) as resumed:
        assert pylon_stream(resumed) == stream_id
        events = await resumed.rest()
        assert resumed.parser.retries_ms == [1000]
    assert seen(events) == [("", "beta"), ("", "line1\nline2"), ("result", {"count": 3})]
    async with resuming(api, stream_id, query=f"/?since={first.id}") as since:
        assert await since.rest() == events
    async with resuming(api, stream_id) as whole:
        assert seen(await whole.rest()) == [("", "alpha"), *seen(events)]
    async with resuming(api, stream_id, events[-1].id) as tip:
        assert pylon_stream(tip) == stream_id
        assert await tip.rest() == []
    async with resuming(api, stream_id, "999999") as beyond:
        assert (beyond.response.status_code, await beyond.rest()) == (200, [])
    stack.drop_frames(stream_id)
    async with resuming(api, stream_id) as from_rows:
        assert seen(await from_rows.rest()) == [("", "alphabetaline1\nline2"), ("result", {"count": 3})]


async def test_only_a_stream_that_is_resumed_has_a_prelude(stack: Stack, unique: str) -> None:
    api = stack.gateway.user()
    async with streaming(api, "recite", {"words": ["a", "b"], "gate": unique}) as reading:
        await reading.until_text("a")
        async with resuming(api, pylon_stream(reading)) as resumed:
            await resumed.until_text("a")
            stack.open_gate(unique)
            await resumed.until_text("ab")
            assert resumed.parser.retries_ms == [1000]
        await reading.rest()
        assert (reading.parser.retries_ms, reading.parser.comments) == ([], [])


async def test_a_stream_is_its_owners(stack: Stack) -> None:
    api = stack.gateway.user("ann", tenant="acme")
    async with streaming(api, "recite", {"words": ["a"]}) as reading:
        stream_id = pylon_stream(reading)
        await reading.rest()
    message = "Unknown or expired stream id"
    strangers = [stack.gateway.user(tenant="acme"), stack.gateway.user("ann"), stack.gateway.anonymous()]
    for stranger in strangers:
        for asked in (stream_id, "st_none"):
            response = await stranger.get(f"/api/fn-streams/{asked}", headers={"last-event-id": "1"})
            assert refused(response, 404, "STREAM_NOT_FOUND")["message"] == message
    async with resuming(stack.gateway.user(tenant="acme", roles=("admin",)), stream_id) as seen_by_admin:
        assert len(await seen_by_admin.rest()) == 2


async def test_a_public_functions_stream_asks_for_its_id_alone(stack: Stack, unique: str) -> None:
    async with streaming(stack.gateway.anonymous(), "open_hours", {"gate": unique}) as reading:
        stream_id = pylon_stream(reading)
        stack.open_gate(unique)
        events = await reading.rest()
    for reader in (stack.gateway.anonymous(), stack.gateway.user()):
        async with resuming(reader, stream_id) as resumed:
            assert await resumed.rest() == events


async def test_a_cursor_below_what_is_kept_is_gone(stack: Stack) -> None:
    async with stack.starting_worker(RUNYARD_STREAM_MAX_BYTES="2000", RUNYARD_QUEUES="elsewhere"):
        api = stack.gateway.user()
        async with streaming(api, "recite_elsewhere", {"words": ["x" * 400] * 9}) as reading:
            stream_id = pylon_stream(reading)
            await reading.rest()
        error = refused(await api.get(f"/api/fn-streams/{stream_id}"), 410, "STREAM_GONE")
        assert error["message"] == "cursor fell below the stream's retention window"
        assert error["oldestSeq"] > 1


async def test_an_answer_ends_right_after_the_last_frame_on_a_kept_connection(stack: Stack) -> None:
    api = stack.gateway.user()
    for _ in range(3):
        async with streaming(api, "recite", {"words": ["a"]}) as reading:
            assert (await reading.rest())[-1].type == "result"
