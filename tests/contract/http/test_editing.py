"""Runs changed by hand over HTTP: created without a call, described, appended to, cleared, erased."""

from typing import Any

import pytest
from tests.clients.answer import is_terminal
from tests.clients.api import Api
from tests.integration.fixtures import on_sqlite
from tests.integration.processes import eventually
from tests.integration.stack import Stack
from tests.standin import By, calls, hold, says

from runyard.db.tables import metadata

pytestmark = [pytest.mark.anyio, on_sqlite]

CALL = {"type": "tool_use", "id": "t1", "name": "search", "input": {}}
RESULT = {"type": "tool_result", "tool_use_id": "t1", "content": "three"}
HISTORY = [
    {"role": "user", "content": "hi"},
    {"role": "assistant", "content": [CALL]},
    {"role": "user", "content": [RESULT]},
    {"role": "assistant", "content": "Three of them."},
]


FOR_ADA = {"as": {"userId": "ada"}}


def service(stack: Stack) -> Api:
    """For the user `ada`: what it starts has `FOR_ADA` in its body."""
    return stack.gateway.user(roles=("service",))


async def created(api: Api, **body: Any) -> dict[str, Any]:
    response = await api.post("/v1/runs", {"agent": "talker", **body})
    assert response.status_code == 201, response.text
    run: dict[str, Any] = response.json()
    assert response.headers["location"] == f"/v1/runs/{run['id']}"
    return run


async def test_an_idle_run_is_there_and_waits_for_nothing(stack: Stack, unique: str) -> None:
    api = stack.gateway.user()
    run = await created(api, title="T", metadata={"a": 1}, sessionId=unique, messages=HISTORY[:1])
    assert (run["status"], run["streamId"], run["invocationId"], run["messageCount"]) == ("idle", None, None, 1)
    assert (run["title"], run["metadata"], run["sessionId"], run["agent"]) == ("T", {"a": 1}, unique, "talker")
    assert (await api.get(f"/v1/runs/{run['id']}")).json() == run
    assert (await api.get("/v1/runs")).json()["items"] == [run]
    assert (await api.get(f"/v1/runs/{run['id']}/invocations")).json()["items"] == []
    stream = await api.get(f"/v1/runs/{run['id']}/stream")
    assert (stream.status_code, stream.json()["error"]["code"]) == (404, "STREAM_NOT_FOUND")
    again = await api.post("/v1/runs", {"agent": "talker", "sessionId": unique})
    assert (again.status_code, again.json()) == (200, run)


async def test_the_model_reads_the_history_that_was_brought_along(stack: Stack) -> None:
    stack.standin.answers(says("Four now."))
    api = service(stack)
    run = await created(api, messages=HISTORY, **FOR_ADA)
    result = await api.run("talker", "and now?", runId=run["id"], **FOR_ADA)
    assert result["text"] == "Four now."
    (request,) = stack.standin.requests
    assert [message["role"] for message in request.messages] == ["user", "assistant"] * 2 + ["user"]
    rows = await api.messages(run["id"])
    assert [row["content"] for row in rows[:4]] == [message["content"] for message in HISTORY]
    assert [row["invocationId"] for row in rows] == [None] * 4 + [result["invocationId"]] * 2


async def test_a_call_may_bring_messages_in_place_of_input(stack: Stack) -> None:
    stack.standin.answers(says("Four now."))
    api = service(stack)
    body = {"messages": [*HISTORY, {"role": "user", "content": "and now?"}], **FOR_ADA}
    response = await api.post("/v1/agents/talker/runs", body, headers={"Prefer": "wait=30"})
    assert response.json()["text"] == "Four now."
    assert len(await api.messages(response.json()["runId"])) == 6


async def test_only_a_service_says_what_the_model_or_a_tool_said(stack: Stack) -> None:
    api = stack.gateway.user()
    run = await created(api)
    for path in (f"/v1/runs/{run['id']}/messages", f"/v1/runs/{run['id']}/input", "/v1/agents/talker/runs"):
        for messages in (HISTORY[:2], [{"role": "user", "content": [RESULT]}]):
            refused = await api.post(path, {"messages": messages})
            assert (refused.status_code, refused.json()["error"]["code"]) == (403, "FORBIDDEN"), path
    refused = await api.post("/v1/runs", {"agent": "talker", "messages": HISTORY})
    assert refused.json()["error"]["code"] == "FORBIDDEN"
    assert await api.messages(run["id"]) == []
    assert len((await api.get("/v1/runs")).json()["items"]) == 1


@pytest.mark.parametrize(
    ("body", "names"),
    [
        ({"messages": HISTORY[:2]}, "t1"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "system", "content": "x"}]}, "messages"),
        ({"messages": [{"role": "user"}]}, "messages"),
        ({"messages": [{"role": "user", "content": "x", "name": "y"}]}, "messages"),
        ({"messages": [{"role": "user", "content": [{"type": "text", "text": " "}]}]}, "messages[0].content[0].text"),
        ({}, "messages"),
    ],
)
async def test_messages_that_no_model_takes_are_named(stack: Stack, body: dict[str, Any], names: str) -> None:
    api = service(stack)
    run = await created(api, **FOR_ADA)
    refused = await api.post(f"/v1/runs/{run['id']}/messages", body)
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "INVALID_ARGS")
    assert names in refused.json()["error"]["message"]
    assert await api.messages(run["id"]) == []


@pytest.mark.parametrize("body", [{"input": "x", "messages": HISTORY[:1]}, {"messages": HISTORY}])
async def test_a_call_says_one_thing_and_the_user_has_the_last_word(stack: Stack, body: dict[str, Any]) -> None:
    refused = await service(stack).post("/v1/agents/talker/runs", body | FOR_ADA)
    assert (refused.status_code, refused.json()["error"]["fields"][-1]) == (400, "messages")


async def test_appended_messages_are_answered_as_they_are_stored(stack: Stack) -> None:
    api = service(stack)
    run = await created(api, **FOR_ADA)
    response = await api.post(f"/v1/runs/{run['id']}/messages", {"messages": HISTORY})
    assert response.status_code == 201
    assert response.json()["items"] == await api.messages(run["id"])


async def test_title_and_metadata_are_changed_at_any_time(stack: Stack, unique: str) -> None:
    stack.standin.answers(says(hold(unique), "x"))
    api = stack.gateway.user()
    started = await api.start("talker", title="One", metadata={"a": 1})
    await stack.standin.gate(unique).reached()
    path = f"/v1/runs/{started['runId']}"
    changed = await api.call("PATCH", path, json={"title": "Two"})
    assert (changed.status_code, changed.json()["title"], changed.json()["metadata"]) == (200, "Two", {"a": 1})
    changed = await api.call("PATCH", path, json={"title": None, "metadata": {}})
    assert (changed.json()["title"], changed.json()["metadata"]) == (None, {})
    for body in ({"status": "idle"}, {"title": "x" * 513}, {"metadata": []}, {"title": 7}):
        refused = await api.call("PATCH", path, json=body)
        assert (refused.status_code, refused.json()["error"]["code"]) == (400, "INVALID_ARGS")
    stack.standin.gate(unique).release()
    await api.settled(started["invocationId"])


async def test_a_cleared_run_begins_anew(stack: Stack, unique: str) -> None:
    stack.standin.answers(says("one"), says("two"))
    api = stack.gateway.user()
    first = await api.run("talker", "first", sessionId=unique)
    path = f"/v1/runs/{first['runId']}"
    assert (await api.call("DELETE", f"{path}/messages")).status_code == 204
    assert await api.messages(first["runId"]) == []
    assert (await api.get(f"/v1/invocations/{first['invocationId']}")).status_code == 404
    assert (await api.get(f"/v1/streams/{first['streamId']}")).json()["error"]["code"] == "STREAM_NOT_FOUND"
    second = await api.run("talker", "second", sessionId=unique)
    assert second["runId"] == first["runId"]
    request = stack.standin.requests[-1]
    assert [message["content"] for message in request.messages] == ["second"]


async def test_calls_behind_a_clear_have_keys_of_their_own(stack: Stack, unique: str) -> None:
    """Whoever they are passed on to would take a new payment for the one before, and not make it."""
    stack.open_gate(unique)
    call = calls("wait_keyed", {"gate": unique})
    stack.standin.answers(call, says("one"), call, says("two"))
    api = stack.gateway.user()
    run_id = (await api.run("mortal", "first"))["runId"]
    assert (await api.call("DELETE", f"/v1/runs/{run_id}/messages")).status_code == 204
    await api.run("mortal", "second", runId=run_id)
    keys = [effect.split()[-1] for effect in stack.effects(run_id)]
    assert len(keys) == len(set(keys)) == 2


async def test_an_erased_run_is_as_unknown_as_none(stack: Stack) -> None:
    stack.standin.answers(says("one"))
    api = stack.gateway.user()
    run = await api.run("talker")
    path = f"/v1/runs/{run['runId']}"
    assert (await api.call("DELETE", path)).status_code == 204
    for gone in (path, f"{path}/messages", f"{path}/stream", f"/v1/invocations/{run['invocationId']}"):
        assert (await api.get(gone)).json()["error"]["code"] == "RUN_NOT_FOUND", gone
    assert (await api.get(f"/v1/streams/{run['streamId']}")).json()["error"]["code"] == "STREAM_NOT_FOUND"
    assert (await api.call("DELETE", path)).status_code == 404
    assert (await api.get("/v1/runs")).json()["items"] == []


@pytest.mark.parametrize("status", ["queued", "running", "completed"])
async def test_nothing_of_an_erased_run_is_left(stack: Stack, unique: str, status: str) -> None:
    """Not a word of it in any table, nor its stream in Redis: only its id, for the feed."""
    end = [hold(unique)] if status == "running" else []
    if status != "queued":
        stack.standin.answers(calls("charge", {"order": unique}), says(f"about {unique}", *end), by=By.TURN)
    api = stack.gateway.user()
    path = f"/v1/agents/{'unserved' if status == 'queued' else 'clerk'}/runs"
    body, headers = {"input": unique, "title": unique}, {"Idempotency-Key": unique}
    started = (await api.post(path, body, headers=headers)).json()
    if status == "running":
        await stack.standin.gate(unique).reached()
    elif status == "completed":
        await api.settled(started["invocationId"])
    assert {"agent_runs", "agent_inputs", "idempotency_keys"} <= left_in_tables(stack, unique, started["runId"])
    assert (await api.call("DELETE", f"/v1/runs/{started['runId']}?force")).status_code == 204
    assert left_in_tables(stack, unique, started["streamId"], started["invocationId"]) == set()
    assert left_in_tables(stack, started["runId"]) == {"agent_deletions"}
    await eventually(lambda: not left_in_redis(stack, started["streamId"]), "end of its stream in Redis")


def left_in_tables(stack: Stack, *words: str) -> set[str]:
    return {
        table.name
        for table in metadata.sorted_tables
        for row in stack.execute(f"SELECT * FROM {table.name}")
        if any(word in repr(row) for word in words)
    }


def left_in_redis(stack: Stack, stream_id: str) -> list[bytes]:
    """Keys that are its own, or that name it."""
    keys = [key for key in stack.redis.scan_iter(f"{stack.backing.prefix}:*") if stream_id.encode() in key]
    finished = f"{stack.backing.prefix}:streams:finished"
    return keys + [stream for stream in stack.redis.zrange(finished, 0, -1) if stream == stream_id.encode()]


async def test_a_run_at_work_is_erased_by_force_only(stack: Stack, unique: str) -> None:
    stack.standin.answers(says("some ", hold(unique), "more"))
    api = stack.gateway.user()
    async with api.streaming("talker") as reading:
        await reading.until_text("some ")
        path = f"/v1/runs/{reading.response.headers['x-run-id']}"
        for method, where in (("DELETE", path), ("DELETE", f"{path}/messages"), ("POST", f"{path}/messages")):
            refused = await api.call(method, where, json={"messages": HISTORY[:1]} if method == "POST" else None)
            assert (refused.status_code, refused.json()["error"]["code"]) == (409, "RUN_BUSY"), where
        assert (await api.call("DELETE", f"{path}?force")).status_code == 204
        assert is_terminal((await reading.rest())[-1]), "its reader is told the end"
    assert (await api.get(path)).status_code == 404


async def test_a_queued_run_is_erased_by_force(stack: Stack) -> None:
    api = stack.gateway.user()
    started = await api.start("unserved")
    assert (await api.call("DELETE", f"/v1/runs/{started['runId']}?force=true")).status_code == 204
    assert (await api.get(f"/v1/runs/{started['runId']}")).status_code == 404


async def test_a_strangers_run_cannot_be_changed(stack: Stack) -> None:
    stack.standin.answers(says("mine"))
    api = stack.gateway.user()
    run = await api.run("talker", title="T")
    path = f"/v1/runs/{run['runId']}"
    for stranger in (stack.gateway.user(), stack.gateway.user(tenant="other")):
        for method, where, body in (
            ("PATCH", path, {"title": "x"}),
            ("DELETE", path, None),
            ("DELETE", f"{path}?force", None),
            ("DELETE", f"{path}/messages", None),
            ("POST", f"{path}/messages", {"messages": HISTORY[:1]}),
        ):
            refused = await stranger.call(method, where, json=body)
            assert (refused.status_code, refused.json()["error"]["code"]) == (404, "RUN_NOT_FOUND"), (method, where)
    assert (await api.get(path)).json()["title"] == "T"
    assert len(await api.messages(run["runId"])) == 2
