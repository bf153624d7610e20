"""`POST /v1/agents/{agent}/runs`: what starts a run, what continues one, and how the call is answered."""

import json
from typing import Any

import pytest
from tests.integration.fixtures import on_sqlite
from tests.integration.stack import ALLOWED_MODEL, MODEL, Stack
from tests.standin import By, hold, says

pytestmark = [pytest.mark.anyio, on_sqlite]

EVENT_STREAM = "text/event-stream"
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


async def test_a_call_is_accepted_and_says_where_to_look(stack: Stack) -> None:
    stack.standin.answers(says("hello"))
    api = stack.gateway.user()
    response = await api.post("/v1/agents/talker/runs", {"input": "hi"})
    assert response.status_code == 202
    body = response.json()
    assert set(body) == {"runId", "sessionId", "invocationId", "streamId", "status"}
    assert body["status"] == "queued"
    assert body["sessionId"] is None
    assert response.headers["location"] == f"/v1/invocations/{body['invocationId']}"
    assert response.headers["x-stream-id"] == body["streamId"]
    result = await api.settled(body["invocationId"])
    assert result["status"] == "completed"
    assert result["text"] == "hello"


async def test_a_call_that_prefers_to_wait_gets_the_result(stack: Stack) -> None:
    stack.standin.answers(says("hello"))
    api = stack.gateway.user()
    response = await api.post("/v1/agents/talker/runs", {"input": "hi"}, headers={"Prefer": "wait=30"})
    assert response.status_code == 200
    result = response.json()
    assert result["text"] == "hello"
    assert result["finishReason"] == "end_turn"
    assert result["model"] == MODEL
    assert result["steps"] == 1
    assert response.headers["location"] == f"/v1/invocations/{result['invocationId']}"


@pytest.mark.parametrize("seconds", ["2147483648", "9" * 5000, f"{'0' * 5000}30"])
async def test_a_wait_may_be_as_long_as_anybody_can_write(stack: Stack, seconds: str) -> None:
    """It ends with the invocation."""
    stack.standin.answers(says("Hello."))
    api = stack.gateway.user()
    response = await api.post("/v1/agents/talker/runs", {"input": "hi"}, headers={"Prefer": f"wait={seconds}"})
    assert (response.status_code, response.json()["text"]) == (200, "Hello.")


@pytest.mark.parametrize("preference", ["wait=1", "respond-async, wait=0", 'foo; wait="0"', "WAIT = 0"])
async def test_a_wait_that_is_over_is_answered_as_accepted(stack: Stack, unique: str, preference: str) -> None:
    stack.standin.answers(says(hold(unique), "late"))
    api = stack.gateway.user()
    response = await api.post("/v1/agents/talker/runs", {"input": "hi"}, headers={"Prefer": preference})
    assert response.status_code == 202
    assert response.json()["status"] in ("queued", "running")
    location = response.headers["location"]
    await stack.standin.gate(unique).reached()
    again = await api.get(location, headers={"Prefer": "wait=0"})
    assert again.status_code == 202
    assert again.json()["status"] == "running"
    at_once = await api.get(location)
    assert at_once.status_code == 200
    assert at_once.json()["status"] == "running"
    stack.standin.gate(unique).release()
    assert (await api.settled(response.json()["invocationId"]))["text"] == "late"


async def test_a_wait_that_is_over_tells_how_far_the_call_has_come(stack: Stack, unique: str) -> None:
    """Not the state in which it was accepted. A machine may be slow: longer and longer waits."""
    stack.standin.answers(says(hold(unique), "late"), by=By.TURN)
    api = stack.gateway.user()
    told = []
    for seconds in (1, 4, 16):
        response = await api.post("/v1/agents/talker/runs", {"input": "hi"}, headers={"Prefer": f"wait={seconds}"})
        assert response.status_code == 202
        told.append(response.json()["status"])
        if told[-1] == "running":
            break
    assert told[-1] == "running", told
    stack.standin.gate(unique).release()
    assert (await api.settled(response.json()["invocationId"]))["text"] == "late"


@pytest.mark.parametrize("name", ["runId", "sessionId"])
async def test_a_run_is_continued(stack: Stack, unique: str, name: str) -> None:
    stack.standin.answers(says("one"), says("two"))
    api = stack.gateway.user()
    first = await api.run("talker", "first", sessionId=unique)
    assert first["sessionId"] == unique
    named = first["runId"] if name == "runId" else unique
    second = await api.run("talker", "second", **{name: named})
    assert second["runId"] == first["runId"]
    assert second["sessionId"] == unique
    assert second["invocationId"] != first["invocationId"]
    assert second["streamId"] != first["streamId"]
    rows = await api.messages(first["runId"])
    assert [row["content"] for row in rows if row["role"] == "user"] == ["first", "second"]
    assert [row["seq"] for row in rows] == [1, 2, 3, 4]


async def test_a_session_belongs_to_an_agent_and_a_user(stack: Stack, unique: str) -> None:
    stack.standin.answers(*[says("x")] * 4)
    api, other = stack.gateway.user(), stack.gateway.user()
    runs = [
        await api.run("talker", sessionId=unique),
        await api.run("clerk", sessionId=unique),
        await other.run("talker", sessionId=unique),
        await stack.gateway.user(tenant="t2").run("talker", sessionId=unique),
    ]
    assert len({run["runId"] for run in runs}) == 4


@pytest.mark.parametrize("status", ["queued", "running"])
async def test_a_run_under_way_is_busy(stack: Stack, unique: str, status: str) -> None:
    stack.standin.answers(says(hold(unique), "x"))
    api = stack.gateway.user()
    agent = "talker" if status == "running" else "unserved"
    started = await api.start(agent)
    if status == "running":
        await stack.standin.gate(unique).reached()
    more = {"input": "more", "runId": started["runId"], "ifBusy": "reject"}
    response = await api.post(f"/v1/agents/{agent}/runs", more)
    assert response.status_code == 409
    error = response.json()["error"]
    assert (error["code"], error["status"], error["runId"]) == ("RUN_BUSY", status, started["runId"])
    stack.standin.gate(unique).release()


async def test_a_run_of_another_agent_is_a_mismatch(stack: Stack) -> None:
    stack.standin.answers(says("x"))
    api = stack.gateway.user()
    run = await api.run("talker")
    response = await api.post("/v1/agents/clerk/runs", {"input": "more", "runId": run["runId"]})
    assert response.status_code == 409
    error = response.json()["error"]
    assert (error["code"], error["agent"], error["runId"]) == ("AGENT_MISMATCH", "talker", run["runId"])


async def test_a_failed_run_is_taken_up_again(stack: Stack) -> None:
    stack.standin.answers(*[says("x").calls("charge", {"order": "1"})] * 3, says("fine"))
    api = stack.gateway.user()
    failed = await api.run("talker")  # it has three steps, and no such tool
    assert failed["status"] == "failed"
    assert failed["error"]["code"] == "AGENT_MAX_STEPS"
    again = await api.run("talker", "and now?", runId=failed["runId"])
    assert again["status"] == "completed"
    run = (await api.get(f"/v1/runs/{failed['runId']}")).json()
    assert run["error"] is None
    assert [row["role"] for row in await api.messages(failed["runId"])] == ["user", "assistant"] * 3 + ["user"] * 2 + [
        "assistant"
    ]


async def test_title_and_metadata_are_kept_and_replaced(stack: Stack) -> None:
    stack.standin.answers(*[says("x")] * 3)
    api = stack.gateway.user()
    run = await api.run("talker", title="One \N{BANANA}", metadata={"a": [1, None, {"b": "c"}]})
    stored = (await api.get(f"/v1/runs/{run['runId']}")).json()
    assert (stored["title"], stored["metadata"]) == ("One \N{BANANA}", {"a": [1, None, {"b": "c"}]})
    await api.run("talker", runId=run["runId"])
    assert (await api.get(f"/v1/runs/{run['runId']}")).json()["title"] == "One \N{BANANA}"
    await api.run("talker", runId=run["runId"], title="Two", metadata={})
    stored = (await api.get(f"/v1/runs/{run['runId']}")).json()
    assert (stored["title"], stored["metadata"]) == ("Two", {})


async def test_options_reach_the_model(stack: Stack) -> None:
    """The model that the agent has anyway may be asked for: of an agent that names none, the default one."""
    stack.standin.answers(*[says("x")] * 4)
    api = stack.gateway.user()
    await api.run("talker", model=ALLOWED_MODEL, maxTokens=77)
    await api.run("talker", maxTokens=1_000_000)
    await api.run("talker", model=MODEL)
    await api.run("talker")
    asked = [(call.body["model"], call.body["max_tokens"]) for call in stack.standin.calls]
    assert asked == [(ALLOWED_MODEL, 77), (MODEL, 1000), (MODEL, 1000), (MODEL, 1000)]


async def test_the_steps_of_a_call_can_be_fewer_than_the_agents(stack: Stack) -> None:
    stack.standin.answers(*[says("x").calls("look_up", {"order": "1"})] * 2)
    result = await stack.gateway.user().run("clerk", maxSteps=2)
    assert result["status"] == "failed"
    assert result["error"]["code"] == "AGENT_MAX_STEPS"
    assert result["steps"] == 2


async def test_a_model_that_is_not_allowed(stack: Stack) -> None:
    response = await stack.gateway.user().post("/v1/agents/talker/runs", {"input": "x", "model": "claude-opus-4-1"})
    assert response.status_code == 403
    error = response.json()["error"]
    assert (error["code"], error["model"]) == ("MODEL_NOT_ALLOWED", "claude-opus-4-1")


async def test_blocks_reach_transcript_and_model_as_they_are(stack: Stack) -> None:
    blocks: list[dict[str, Any]] = [
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}},
        {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "the text"}, "title": "T"},
        {"type": "text", "text": "what is this?"},
    ]
    stack.standin.answers(says("a pixel"))
    api = stack.gateway.user()
    run = await api.run("talker", blocks)
    assert (await api.messages(run["runId"]))[0]["content"] == blocks
    assert stack.standin.calls[0].messages[0]["content"] == blocks


async def test_text_is_stored_as_it_was_sent(stack: Stack) -> None:
    """A7: the literal six characters of an escape, and what else only looks as if no store held it."""
    stack.standin.answers(says("x"))
    api = stack.gateway.user()
    text = "as it is: \\u0000 \\ud800 \N{FAMILY} \r\n\u2028\x01\ufffd"
    body = json.dumps({"input": text, "title": text, "metadata": {text: text}})  # in ASCII, with escapes
    response = await api.call("POST", "/v1/agents/talker/runs", content=body)
    assert response.status_code == 202, response.text
    run = await api.settled(response.json()["invocationId"])
    assert (await api.messages(run["runId"]))[0]["content"] == text
    shown = (await api.get(f"/v1/runs/{run['runId']}")).json()
    assert (shown["title"], shown["metadata"]) == (text, {text: text})
    assert stack.standin.calls[0].messages[0]["content"] == text


@pytest.mark.parametrize(
    ("accept", "streams"),
    [
        (EVENT_STREAM, True),
        ("text/event-stream; charset=utf-8", True),
        ("application/json, TEXT/event-stream;q=0.5", True),
        ("text/event-stream;q=0", False),
        ("text/event-stream; q=0.000, */*", False),
        ("application/json", False),
        ("*/*", False),
        ("text/*", False),
    ],
)
async def test_the_stream_is_for_those_who_ask_for_it(stack: Stack, accept: str, streams: bool) -> None:
    stack.standin.answers(says("x"), by=By.TURN)
    api = stack.gateway.user()
    async with api.reading(
        "POST", "/v1/agents/talker/runs", headers={"Accept": accept}, json={"input": "x"}
    ) as reading:
        kind = reading.response.headers["content-type"]
        assert reading.response.status_code == (200 if streams else 202)
        assert kind.startswith(EVENT_STREAM if streams else "application/json")
        invocation_id = reading.response.headers["location"].rsplit("/", 1)[-1]
    await api.settled(invocation_id)
