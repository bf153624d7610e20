"""`POST /v1/runs/{id}/cancel`, through real processes: what runs stops, what waits never starts, what is over stays."""

import json
from typing import Any

import pytest
from tests.clients.answer import answer_text, is_terminal
from tests.clients.api import Api, replay
from tests.integration.fixtures import on_sqlite
from tests.integration.stack import Stack
from tests.standin import By, Ending, calls, fail, hold, says

from runyard.lifecycle.creating import NO_USAGE

pytestmark = pytest.mark.anyio


async def cancel(
    api: Api, run_id: str, *, status: int = 200, wait: str | None = "wait=30", **body: str
) -> dict[str, Any]:
    response = await api.post(f"/v1/runs/{run_id}/cancel", body, headers={"Prefer": wait} if wait else {})
    assert response.status_code == status, response.text
    answer: dict[str, Any] = response.json()
    return answer


async def run_of(api: Api, run_id: str) -> dict[str, Any]:
    response = await api.get(f"/v1/runs/{run_id}")
    assert response.status_code == 200, response.text
    found: dict[str, Any] = response.json()
    return found


async def test_a_model_call_is_aborted_and_what_it_said_is_kept(stack: Stack, unique: str) -> None:
    """No delta after, the provider's connection closes, the reader's text is the stored one."""
    stack.standin.answers(says("It is ", "so", hold(unique), " and never this"))
    api = stack.gateway.user()
    async with api.streaming("talker") as reading:
        run_id = reading.response.headers["x-run-id"]
        await reading.until_text("It is so")
        answer = await cancel(api, run_id)
        events = await reading.rest()
    assert await stack.standin.calls[0].ended() is Ending.CLIENT_CLOSED
    assert (answer["status"], answer["cancelled"], answer["cancelRequested"]) == ("cancelled", True, False)
    assert (answer["text"], answer["finishReason"], answer["dropped"]) == ("It is so", "cancelled", [])
    assert (events[-1].type, reading.text) == ("result", "It is so")
    assert await replay(api, reading.stream_id) == events
    rows = await api.messages(run_id)
    assert [(row["role"], row["stopReason"]) for row in rows] == [("user", None), ("assistant", "cancelled")]
    assert rows[1]["content"] == [{"type": "text", "text": "It is so"}]
    assert rows[1]["usage"]["input_tokens"] == answer["usage"]["input_tokens"] == 10
    assert rows[1]["usage"]["output_tokens_estimated"] > 0
    run = await run_of(api, run_id)
    assert (run["status"], run["cancelRequested"], run["error"]) == ("cancelled", False, None)


async def test_a_tool_is_told_and_the_next_turn_works(stack: Stack, unique: str) -> None:
    """One call has ended, one runs, one has not begun; each has one result."""
    stack.standin.answers(
        says("Let me see. ")
        .calls("look_up", {"order": "1"})
        .calls("attend", {"gate": unique})
        .calls("book", {"order": "1"}),
        says("Back again."),
    )
    api = stack.gateway.user()
    async with api.streaming("mortal") as reading:
        run_id = reading.response.headers["x-run-id"]
        await reading.until(lambda event: event.type == "tool")
        await stack.gate_reached(unique)
        answer = await cancel(api, run_id)
        events = await reading.rest()
    assert (answer["status"], answer["text"]) == ("cancelled", "Let me see. ")
    told = [json.loads(event.data) for event in events if event.type in ("tool_start", "tool")]
    assert [(frame["name"], frame.get("isError")) for frame in told if "isError" in frame] == [
        ("look_up", False),
        ("attend", False),
        ("book", True),
    ]
    assert [frame["name"] for frame in told if "isError" not in frame] == ["look_up", "attend"]  # in the calls' order
    again = await api.run("mortal", "and now?", runId=run_id)
    assert (again["status"], again["text"]) == ("completed", "Back again.")
    looked_up, attended, booked, *more = stack.standin.calls[-1].messages[-1]["content"]
    assert '"open"' in looked_up["content"]
    assert attended["content"] == "stopped early"
    assert (booked["content"], booked["is_error"]) == ("cancelled by user", True)
    assert more == [{"type": "text", "text": "and now?"}]
    assert [message["role"] for message in stack.standin.calls[-1].messages] == ["user", "assistant", "user"]
    assert sorted(effect.split()[0] for effect in stack.effects(run_id)) == ["attend", "look_up"]


async def test_without_a_wait_it_is_asked_and_said_so(stack: Stack, unique: str) -> None:
    stack.standin.answers(says("half", hold(unique)))
    api = stack.gateway.user()
    started = await api.start("talker")
    await stack.standin.gate(unique).reached()
    answer = await cancel(api, started["runId"], status=202, wait=None)
    assert answer == {
        "runId": started["runId"],
        "invocationId": started["invocationId"],
        "status": "running",
        "cancelRequested": True,
        "cancelled": False,
        "dropped": [],
    }
    assert (await api.settled(started["invocationId"]))["status"] == "cancelled"


@on_sqlite
async def test_a_wait_that_is_over_says_that_it_has_not_ended(stack: Stack, unique: str) -> None:
    """Never a success that is none. The tool ignores the cancel."""
    stack.standin.answers(calls("hold", {"gate": unique}))
    api = stack.gateway.user()
    started = await api.start("clerk")
    await stack.gate_reached(unique)
    answer = await cancel(api, started["runId"], status=202, wait="wait=1")
    assert (answer["status"], answer["cancelRequested"], answer["cancelled"]) == ("running", True, False)
    assert (await run_of(api, started["runId"]))["cancelRequested"] is True
    stack.open_gate(unique)
    result = await api.settled(started["invocationId"])
    assert (result["status"], result["cancelled"]) == ("cancelled", True)


async def test_a_queued_run_never_starts(stack: Stack) -> None:
    api = stack.gateway.user()
    async with api.streaming("unserved", "first") as reading:
        run_id = reading.response.headers["x-run-id"]
        response = await api.post(f"/v1/runs/{run_id}/input", {"input": "second"})
        assert response.status_code == 202, response.text
        answer = await cancel(api, run_id, wait=None)
        events = await reading.rest()
    assert (answer["status"], answer["cancelled"], answer["steps"]) == ("cancelled", True, 0)
    assert [(item["id"], item["text"]) for item in answer["dropped"]] == [(response.json()["inputId"], "second")]
    assert [event.type for event in events][-2:] == ["message", "result"]
    assert answer["usage"] == json.loads(events[-1].data)["usage"] == NO_USAGE
    assert await replay(api, reading.stream_id) == [event for event in events if event.id]
    assert [row["content"] for row in await api.messages(run_id)] == ["first"]
    run = await run_of(api, run_id)
    assert (run["status"], run["pendingInput"]) == ("cancelled", [])


async def test_a_settled_run_keeps_its_status(stack: Stack) -> None:
    stack.standin.answers(says("done"))
    api = stack.gateway.user()
    run = await api.run("talker")
    answer = await cancel(api, run["runId"])
    assert (answer["status"], answer["cancelled"], answer["cancelRequested"]) == ("completed", False, False)
    assert (await run_of(api, run["runId"]))["status"] == "completed"


async def test_a_cancel_that_is_sent_again_tells_how_it_ended(stack: Stack, unique: str) -> None:
    """Its first answer was lost, and the next turn has begun since."""
    stack.standin.answers(says("half", hold(unique)), says("on", hold(unique)))
    api = stack.gateway.user()
    async with api.streaming("talker") as reading:
        run_id = reading.response.headers["x-run-id"]
        await reading.until_text("half")
        named = (await run_of(api, run_id))["invocationId"]
        first = await cancel(api, run_id, invocationId=named)
    async with api.streaming("talker", "and now?", runId=run_id) as reading:
        await reading.until_text("on")
        for wait in (None, "wait=30"):
            assert await cancel(api, run_id, wait=wait, invocationId=named) == first
        assert (first["status"], first["text"], first["invocationId"]) == ("cancelled", "half", named)
        assert (await run_of(api, run_id))["cancelRequested"] is False
        stack.standin.gate(unique).release()
        await reading.rest()
    assert (await run_of(api, run_id))["status"] == "completed"


async def test_a_call_that_waits_to_be_next_is_stopped_by_its_name(stack: Stack, unique: str) -> None:
    stack.standin.answers(calls("hold", {"gate": unique}))
    api = stack.gateway.user()
    started = await api.start("clerk")
    await stack.gate_reached(unique)
    async with api.streaming("clerk", "instead", runId=started["runId"], ifBusy="cancel") as reading:
        named = (await api.get(f"/v1/runs/{started['runId']}/invocations")).json()["items"][0]["invocationId"]
        answer = await cancel(api, started["runId"], wait=None, invocationId=named)
        events = await reading.rest()
    assert (answer["status"], answer["invocationId"]) == ("cancelled", named)
    assert [item["text"] for item in answer["dropped"]] == ["instead"]
    assert (events[-1].type, json.loads(events[-1].data)["status"], reading.text) == ("result", "cancelled", "")
    assert await replay(api, reading.stream_id) == [event for event in events if event.id]
    stack.open_gate(unique)
    assert (await api.settled(started["invocationId"]))["status"] == "cancelled"
    run = await run_of(api, started["runId"])
    assert (run["status"], run["invocationId"], run["pendingInput"]) == ("cancelled", started["invocationId"], [])


async def test_what_a_failed_run_left_unanswered_is_dropped(stack: Stack, unique: str) -> None:
    stack.standin.answers(says("half", hold(unique)).then(fail("invalid_request_error")))
    api = stack.gateway.user()
    async with api.streaming("talker") as reading:
        await reading.until_text("half")
        started = {"runId": reading.response.headers["x-run-id"]}
        response = await api.post(f"/v1/runs/{started['runId']}/input", {"input": "wait"})
        sent = response.json()
        stack.standin.gate(unique).release()
        events = await reading.rest()
    failed = await api.settled(sent["invocationId"])
    assert failed["status"] == "failed"
    assert failed["unanswered"] == [{"id": sent["inputId"], "text": "wait"}]
    assert json.loads(events[-1].data)["error"]["unanswered"] == failed["unanswered"]
    assert [item["id"] for item in (await run_of(api, started["runId"]))["pendingInput"]] == [sent["inputId"]]
    answer = await cancel(api, started["runId"])
    assert (answer["status"], [item["id"] for item in answer["dropped"]]) == ("failed", [sent["inputId"]])
    assert (await run_of(api, started["runId"]))["pendingInput"] == []


@on_sqlite
@pytest.mark.parametrize("status", ["queued", "running", "completed"])
async def test_to_strangers_there_is_no_run(stack: Stack, unique: str, status: str) -> None:
    """The same answer as for an id that nobody has, and nothing happens."""
    stack.standin.answers(says(hold(unique), "x"), by=By.TURN)
    api = stack.gateway.user(unique)
    started = await api.start("unserved" if status == "queued" else "talker")
    if status != "queued":
        await stack.standin.gate(unique).reached()
    if status == "completed":
        stack.standin.gate(unique).release()
        await api.settled(started["invocationId"])
    before = await run_of(api, started["runId"])
    strangers = [
        stack.gateway.user(),
        stack.gateway.user(roles=("admin",), tenant="other"),
        stack.gateway.user(unique, tenant="other"),
    ]
    for stranger in strangers:
        for run_id in (started["runId"], "run_none"):
            for method, path in [
                ("POST", f"/v1/runs/{run_id}/cancel"),
                ("POST", f"/v1/runs/{run_id}/input"),
                ("DELETE", f"/v1/runs/{run_id}/input/in_1"),
            ]:
                body = {"input": "x"} if path.endswith("/input") else None
                response = await stranger.call(method, path, json=body)
                assert response.status_code == 404, (method, path)
                error = response.json()["error"]
                assert (error["code"], error["runId"]) == ("RUN_NOT_FOUND", run_id)
                assert set(error) - {"inputId"} == {"code", "message", "requestId", "retryable", "runId"}
    assert await run_of(api, started["runId"]) == before
    stack.standin.gate(unique).release()


@on_sqlite
async def test_what_is_not_known_is_refused(stack: Stack) -> None:
    stack.standin.answers(says("x"))
    api = stack.gateway.user()
    run_id = (await api.run("talker"))["runId"]
    response = await api.post(f"/v1/runs/{run_id}/cancel", {"reason": "bored"})
    assert (response.status_code, response.json()["error"]["fields"]) == (400, ["reason"])
    response = await api.post(f"/v1/runs/{run_id}/cancel?force=1")
    assert (response.status_code, response.json()["error"]["fields"]) == (400, ["force"])
    response = await api.get(f"/v1/runs/{run_id}/cancel")
    assert response.status_code == 405


@on_sqlite
async def test_a_disconnect_is_no_cancel(stack: Stack, unique: str) -> None:
    stack.standin.answers(says("one ", hold(unique), "two"))
    api = stack.gateway.user()
    async with api.streaming("talker") as reading:
        await reading.until_text("one ")
    stack.standin.gate(unique).release()
    events = await replay(api, reading.stream_id)
    assert (answer_text(events), is_terminal(events[-1])) == ("one two", True)


@on_sqlite
async def test_the_call_in_its_place_streams_to_its_caller(stack: Stack, unique: str) -> None:
    """`ifBusy: cancel`, on a run at work and on one that waits."""
    stack.standin.answers(says("half", hold(unique)), says("Here."))
    api = stack.gateway.user()
    async with api.streaming("talker", "go") as first:
        run_id = first.response.headers["x-run-id"]
        await first.until_text("half")
        async with api.streaming("talker", "instead", runId=run_id, ifBusy="cancel") as second:
            await first.rest()
            await second.rest()
    assert await stack.standin.calls[0].ended() is Ending.CLIENT_CLOSED
    assert (first.text, second.text) == ("half", "Here.")
    assert second.stream_id != first.stream_id
    rows = await api.messages(run_id)
    assert [row["content"] for row in rows if row["role"] == "user"] == ["go", "instead"]
    invocations = (await api.get(f"/v1/runs/{run_id}/invocations")).json()["items"]
    assert [item["status"] for item in invocations] == ["completed", "cancelled"]


@on_sqlite
async def test_a_call_that_waits_is_replaced(stack: Stack) -> None:
    api = stack.gateway.user()
    async with api.streaming("unserved", "first") as first:
        run_id = first.response.headers["x-run-id"]
        second = await api.start("unserved", "instead", runId=run_id, ifBusy="cancel")
        events = await first.rest()
    assert events[-1].type == "result"
    run = await run_of(api, run_id)
    assert (run["status"], run["invocationId"]) == ("queued", second["invocationId"])
    assert [row["content"] for row in await api.messages(run_id)] == ["first"]
    assert [item["text"] for item in run["pendingInput"]] == ["instead"]


@on_sqlite
async def test_a_second_call_in_its_place_is_refused(stack: Stack, unique: str) -> None:
    stack.standin.answers(calls("hold", {"gate": unique}), says("Here."))
    api = stack.gateway.user()
    started = await api.start("clerk")
    await stack.gate_reached(unique)
    body = {"input": "instead", "ifBusy": "cancel"}
    accepted = await api.post(f"/v1/runs/{started['runId']}/input", body)
    assert (accepted.status_code, accepted.json()["status"]) == (202, "queued")
    refused = await api.post(f"/v1/runs/{started['runId']}/input", body)
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "RUN_BUSY")
    steering = await api.post(f"/v1/runs/{started['runId']}/input", {"input": "and this"})
    assert steering.json()["invocationId"] == accepted.json()["invocationId"]
    stack.open_gate(unique)
    result = await api.settled(accepted.json()["invocationId"])
    assert result["text"] == "Here."
    rows = [row["content"] for row in await api.messages(started["runId"]) if row["role"] == "user"]
    assert rows[-1] == "instead\n\nand this"
