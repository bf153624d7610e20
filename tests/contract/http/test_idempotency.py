"""`Idempotency-Key`: a caller who lost the answer sends the call again and gets the run that it began."""

import asyncio
from typing import Any

import pytest
from tests.clients.answer import is_terminal
from tests.clients.api import STREAM, Api
from tests.integration.fixtures import on_sqlite
from tests.integration.stack import Stack
from tests.standin import hold, says

pytestmark = [pytest.mark.anyio, on_sqlite]

START = "/v1/agents/talker/runs"


def keyed(key: str, **headers: str) -> dict[str, str]:
    return {"Idempotency-Key": key, **headers}


async def test_the_same_call_again_is_the_same_run(stack: Stack, unique: str) -> None:
    stack.standin.answers(says("hello"))
    api = stack.gateway.user()
    first = await api.post(START, {"input": "hi"}, headers=keyed(unique, Prefer="wait=30"))
    again = await api.post(START, {"input": "hi"}, headers=keyed(unique, Prefer="wait=30"))
    assert (first.status_code, again.status_code) == (200, 200)
    assert again.json() == first.json()
    assert "idempotent-replayed" not in first.headers
    assert again.headers["idempotent-replayed"] == "true"
    assert again.headers["location"] == first.headers["location"]
    assert len(await api.messages(first.json()["runId"])) == 2
    assert len((await api.get("/v1/runs")).json()["items"]) == 1


async def test_a_call_that_was_cleared_is_not_made_again(stack: Stack, unique: str) -> None:
    """Its caller may not have had the answer yet, and sends it again as another device clears the transcript."""
    stack.standin.answers(says("hello"))
    api = stack.gateway.user()
    first = (await api.post(START, {"input": "pay"}, headers=keyed(unique, Prefer="wait=30"))).json()
    assert (await api.call("DELETE", f"/v1/runs/{first['runId']}/messages")).status_code == 204
    again = await api.post(START, {"input": "pay"}, headers=keyed(unique, Prefer="wait=30"))
    assert (again.status_code, again.json()["error"]["code"]) == (404, "RUN_NOT_FOUND")
    assert again.json()["error"]["runId"] == first["runId"]
    assert len(stack.standin.calls) == 1


async def test_the_stream_of_the_same_call_is_the_same_stream(stack: Stack, unique: str) -> None:
    """Live, while the first reader still reads; and whole, when all is over."""
    stack.standin.answers(says("one ", hold(unique), "two"))
    api = stack.gateway.user()
    async with api.streaming("talker", headers=keyed(unique)) as first:
        await first.until_text("one ")
        async with again(api, unique) as second:
            await second.until_text("one ")
            stack.standin.gate(unique).release()
            assert [event.id for event in await second.rest()] == [event.id for event in await first.rest()]
            assert second.stream_id == first.stream_id
    async with again(api, unique) as late:
        events = await late.rest()
        assert late.text == "one two"
        assert [is_terminal(event) for event in events].count(True) == 1


async def test_calls_at_once_with_one_key_make_one_run(stack: Stack, unique: str) -> None:
    stack.standin.answers(says("hello"))
    api = stack.gateway.user()
    answers = await asyncio.gather(*(api.post(START, {"input": "hi"}, headers=keyed(unique)) for _ in range(10)))
    assert {answer.status_code for answer in answers} == {202}
    assert len({answer.json()["invocationId"] for answer in answers}) == 1
    assert len((await api.get("/v1/runs")).json()["items"]) == 1
    await api.settled(answers[0].json()["invocationId"])


@pytest.mark.parametrize("other", [{"input": "ho"}, {"input": "hi", "title": "T"}, {"input": "hi", "maxSteps": 3}])
async def test_another_body_under_the_key_is_refused(stack: Stack, unique: str, other: dict[str, Any]) -> None:
    stack.standin.answers(says("hello"))
    api = stack.gateway.user()
    first = await api.post(START, {"input": "hi"}, headers=keyed(unique))
    refused = await api.post(START, other, headers=keyed(unique))
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "IDEMPOTENCY_MISMATCH")
    elsewhere = await api.post("/v1/agents/clerk/runs", {"input": "hi"}, headers=keyed(unique))
    assert elsewhere.json()["error"]["code"] == "IDEMPOTENCY_MISMATCH"
    await api.settled(first.json()["invocationId"])


async def test_how_the_body_is_written_does_not_matter(stack: Stack, unique: str) -> None:
    stack.standin.answers(says("hello"))
    api = stack.gateway.user()
    headers = keyed(unique, **{"Content-Type": "application/json"})
    first = await api.call("POST", START, content=b'{"input":"\\u0068i","title":"T"}', headers=headers)
    second = await api.call("POST", START, content=b'{ "title" : "T", "input" : "hi" }', headers=headers)
    assert second.json()["invocationId"] == first.json()["invocationId"]
    await api.settled(first.json()["invocationId"])


async def test_refused_calls_take_no_key(stack: Stack, unique: str) -> None:
    stack.standin.answers(says("hello"))
    api = stack.gateway.user()
    for body in ({"input": ""}, {"input": "hi", "runId": "run_none"}, {"input": "hi", "unknown": 1}):
        assert (await api.post(START, body, headers=keyed(unique))).status_code in {400, 404}
    accepted = await api.post(START, {"input": "hi"}, headers=keyed(unique))
    assert accepted.status_code == 202
    await api.settled(accepted.json()["invocationId"])


@pytest.mark.parametrize("key", ["", "x" * 256, "caf\u00e9"])
async def test_what_is_no_key_is_named(stack: Stack, key: str) -> None:
    api = stack.gateway.user()
    refused = await api.call(
        "POST",
        START,
        json={"input": "hi"},
        headers={"Idempotency-Key": key.encode("latin-1")},  # type: ignore[dict-item]
    )
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "INVALID_ARGS")
    assert "Idempotency-Key" in refused.json()["error"]["message"]


async def test_input_is_sent_once(stack: Stack, unique: str) -> None:
    stack.standin.answers(says(hold(unique), "x"), says("y"))
    api = stack.gateway.user()
    started = await api.start("talker")
    await stack.standin.gate(unique).reached()
    path = f"/v1/runs/{started['runId']}/input"
    receipts = [(await api.post(path, {"input": "more"}, headers=keyed(unique))).json() for _ in range(3)]
    assert receipts[0]["queued"] == 1
    assert receipts == [receipts[0]] * 3
    stack.standin.gate(unique).release()
    await api.settled(started["invocationId"])
    users = [row["content"] for row in await api.messages(started["runId"]) if row["role"] == "user"]
    assert users == ["go", "more"]


def again(api: Api, key: str) -> Any:
    return api.reading("POST", START, headers=STREAM | keyed(key), json={"input": "go"})
