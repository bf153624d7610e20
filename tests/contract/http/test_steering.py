"""Input for a run at work, through real processes: receipts, frames, caps, retraction."""

import asyncio
import json
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest
from tests.clients.api import STREAM, Api, Reading, replay
from tests.clients.sse import Event
from tests.integration.fixtures import on_sqlite
from tests.integration.stack import Stack
from tests.standin import By, calls, hold, says

from runyard.db.inputs import STEERING_MAX, STEERING_MAX_CHARS

pytestmark = pytest.mark.anyio

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


async def send(api: Api, run_id: str, content: Any = "wait", *, status: int = 202, **body: Any) -> dict[str, Any]:
    response = await api.post(f"/v1/runs/{run_id}/input", {"input": content, **body})
    assert response.status_code == status, response.text
    answer: dict[str, Any] = response.json()
    return answer


def sending(api: Api, run_id: str, content: Any = "wait") -> AbstractAsyncContextManager[Reading]:
    return api.reading("POST", f"/v1/runs/{run_id}/input", headers=STREAM, json={"input": content})


async def pending(api: Api, run_id: str) -> list[dict[str, Any]]:
    return list((await api.get(f"/v1/runs/{run_id}")).json()["pendingInput"])


def told(event: Event | None) -> dict[str, Any]:
    assert event is not None
    found: dict[str, Any] = json.loads(event.data)
    return found


def user_turns(rows: list[dict[str, Any]]) -> list[Any]:
    return [row["content"] for row in rows if row["role"] == "user"]


async def test_input_during_the_answer_goes_on_in_the_same_stream(stack: Stack, unique: str) -> None:
    stack.standin.answers(says("First. ", hold(unique)), says("Second."))
    api = stack.gateway.user()
    async with api.streaming("talker", "go") as reading:
        run_id = reading.response.headers["x-run-id"]
        invocation_id = reading.response.headers["location"].rsplit("/", 1)[-1]
        await reading.until_text("First. ")
        receipt = await send(api, run_id, "wait, ...")
        assert receipt == {
            "runId": run_id,
            "sessionId": None,
            "invocationId": invocation_id,
            "streamId": reading.stream_id,
            "status": "running",
            "queued": 1,
            "inputId": receipt["inputId"],
        }
        (waiting,) = await pending(api, run_id)
        assert (waiting["id"], waiting["text"]) == (receipt["inputId"], "wait, ...")
        stack.standin.gate(unique).release()
        events = await reading.rest()
    assert reading.text == "First. Second."
    assert [told(event) for event in events if event.type == "steered"] == [{"inputIds": [receipt["inputId"]]}]
    assert (told(events[-1])["text"], told(events[-1])["steps"]) == ("Second.", 2)
    rows = await api.messages(run_id)
    assert user_turns(rows) == ["go", "wait, ..."]
    assert await pending(api, run_id) == []
    stack.standin.validate_transcript([{"role": row["role"], "content": row["content"]} for row in rows])


@pytest.mark.parametrize("name", ["runId", "sessionId", "input"])
async def test_whoever_steers_reads_on_from_the_tip(stack: Stack, unique: str, name: str) -> None:
    """The receipt has the newest frame's number as its own: a reader that breaks off resumes from there."""
    stack.standin.answers(says("First. ", hold(unique)), says("Second."))
    api = stack.gateway.user()
    async with api.streaming("talker", "go", sessionId=unique) as reading:
        run_id = reading.response.headers["x-run-id"]
        await reading.until_text("First. ")
        tip = reading.events[-1].seq
        named = {"runId": run_id, "sessionId": unique}
        steering = sending(api, run_id) if name == "input" else api.streaming("talker", "wait", **{name: named[name]})
        async with steering as joined:
            assert joined.response.headers["x-stream-id"] == reading.stream_id
            assert joined.response.headers["x-run-id"] == run_id
            receipt = await joined.next()
            assert receipt is not None
            assert (receipt.type, receipt.seq) == ("queued", tip)
            assert told(receipt) == {"runId": run_id, "queued": 1, "inputId": told(receipt)["inputId"]}
            stack.standin.gate(unique).release()
            events = await reading.rest()
            assert (await joined.rest())[1:] == [event for event in events if event.seq > tip]
    assert joined.text == "Second."
    assert await replay(api, reading.stream_id, receipt.last_event_id) == joined.events[1:]


async def test_at_a_tool_boundary_results_come_first(stack: Stack, unique: str) -> None:
    stack.standin.answers(calls("hold", {"gate": unique}).calls("look_up", {"order": "7"}), says("Done."))
    api = stack.gateway.user()
    started = await api.start("clerk", "go")
    await stack.gate_reached(unique)
    await send(api, started["runId"], "wait")
    await send(api, started["runId"], "and that")
    stack.open_gate(unique)
    assert (await api.settled(started["invocationId"]))["text"] == "Done."
    blocks = stack.standin.calls[1].messages[-1]["content"]
    assert [block["type"] for block in blocks] == ["tool_result", "tool_result", "text", "text"]
    assert [block["text"] for block in blocks[2:]] == ["wait", "and that"]
    assert user_turns(await api.messages(started["runId"]))[1] == blocks


@on_sqlite
async def test_a_steering_call_may_wait_for_the_turn_that_it_joined(stack: Stack, unique: str) -> None:
    stack.standin.answers(says("First. ", hold(unique)), says("Second."))
    api = stack.gateway.user()
    started = await api.start("talker", "go")
    await stack.standin.gate(unique).reached()
    path = f"/v1/runs/{started['runId']}/input"
    response = await api.post(path, {"input": "wait"}, headers={"Prefer": "wait=0"})
    assert (response.status_code, response.json()["queued"]) == (202, 1)
    waiting = asyncio.create_task(api.post(path, {"input": "and"}, headers={"Prefer": "wait=30"}))
    while len(await pending(api, started["runId"])) < 2:
        pass
    stack.standin.gate(unique).release()
    response = await waiting
    assert response.status_code == 200, response.text
    result = response.json()
    assert (result["text"], result["invocationId"]) == ("Second.", started["invocationId"])
    assert user_turns(await api.messages(started["runId"])) == ["go", "wait\n\nand"]


@on_sqlite
async def test_input_for_a_queued_run_is_read_with_its_first(stack: Stack) -> None:
    api = stack.gateway.user()
    started = await api.start("unserved", "first")
    receipt = await send(api, started["runId"], "second")
    assert (receipt["status"], receipt["queued"]) == ("queued", 1)
    assert receipt["invocationId"] == started["invocationId"]
    assert [item["text"] for item in await pending(api, started["runId"])] == ["first", "second"]
    async with sending(api, started["runId"], "third") as joined:
        event = await joined.next()
        assert event is not None
        assert (event.type, told(event)["queued"], event.last_event_id) == ("queued", 2, "")
        assert (await api.post(f"/v1/runs/{started['runId']}/cancel")).status_code == 200
        assert [event.type for event in await joined.rest()] == ["queued", "message", "result"]


@on_sqlite
async def test_input_for_a_settled_run_begins_a_turn(stack: Stack) -> None:
    stack.standin.answers(says("one"), says("two"), says("three"))
    api = stack.gateway.user()
    first = await api.run("talker", "first")
    sent = await send(api, first["runId"], "second", maxTokens=77)
    assert (sent["status"], "queued" in sent, "inputId" in sent) == ("queued", False, False)
    assert sent["invocationId"] != first["invocationId"]
    assert (await api.settled(sent["invocationId"]))["text"] == "two"
    assert stack.standin.calls[1].body["max_tokens"] == 77
    async with sending(api, first["runId"], "third") as reading:
        assert reading.response.status_code == 200
        await reading.rest()
        assert reading.text == "three"


@on_sqlite
async def test_blocks_steer_too(stack: Stack, unique: str) -> None:
    blocks = [
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}},
        {"type": "text", "text": "this one"},
    ]
    stack.standin.answers(calls("hold", {"gate": unique}), says("A pixel."))
    api = stack.gateway.user()
    started = await api.start("clerk")
    await stack.gate_reached(unique)
    await send(api, started["runId"], blocks)
    assert [item["text"] for item in await pending(api, started["runId"])] == ["this one"]
    stack.open_gate(unique)
    await api.settled(started["invocationId"])
    assert stack.standin.calls[1].messages[-1]["content"][1:] == blocks


@on_sqlite
async def test_so_much_may_wait_and_no_more(stack: Stack, unique: str) -> None:
    stack.standin.answers(says(hold(unique), "x"), by=By.TURN)
    api = stack.gateway.user()
    full, long = await api.start("talker", "go"), await api.start("talker", "x" * STEERING_MAX_CHARS)
    await stack.standin.gate(unique).reached(2)  # a claim folds what has come by then
    for number in range(STEERING_MAX):
        assert (await send(api, full["runId"], f"{number}"))["queued"] == number + 1
    await send(api, long["runId"], "x" * STEERING_MAX_CHARS)
    for started in (full, long):
        response = await api.post(f"/v1/runs/{started['runId']}/input", {"input": "x"})
        assert response.status_code == 429
        error = response.json()["error"]
        assert (error["code"], error["retryable"]) == ("AGENT_INPUT_QUEUE_FULL", True)
    assert len(await pending(api, full["runId"])) == STEERING_MAX
    for started in (full, long):
        assert (await api.post(f"/v1/runs/{started['runId']}/cancel")).status_code == 202
        assert (await api.settled(started["invocationId"]))["status"] == "cancelled"
    assert user_turns(await api.messages(full["runId"]))[1].split("\n\n") == [str(at) for at in range(STEERING_MAX)]


async def test_input_is_taken_back_until_it_is_folded(stack: Stack, unique: str) -> None:
    stack.standin.answers(says("First. ", hold(unique)), says("Second. ", hold(f"{unique}-2")))
    api = stack.gateway.user()
    async with api.streaming("talker", "go") as reading:
        run_id = reading.response.headers["x-run-id"]
        await reading.until_text("First. ")
        blocks = [{"type": "text", "text": "take back"}]
        kept, taken = await send(api, run_id, "keep"), await send(api, run_id, blocks)
        path = f"/v1/runs/{run_id}/input"
        response = await api.call("DELETE", f"{path}/{taken['inputId']}")
        assert response.status_code == 200, response.text
        retracted = response.json()["retracted"]
        assert (retracted["id"], retracted["text"]) == (taken["inputId"], "take back")
        assert retracted["content"] == blocks, "whole, so that it can be sent again"
        assert [item["id"] for item in await pending(api, run_id)] == [kept["inputId"]]
        again = await api.call("DELETE", f"{path}/{taken['inputId']}")
        assert (again.status_code, again.json()["error"]["code"]) == (404, "RUN_NOT_FOUND")
        stack.standin.gate(unique).release()
        await reading.until_text("First. Second. ")
        late = await api.call("DELETE", f"{path}/{kept['inputId']}")
        error = late.json()["error"]
        assert (late.status_code, error["code"], error["seq"]) == (409, "ALREADY_FOLDED", 3)
        stack.standin.gate(f"{unique}-2").release()
        await reading.rest()
    assert user_turns(await api.messages(run_id)) == ["go", "keep"]


@on_sqlite
async def test_what_opens_a_call_is_not_taken_back(stack: Stack) -> None:
    api = stack.gateway.user()
    started = await api.start("unserved", "first")
    (opening,) = await pending(api, started["runId"])
    response = await api.call("DELETE", f"/v1/runs/{started['runId']}/input/{opening['id']}")
    error = response.json()["error"]
    assert (response.status_code, error["code"], error["seq"]) == (409, "ALREADY_FOLDED", None)


@on_sqlite
async def test_a_program_is_told_that_the_run_is_busy(stack: Stack, unique: str) -> None:
    """It would not know what became of input that joined somebody's turn; unless it asks for that."""
    stack.standin.answers(says(hold(unique), "x"), says("y"))
    service = stack.gateway.user(roles=("service",))
    started = await service.start("talker", **{"as": {"userId": unique}})
    await stack.standin.gate(unique).reached()
    refused = await service.post(f"/v1/runs/{started['runId']}/input", {"input": "more"})
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "RUN_BUSY")
    assert (await send(service, started["runId"], ifBusy="steer"))["queued"] == 1
    stack.standin.gate(unique).release()
    assert (await service.settled(started["invocationId"]))["text"] == "y"


@on_sqlite
@pytest.mark.parametrize(
    ("body", "code", "fields"),
    [
        ({}, "AGENT_INPUT_REQUIRED", None),
        ({"input": " \n"}, "AGENT_INPUT_REQUIRED", None),
        ({"input": []}, "AGENT_INPUT_REQUIRED", None),
        ({"input": "x", "runId": "r"}, "INVALID_ARGS", ["runId"]),
        ({"input": "x", "sessionId": "s"}, "INVALID_ARGS", ["sessionId"]),
        ({"input": "x", "title": "t"}, "INVALID_ARGS", ["title"]),
        ({"input": "x", "ifBusy": "queue"}, "INVALID_ARGS", ["ifBusy"]),
        ({"input": [{"type": "tool_result", "tool_use_id": "a"}]}, "INVALID_ARGS", ["input"]),
    ],
    ids=str,
)
async def test_what_input_cannot_be(stack: Stack, body: dict[str, Any], code: str, fields: list[str] | None) -> None:
    api = stack.gateway.user()
    started = await api.start("unserved")
    response = await api.post(f"/v1/runs/{started['runId']}/input", body)
    error = response.json()["error"]
    assert (response.status_code, error["code"], error.get("fields")) == (400, code, fields)
    assert len(await pending(api, started["runId"])) == 1


@on_sqlite
async def test_a_call_on_a_busy_run_may_name_it_anew(stack: Stack, unique: str) -> None:
    stack.standin.answers(says(hold(unique), "x"), says("y"))
    api = stack.gateway.user()
    started = await api.start("talker", title="One", metadata={"a": 1})
    await stack.standin.gate(unique).reached()
    steered = await api.start("talker", "more", runId=started["runId"], title="Two", metadata={})
    assert steered["queued"] == 1
    run = (await api.get(f"/v1/runs/{started['runId']}")).json()
    assert (run["title"], run["metadata"]) == ("Two", {})
    stack.standin.gate(unique).release()
    await api.settled(started["invocationId"])
