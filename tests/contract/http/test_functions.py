"""`POST /v1/functions/{name}`: who may call one, and how a call is answered."""

import json
from collections.abc import Mapping
from typing import Any

import httpx2
import pytest
from tests.clients.api import STREAM, Api, replay
from tests.integration.fixtures import on_sqlite
from tests.integration.stack import Stack

pytestmark = [pytest.mark.anyio, on_sqlite]

WAIT = {"Prefer": "wait=30"}


async def call(
    api: Api, name: str, headers: Mapping[str, str] = WAIT, /, *, more: Mapping[str, Any] | None = None, **given: Any
) -> httpx2.Response:
    return await api.post(f"/v1/functions/{name}", {"input": given, **(more or {})}, headers=headers)


async def output(api: Api, name: str, *, more: Mapping[str, Any] | None = None, **given: Any) -> Any:
    response = await call(api, name, more=more, **given)
    assert response.status_code == 200, response.text
    return response.json()["output"]


def refused(response: httpx2.Response, status: int, code: str) -> dict[str, Any]:
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/json"
    error: dict[str, Any] = response.json()["error"]
    assert error["code"] == code
    assert error["requestId"] == response.headers["x-request-id"]
    return error


# What is answered --------------------------------------------------------------------------------------------------


async def test_a_call_that_prefers_to_wait_gets_the_result(stack: Stack) -> None:
    response = await call(stack.gateway.user(), "add", more={"title": "Sum", "metadata": {"x": 1}}, first=2, second=3)
    result = response.json()
    assert (response.status_code, result["status"], result["output"], result["text"]) == (200, "completed", 5, "")
    assert response.headers["location"] == f"/v1/invocations/{result['invocationId']}"
    assert response.headers["x-stream-id"] == result["streamId"]
    assert response.headers["x-run-id"] == result["runId"]


async def test_a_call_is_a_run_of_the_callers(stack: Stack) -> None:
    api = stack.gateway.user("errand-boy")
    accepted = await call(api, "add", {}, more={"title": "Sum", "metadata": {"x": 1}}, first=2, second=3)
    assert accepted.status_code == 202
    body = accepted.json()
    assert set(body) == {"runId", "sessionId", "invocationId", "streamId", "status"}
    assert (await api.settled(body["invocationId"]))["output"] == 5
    run = (await api.get(f"/v1/runs/{body['runId']}")).json()
    assert (run["agent"], run["userId"], run["title"], run["metadata"]) == ("fn:add", "errand-boy", "Sum", {"x": 1})
    listed = (await api.get("/v1/runs", agent="fn:add")).json()["items"]
    assert [item["id"] for item in listed] == [run["id"]]
    (record, *_) = (await api.get(accepted.headers["location"])).json()["stepRecords"]
    assert [item["name"] for item in record["calls"]] == ["add"]


async def test_a_caller_who_takes_a_stream_gets_json_where_nothing_streams(stack: Stack) -> None:
    api = stack.gateway.user()
    response = await call(api, "add", STREAM, first=2, second=3)
    assert response.headers["content-type"] == "application/json"
    assert (response.status_code, response.json()["output"]) == (200, 5)
    assert response.headers["x-stream-id"] == response.json()["streamId"]
    assert (await replay(api, response.headers["x-stream-id"]))[-1].type == "result"


@pytest.mark.parametrize(("name", "given"), [("recite", {"words": ["one", "two"]}), ("announce", {"name": "ding"})])
async def test_a_caller_who_takes_a_stream_gets_it_where_one_streams(stack: Stack, name: str, given: Any) -> None:
    api = stack.gateway.user()
    async with api.reading("POST", f"/v1/functions/{name}", headers=STREAM, json={"input": given}) as reading:
        assert reading.response.headers["content-type"] == "text/event-stream"
        events = await reading.rest()
        assert [event.seq for event in events] == list(range(1, len(events) + 1))
        assert events[-1].type == "result"
        assert reading.text == json.loads(events[-1].data)["text"] == "".join(given.get("words", []))
        assert events == await replay(api, reading.stream_id)


async def test_a_stream_begins_with_the_first_words(stack: Stack, unique: str) -> None:
    api = stack.gateway.user()
    body = {"input": {"words": ["ready, ", "go"], "gate": unique}}
    async with api.reading("POST", "/v1/functions/recite", headers=STREAM, json=body) as reading:
        await reading.until_text("ready, ")
        stack.open_gate(unique)
        await reading.rest()
        assert reading.text == "ready, go"


@pytest.mark.parametrize("headers", [WAIT, STREAM], ids=["waits", "streams"])
@pytest.mark.parametrize("status", [404, 422, 503])
async def test_what_a_function_refuses_is_the_answer(stack: Stack, headers: Mapping[str, str], status: int) -> None:
    response = await call(stack.gateway.user(), "refuse", headers, status=status)
    error = refused(response, status, "NOT_TODAY")
    assert (error["message"], error["opensAt"], error["retryable"]) == ("Come back tomorrow", "09:00", False)
    assert error["runId"] == response.headers["x-run-id"]


async def test_a_refusal_behind_words_ends_their_stream(stack: Stack) -> None:
    api = stack.gateway.user()
    body = {"input": {"status": 404, "saying": "Let me see"}}
    async with api.reading("POST", "/v1/functions/refuse", headers=STREAM, json=body) as reading:
        events = await reading.rest()
        error = json.loads(events[-1].data)["error"]
        assert (events[-1].type, error["code"], error["opensAt"], reading.text) == ("error", "NOT_TODAY", "09:00", "")


async def test_a_failure_is_told_like_a_tools(stack: Stack) -> None:
    api = stack.gateway.user()
    error = refused(await call(api, "fail", STREAM), 500, "FUNCTION_FAILED")
    assert error["message"] == "KeyError: 'lost'"
    run = (await api.get(f"/v1/runs/{error['runId']}")).json()
    assert run["error"] == {"code": "FUNCTION_FAILED", "message": "KeyError: 'lost'"}
    told = (await api.get(f"/v1/invocations/{error['invocationId']}")).json()["error"]
    assert told == {"code": "FUNCTION_FAILED", "message": "KeyError: 'lost'", "retryable": False}


@pytest.mark.parametrize(
    ("given", "fields", "message"),
    [
        ({"first": 1}, ["second"], 'Missing required field "second" (type: integer)'),
        ({"first": 1, "second": "2"}, ["second"], "second: expected integer, got string"),
        ({"first": 1, "second": 2, "third": 3}, ["third"], 'Unknown field "third"'),
        ({"first": 1, "second": 2.5}, ["second"], "second: expected integer, got number"),
    ],
)
async def test_arguments_that_cannot_be_are_refused_before_anything_is_stored(
    stack: Stack, given: Any, fields: list[str], message: str
) -> None:
    api = stack.gateway.user()
    error = refused(await call(api, "add", **given), 400, "INVALID_ARGS")
    assert (error["fields"], error["message"]) == (fields, message)
    assert (await api.get("/v1/runs")).json()["items"] == []


async def test_arguments_that_only_their_function_can_judge_are_refused_by_it(stack: Stack) -> None:
    error = refused(await call(stack.gateway.user(), "recite", words=["one", 2]), 400, "INVALID_ARGS")
    assert (error["fields"], error["message"]) == (["words.1"], "words.1: expected string, got number")


async def test_a_call_under_a_key_is_made_once(stack: Stack) -> None:
    api, headers = stack.gateway.user(), WAIT | {"Idempotency-Key": "errand"}
    first, again = [await call(api, "add", headers, first=1, second=1) for _ in range(2)]
    assert first.json() == again.json()
    assert again.headers["idempotent-replayed"] == "true"
    refused(await call(api, "add", headers, first=1, second=2), 409, "IDEMPOTENCY_MISMATCH")


@pytest.mark.parametrize(
    ("name", "given", "status"),
    [("add", {"first": 1, "second": 1}, 200), ("refuse", {"status": 404}, 404), ("fail", {}, 500)],
)
async def test_a_call_that_did_not_stream_does_not_when_it_is_sent_again(
    stack: Stack, unique: str, name: str, given: Any, status: int
) -> None:
    """Whether its frames are kept or gone. Who has a frame of it reads on."""
    api, headers = stack.gateway.user(), STREAM | {"Idempotency-Key": unique}
    first = await call(api, name, headers, **given)
    assert (first.status_code, first.headers["content-type"]) == (status, "application/json")
    stream_id = first.headers["x-stream-id"]
    await replay(api, stream_id)  # it has been closed
    for drop_frames in (None, stack.drop_frames):
        if drop_frames is not None:
            drop_frames(stream_id)
        again = await call(api, name, headers, **given)
        assert (again.status_code, without_id(again.json())) == (status, without_id(first.json()))
        assert (again.headers["idempotent-replayed"], again.headers["x-stream-id"]) == ("true", stream_id)
    reading_on = {**headers, "Last-Event-ID": "1"}
    body = {"input": given}
    async with api.reading("POST", f"/v1/functions/{name}", headers=reading_on, json=body) as reading:
        assert (await reading.rest())[-1].type == ("result" if status == 200 else "error")


def without_id(body: dict[str, Any]) -> dict[str, Any]:
    return {**body, "error": {**body["error"], "requestId": None}} if body.get("error") else body


@pytest.mark.parametrize(
    ("name", "given"),
    [("recite", {"words": ["a", "b"]}), ("announce", {"name": "ding"}), ("refuse", {"status": 404, "saying": "Hm"})],
)
async def test_a_call_that_streamed_does_when_it_is_sent_again(
    stack: Stack, unique: str, name: str, given: Any
) -> None:
    api, headers, body = stack.gateway.user(), STREAM | {"Idempotency-Key": unique}, {"input": given}

    def calling() -> Any:
        return api.reading("POST", f"/v1/functions/{name}", headers=headers, json=body)

    async with calling() as first:
        events = await first.rest()
    async with calling() as again:
        assert again.response.headers["idempotent-replayed"] == "true"
        assert await again.rest() == events
    if first.text:
        stack.drop_frames(first.stream_id)
        async with calling() as from_rows:
            await from_rows.rest()
            assert from_rows.text == first.text


async def test_a_call_that_is_sent_again_while_it_runs_waits_for_its_first_words(stack: Stack, unique: str) -> None:
    api, headers = stack.gateway.user(), STREAM | {"Idempotency-Key": unique}
    body = {"input": {"words": ["ready, ", "go"], "gate": unique}}

    def calling() -> Any:
        return api.reading("POST", "/v1/functions/recite", headers=headers, json=body)

    async with calling() as first, calling() as again:
        await first.until_text("ready, ")
        await again.until_text("ready, ")
        stack.open_gate(unique)
        assert await again.rest() == await first.rest()


async def test_a_call_that_is_sent_again_when_its_first_frames_are_gone_streams_its_text(
    stack: Stack, unique: str
) -> None:
    api, headers = stack.gateway.user(), STREAM | {"Idempotency-Key": unique}
    body = {"input": {"words": ["one ", "two ", "three"]}}
    for _ in range(2):
        async with api.reading("POST", "/v1/functions/recite", headers=headers, json=body) as reading:
            await reading.rest()
            assert reading.text == "one two three"
        stack.trim_frames(reading.stream_id, first=reading.events[-2].seq)


async def test_a_call_can_be_cancelled(stack: Stack, unique: str) -> None:
    api = stack.gateway.user()
    accepted = (await call(api, "recite", {}, words=["one", "two"], gate=unique)).json()
    await stack.gate_reached(unique)
    cancelling = await api.post(f"/v1/runs/{accepted['runId']}/cancel")
    assert cancelling.status_code == 202
    stack.open_gate(unique)
    result = await api.settled(accepted["invocationId"])
    assert (result["status"], result["text"]) == ("cancelled", "onetwo")


async def test_a_functions_run_takes_nothing_more(stack: Stack) -> None:
    api = stack.gateway.user()
    run_id = (await call(api, "add", first=1, second=1)).json()["runId"]
    refused(await api.post(f"/v1/runs/{run_id}/input", {"input": "and 2?"}), 400, "INVALID_ARGS")
    refused(await api.post("/v1/agents/talker/runs", {"input": "x", "runId": run_id}), 409, "AGENT_MISMATCH")


@pytest.mark.parametrize("name", ["fn:add", "add"])
async def test_a_function_is_no_agent(stack: Stack, name: str) -> None:
    api = stack.gateway.user()
    refused(await api.post(f"/v1/agents/{name}/runs", {"input": "x"}), 404, "AGENT_NOT_FOUND")
    refused(await api.post("/v1/runs", {"agent": name}), 404, "AGENT_NOT_FOUND")
    refused(await api.get(f"/v1/agents/{name}"), 404, "AGENT_NOT_FOUND")
    agents = (await api.get("/v1/agents")).json()["items"]
    assert name not in [agent["name"] for agent in agents]
    refused(await call(api, "fn:add"), 404, "FUNCTION_NOT_FOUND")
    refused(await call(api, "talker"), 404, "FUNCTION_NOT_FOUND")


# Who may call ------------------------------------------------------------------------------------------------------


async def test_a_service_calls_for_a_user(stack: Stack) -> None:
    service = stack.gateway.user(tenant="acme", roles=("service",))
    acting = {"as": {"userId": "ann"}, "context": {"plan": "gold"}}
    seen = await output(service, "who", more=acting)
    assert seen == {"user": "ann", "tenant": "acme", "roles": [], "context": {"plan": "gold"}}
    refused(await call(service, "who"), 403, "AGENT_REQUIRES_USER")
    user = stack.gateway.user("ann", tenant="acme")
    assert (await output(user, "who", more={"context": {"plan": "gold"}}))["context"] is None
    refused(await call(user, "who", more=acting), 403, "AGENT_RUN_FORBIDDEN")


@pytest.mark.parametrize("name", ["reindex", "payroll"])
async def test_what_is_not_for_users_does_not_exist_for_them(stack: Stack, name: str) -> None:
    user = stack.gateway.user()
    hidden, missing = [refused(await call(user, it), 404, "FUNCTION_NOT_FOUND") for it in (name, "nothing")]
    assert hidden["message"].replace(name, "nothing") == missing["message"]
    assert set(hidden) == set(missing)
    assert await output(stack.gateway.user(roles=("admin",)), name) in {"reindexed", "paid"}
    service = stack.gateway.user(roles=("service",))
    assert await output(service, name, more={"as": {"userId": "ann", "admin": True}}) in {"reindexed", "paid"}


async def test_a_service_calls_an_internal_function_for_anybody_and_an_admins_for_admins(stack: Stack) -> None:
    service, ann = stack.gateway.user(roles=("service",)), {"as": {"userId": "ann"}}
    assert await output(service, "reindex", more=ann) == "reindexed"
    refused(await call(service, "payroll", more=ann), 403, "FORBIDDEN")


async def test_who_shows_nothing_is_let_in_to_public_functions_only(stack: Stack) -> None:
    nobody = stack.gateway.anonymous()
    assert await output(nobody, "open_hours") == {"user": "", "tenant": "default"}
    for name in ("add", "reindex", "payroll", "nothing"):
        error = refused(await call(nobody, name, first=1, second=2), 401, "UNAUTHENTICATED")
        assert (error["reason"], "function" in error) == ("missing", False)
    refused(await call(stack.gateway.bearer("garbage"), "open_hours"), 401, "UNAUTHENTICATED")


async def test_who_shows_nothing_is_not_told_what_an_exception_says(stack: Stack) -> None:
    nobody, ann = stack.gateway.anonymous(), stack.gateway.user()
    for headers in (WAIT, STREAM):
        error = refused(await call(nobody, "open_hours", headers, day="doomsday"), 500, "FUNCTION_FAILED")
        assert error["message"] == "the function failed (KeyError)"
    assert (
        refused(await call(ann, "open_hours", day="doomsday"), 500, "FUNCTION_FAILED")["message"]
        == "KeyError: 'doomsday'"
    )


async def test_a_public_functions_stream_is_guarded_by_its_id_alone(stack: Stack, unique: str) -> None:
    nobody = stack.gateway.anonymous()
    accepted = await call(nobody, "open_hours", {}, gate=unique)
    stream_id = accepted.json()["streamId"]
    assert accepted.headers["location"] == f"/v1/streams/{stream_id}"
    stack.open_gate(unique)
    events = await replay(nobody, stream_id)
    assert json.loads(events[-1].data)["text"] == "9 to 5"
    assert await replay(stack.gateway.user(tenant="initech"), stream_id) == events
    for path in (f"/v1/runs/{accepted.json()['runId']}", f"/v1/invocations/{accepted.json()['invocationId']}"):
        refused(await nobody.get(path), 401, "UNAUTHENTICATED")
        refused(await stack.gateway.user().get(path), 404, "RUN_NOT_FOUND")
    refused(await nobody.get("/v1/streams/st_none"), 401, "UNAUTHENTICATED")
    theirs = (await call(stack.gateway.user(), "add", {}, first=1, second=1)).json()["streamId"]
    refused(await nobody.get(f"/v1/streams/{theirs}"), 401, "UNAUTHENTICATED")


async def test_who_shows_a_token_owns_the_call_of_a_public_function(stack: Stack) -> None:
    ann = stack.gateway.user("ann", tenant="acme")
    response = await call(ann, "open_hours")
    assert response.json()["output"] == {"user": "ann", "tenant": "acme"}
    stream_id = response.json()["streamId"]
    refused(await stack.gateway.anonymous().get(f"/v1/streams/{stream_id}"), 401, "UNAUTHENTICATED")
    refused(await stack.gateway.user().get(f"/v1/streams/{stream_id}"), 404, "STREAM_NOT_FOUND")


async def test_who_shows_nothing_is_counted_by_address(stack: Stack) -> None:
    async with stack.starting_gateway(RUNYARD_RATE_USER_PER_MIN="2") as gateway:
        answers = [await call(gateway.anonymous(), "open_hours") for _ in range(3)]
        assert [response.status_code for response in answers[:2]] == [200, 200]
        refused(answers[2], 429, "RATE_LIMITED")
        elsewhere = await call(gateway.anonymous(), "open_hours", WAIT | {"X-Forwarded-For": "203.0.113.7"})
        assert elsewhere.status_code == 200, "a proxy on this machine says that it comes from there"
