"""What runs, messages, invocations and agents look like over HTTP."""

import re
from datetime import datetime
from typing import Any

import pytest
from tests.integration.fixtures import on_sqlite
from tests.integration.stack import MODEL, Stack
from tests.standin import calls, fail, hold, says, thinks

from runyard.text import NESTING_MAX

pytestmark = pytest.mark.anyio

RUN_FIELDS = {
    "id",
    "tenantId",
    "userId",
    "agent",
    "agentVersion",
    "sessionId",
    "title",
    "metadata",
    "status",
    "priority",
    "position",
    "waitReason",
    "error",
    "streamId",
    "invocationId",
    "pendingInput",
    "cancelRequested",
    "context",
    "steps",
    "messageCount",
    "pendingCalls",
    "parentRunId",
    "usage",
    "cost",
    "createdAt",
    "lastActivityAt",
}

MESSAGE_FIELDS = {"runId", "seq", "role", "content", "createdAt", "invocationId", "model", "usage", "stopReason"}
NO_USAGE = {
    "input_tokens": 0,
    "output_tokens": 0,
    "cache_creation_input_tokens": 0,
    "cache_read_input_tokens": 0,
}
ISO = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


async def test_a_run_from_its_queue_to_its_end(stack: Stack, unique: str) -> None:
    stack.standin.answers(
        thinks("hm").says("Let me see.").calls("charge", {"order": "1"}).calls("hold", {"gate": unique}),
        says("Done."),
    )
    api = stack.gateway.user()
    started = await api.start("clerk", "pay", sessionId="s", title="T", metadata={"k": 1})
    path = f"/v1/runs/{started['runId']}"
    await stack.gate_reached(unique)
    running = (await api.get(path)).json()
    assert running["status"] == "running"
    assert running["pendingInput"] == []
    stack.open_gate(unique)
    result = await api.settled(started["invocationId"])
    run = (await api.get(path)).json()
    assert set(run) == RUN_FIELDS
    assert run["id"] == started["runId"]
    assert (run["agent"], run["sessionId"], run["title"], run["metadata"]) == ("clerk", "s", "T", {"k": 1})
    assert (run["status"], run["error"], run["steps"], run["messageCount"]) == ("completed", None, 2, 4)
    assert (run["streamId"], run["invocationId"]) == (started["streamId"], started["invocationId"])
    assert (run["usage"], run["cost"]) == (result["usage"], result["cost"])
    assert moment(run["createdAt"]) <= moment(run["lastActivityAt"])
    agent = (await api.get("/v1/agents/clerk")).json()
    assert run["agentVersion"] == agent["version"]
    (listed,) = (await api.get("/v1/runs")).json()["items"]
    assert listed == run


async def test_a_queued_run_shows_what_waits(stack: Stack) -> None:
    api = stack.gateway.user()
    blocks = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    started = await api.start("unserved", blocks)
    run = (await api.get(f"/v1/runs/{started['runId']}")).json()
    assert (run["status"], run["agentVersion"], run["messageCount"], run["steps"]) == ("queued", None, 0, 0)
    assert (run["usage"], run["cost"]) == (NO_USAGE, {"amount": 0.0, "currency": "USD", "unpriced": False})
    (waiting,) = run["pendingInput"]
    assert set(waiting) == {"id", "text", "at"}
    assert waiting["text"] == "one\n\ntwo"
    assert moment(waiting["at"])
    assert (await api.messages(started["runId"])) == []
    invocation = (await api.get(f"/v1/invocations/{started['invocationId']}")).json()
    assert (invocation["status"], invocation["startedAt"], invocation["settledAt"]) == ("queued", None, None)
    assert invocation["stepRecords"] == []


async def test_messages_hold_what_was_said_and_called(stack: Stack) -> None:
    stack.standin.answers(
        thinks("hm", signature="sig")
        .says("Let me see.")
        .calls("charge", {"order": "1"})
        .calls("explode", {"text": "x"}),
        says("Done."),
    )
    api = stack.gateway.user()
    run = await api.run("clerk", "pay")
    rows = await api.messages(run["runId"])
    assert all(set(row) == MESSAGE_FIELDS for row in rows)
    user, asking, results, answer = rows
    assert [row["seq"] for row in rows] == [1, 2, 3, 4]
    assert {row["invocationId"] for row in rows} == {run["invocationId"]}
    assert (user["role"], user["content"]) == ("user", "pay")
    assert all(user[name] is None for name in ("model", "usage", "stopReason"))
    assert [block["type"] for block in asking["content"]] == ["thinking", "text", "tool_use", "tool_use"]
    assert asking["content"][0] == {"type": "thinking", "thinking": "hm", "signature": "sig"}
    assert (asking["model"], asking["stopReason"]) == (MODEL, "tool_use")
    first, second = asking["content"][2:]
    assert [result["tool_use_id"] for result in results["content"]] == [first["id"], second["id"]]
    assert [result.get("is_error", False) for result in results["content"]] == [False, True]
    assert answer["content"] == [{"type": "text", "text": "Done."}]
    assert answer["stopReason"] == "end_turn"
    assert [moment(row["createdAt"]) for row in rows] == sorted(moment(row["createdAt"]) for row in rows)


async def test_an_invocation_tells_its_steps(stack: Stack) -> None:
    stack.standin.answers(
        calls("charge", {"order": "1"}).calls("explode", {"text": "x"}).costs(10, 20), says("Done.").costs(30, 5)
    )
    api = stack.gateway.user()
    run = await api.run("clerk", "pay")
    invocation = (await api.get(f"/v1/invocations/{run['invocationId']}")).json()
    assert run == {name: invocation[name] for name in run}
    asking, answering = invocation["stepRecords"]
    assert set(asking) >= {"model", "usage", "calls", "finishReason", "durationMs"}
    assert (asking["model"], asking["finishReason"]) == (MODEL, "tool_use")
    assert asking["usage"] == NO_USAGE | {"input_tokens": 10, "output_tokens": 20}
    assert [(call["name"], call["isError"], call["state"]) for call in asking["calls"]] == [
        ("charge", False, "finished"),
        ("explode", True, "finished"),
    ]
    assert all(isinstance(call["durationMs"], int) for call in asking["calls"])
    assert (answering["calls"], answering["finishReason"]) == ([], "end_turn")
    assert isinstance(answering["durationMs"], int)
    assert moment(invocation["createdAt"]) <= moment(invocation["startedAt"]) <= moment(invocation["settledAt"])


@on_sqlite
async def test_no_call_takes_less_than_no_time(stack: Stack) -> None:
    """Two clocks tell when a call began and ended, or one that was set back."""
    stack.standin.answers(calls("charge", {"order": "1"}), says("Done."))
    api = stack.gateway.user()
    run = await api.run("clerk", "pay")
    stack.execute("UPDATE agent_calls SET finished_at = started_at - 7 WHERE run_id = :run", run=run["runId"])
    invocation = (await api.get(f"/v1/invocations/{run['invocationId']}")).json()
    assert [call["durationMs"] for call in invocation["stepRecords"][0]["calls"]] == [0]


@on_sqlite
@pytest.mark.parametrize(("levels", "is_told"), [(NESTING_MAX, False), (NESTING_MAX + 1, True), (250, True)])
async def test_a_call_is_readable_however_deep_its_input_is(stack: Stack, levels: int, is_told: bool) -> None:
    deep = '{"order": ' + "[" * (levels - 1) + "]" * (levels - 1) + "}"
    stack.standin.answers(calls("charge", deltas=(deep,)), says("Done."))
    api = stack.gateway.user()
    run = await api.run("clerk", "pay")
    assert run["text"] == "Done."
    _, asking, results, _ = await api.messages(run["runId"])
    assert (asking["content"][0]["input"] == {}) is is_told
    assert ("too deep" in results["content"][0]["content"]) is is_told


async def test_a_failed_invocation_tells_its_error(stack: Stack) -> None:
    broken = says("lost").then(fail("invalid_request_error", "broken"))
    stack.standin.answers(says("kept ").calls("charge", {"order": "1"}), broken)
    api = stack.gateway.user()
    run = await api.run("clerk", "pay")
    assert (run["status"], run["finishReason"], run["text"]) == ("failed", "error", "kept ")
    assert run["error"]["code"] == "PROVIDER_ERROR"
    assert run["error"]["retryable"] is False
    stored = (await api.get(f"/v1/runs/{run['runId']}")).json()
    assert stored["status"] == "failed"
    assert stored["error"] == {"code": "PROVIDER_ERROR", "message": run["error"]["message"]}
    rows = await api.messages(run["runId"])
    assert [row["role"] for row in rows] == ["user", "assistant", "user"]


@on_sqlite
async def test_waiting_for_an_invocation(stack: Stack, unique: str) -> None:
    stack.standin.answers(says(hold(unique), "x"))
    api = stack.gateway.user()
    started = await api.start("talker")
    path = f"/v1/invocations/{started['invocationId']}"
    late = await api.get(path, headers={"Prefer": "wait=0"})
    assert late.status_code == 202
    stack.standin.gate(unique).release()
    settled = await api.get(path, headers={"Prefer": "wait=30"})
    assert settled.status_code == 200
    assert settled.json()["status"] == "completed"


@on_sqlite
async def test_agents_are_listed_with_their_manifests(stack: Stack) -> None:
    api = stack.gateway.user()
    page = (await api.get("/v1/agents")).json()
    assert page["nextCursor"] is None
    names = [agent["name"] for agent in page["items"]]
    assert names == sorted(names)
    assert {"clerk", "talker", "wired", "unserved"} <= set(names)
    clerk = (await api.get("/v1/agents/clerk")).json()
    assert clerk in page["items"]
    assert "system" not in clerk
    assert (clerk["auth"], clerk["queue"], clerk["model"], clerk["maxSteps"]) == ("user", "default", None, 64)
    assert (clerk["priority"], clerk["maxRunning"]) == ("interactive", None)
    tools = {tool["name"]: tool for tool in clerk["tools"]}
    assert tools["charge"]["inputSchema"]["required"] == ["order"]
    assert tools["charge"]["description"] == "Take money: it must not happen twice."
    assert (tools["charge"]["idempotent"], tools["look_up"]["idempotent"]) == (False, True)
    (version,) = clerk["versions"]
    assert version["version"] == clerk["version"]
    assert version["liveWorkers"] == clerk["liveWorkers"] >= 1
    assert moment(version["firstSeen"]) <= moment(version["lastSeen"])


@pytest.mark.parametrize("strange", ["%00", "%F0%9F", "%ED%A0%BD", "%25", "x" * 5000], ids=lambda strange: strange[:9])
async def test_ids_that_no_store_holds_are_unknown_ones(stack: Stack, strange: str) -> None:
    """On both databases: one of them takes no NUL."""
    api = stack.gateway.user()
    codes = {
        f"/v1/runs/{strange}": "RUN_NOT_FOUND",
        f"/v1/runs/{strange}/messages": "RUN_NOT_FOUND",
        f"/v1/runs/{strange}/invocations": "RUN_NOT_FOUND",
        f"/v1/runs/{strange}/stream": "RUN_NOT_FOUND",
        f"/v1/invocations/{strange}": "RUN_NOT_FOUND",
        f"/v1/streams/{strange}": "STREAM_NOT_FOUND",
        f"/v1/agents/{strange}": "AGENT_NOT_FOUND",
    }
    for path, code in codes.items():
        response = await api.get(path)
        assert (response.status_code, response.json()["error"]["code"]) == (404, code)
    response = await api.call("GET", f"/v1/runs?agent={strange}&sessionId={strange}")
    if strange in {"%25", "x" * 5000}:
        assert response.json() == {"items": [], "nextCursor": None}
    else:
        assert (response.status_code, response.json()["error"]["code"]) == (400, "INVALID_ARGS")
    response = await api.post("/v1/agents/talker/runs", {"input": "x", "runId": strange[:200]})
    assert (response.status_code, response.json()["error"]["code"]) == (404, "RUN_NOT_FOUND")


def moment(given: Any) -> datetime:
    assert ISO.fullmatch(given), given
    return datetime.fromisoformat(given)
