"""A stream across connections: nothing is lost, nothing is told twice, and it ends with the result."""

import asyncio
from typing import Any

import httpx2
import pytest
from tests.fakes.scripted_gateway import (
    HEAD,
    STREAM,
    PatientClock,
    Scripted,
    ScriptedGateway,
    lost,
    numbers,
    refused,
    result,
    resumed,
    streamed,
    told,
)

from runyard.client import Ended, Event, Rewind, Status, Stream, StreamCut, Text, UnexpectedAnswer, Unreachable
from runyard.client.transport import Transport
from runyard.errors import ProviderError, RunNotFound, StreamGone, Unauthenticated

pytestmark = pytest.mark.anyio

CUT = httpx2.RemoteProtocolError("peer closed connection")
SILENT = httpx2.ReadTimeout("nothing for 45 s")
END = (4, "result", result())


@pytest.fixture
def gateway() -> ScriptedGateway:
    return ScriptedGateway()


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> PatientClock:
    clock = PatientClock()
    monkeypatch.setattr(Transport, "patience", clock.method())
    return clock


async def frames_of(stream: Stream) -> list[Any]:
    return [frame async for frame in stream]


async def test_a_stream_is_read_to_its_result(gateway: ScriptedGateway) -> None:
    gateway.answers = [streamed((1, "status", {"status": "running"}), (2, None, "hel"), (3, "text", '"lo"'), END)]
    async with gateway.client().stream("talker", input="hi", metadata={"a": 1}) as stream:
        assert (stream.stream_id, stream.run_id, stream.invocation_id) == (STREAM, "run_1", "inv_1")
        assert (stream.text, stream.cursor) == ("", None)
        frames = await frames_of(stream)
    assert numbers(frames) == [1, 2, 3, 4]
    assert [type(frame) for frame in frames] == [Status, Text, Text, Ended]
    assert (stream.text, stream.result.text, stream.result.status) == ("hello", "hello", "completed")
    (request,) = gateway.requests
    assert (request.method, request.url.path) == ("POST", "/v1/agents/talker/runs")
    assert request.read() == b'{"metadata":{"a":1},"input":"hi"}'
    assert request.headers["accept"] == "text/event-stream"
    assert request.headers["idempotency-key"]
    assert await frames_of(stream) == []


async def test_it_may_be_awaited_or_begun_by_its_first_frame(gateway: ScriptedGateway) -> None:
    gateway.answers = [streamed(END), streamed(END)]
    stream = await gateway.client().stream("talker", input="hi")
    assert stream.stream_id == STREAM
    assert (await stream.read()).text == "hello"
    unopened = gateway.client().stream("talker", input="hi")
    with pytest.raises(RuntimeError, match="not open yet"):
        _ = unopened.stream_id
    with pytest.raises(RuntimeError, match="not ended yet"):
        _ = unopened.result
    async for _frame in unopened:
        assert unopened.stream_id == STREAM


async def test_a_client_that_closes_leaves_its_streams(gateway: ScriptedGateway) -> None:
    gateway.answers = [streamed((1, None, "hel"), (2, None, "lo"), END)]
    async with gateway.client() as client:
        stream = client.stream("talker", input="hi")
        assert (await anext(stream)).seq == 1
    assert await frames_of(stream) == []


# Connections that break --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", [CUT, SILENT, httpx2.ReadError(""), None], ids=["cut", "silent", "reset", "ended"])
async def test_a_broken_connection_is_gone_on_from_the_last_whole_frame(
    gateway: ScriptedGateway, clock: PatientClock, how: Exception | None
) -> None:
    gateway.answers = [
        streamed((1, None, "h"), (2, None, "el"), cut=how, rest=b"id: 3\ndata: l"),
        resumed((3, None, "lo"), END),
    ]
    async with gateway.client().stream("talker", input="hi") as stream:
        assert numbers(await frames_of(stream)) == [1, 2, 3, 4]
    assert stream.text == "hello"
    assert gateway.asked() == ["POST /v1/agents/talker/runs", f"GET /v1/streams/{STREAM}"]
    assert gateway.header("last-event-id") == [None, "2"]
    assert len(clock.slept_s) == 1


async def test_it_comes_back_when_the_server_asks_for_it(gateway: ScriptedGateway, clock: PatientClock) -> None:
    gateway.answers = [streamed((1, None, "a"), cut=CUT, retry_ms=2500), resumed(END)]
    await gateway.client().stream("talker", input="hi").read()
    assert 2.5 <= clock.slept_s[0] <= 3.2


async def test_it_comes_back_through_every_trouble(gateway: ScriptedGateway, clock: PatientClock) -> None:
    gateway.answers = [
        streamed((1, None, "hel"), cut=CUT),
        lost(),
        refused(503, "STREAM_OVERLOADED", retryable=True, headers={"Retry-After": "3"}),
        refused(429, "RATE_LIMITED", retryable=True, headers={"Retry-After": "5"}, retryAfterMs=4900),
        Scripted(status=502, headers={"Content-Type": "text/html"}, body=b"<h1>Bad gateway</h1>"),
        resumed((3, None, "lo"), END),
    ]
    stream = gateway.client().stream("talker", input="hi")
    assert (await stream.read()).text == stream.text == "hello"
    assert gateway.header("last-event-id") == [None, *["1"] * 5]
    assert clock.slept_s[2] >= 3
    assert clock.slept_s[3] >= 5


async def test_before_the_first_frame_the_stream_is_read_from_its_beginning(gateway: ScriptedGateway) -> None:
    """What has no number moves no cursor."""
    gateway.answers = [
        streamed((None, "status", {"status": "queued", "position": 3, "waitReason": "user_limit"}), cut=CUT),
        resumed((1, None, "hello"), END),
    ]
    stream = gateway.client().stream("talker", input="hi")
    first, *rest = await frames_of(stream)
    assert isinstance(first, Status)
    assert (first.seq, first.status, first.position, first.wait_reason) == (None, "queued", 3, "user_limit")
    assert numbers(rest) == [1, 4]
    assert gateway.asked()[1] == f"GET /v1/streams/{STREAM}"
    assert gateway.header("last-event-id") == [None, None]


async def test_a_call_whose_answer_was_lost_is_sent_again_and_starts_one_run(gateway: ScriptedGateway) -> None:
    unavailable = refused(503, "STORE_UNAVAILABLE", retryable=True, headers={"Retry-After": "1"})
    gateway.answers = [lost(), unavailable, streamed(END)]
    await gateway.client().stream("talker", input="hi").read()
    assert gateway.asked() == ["POST /v1/agents/talker/runs"] * 3
    assert len(set(gateway.header("idempotency-key"))) == 1
    assert len({request.read() for request in gateway.requests}) == 1


async def test_it_gives_up_when_nobody_answers_for_too_long(gateway: ScriptedGateway, clock: PatientClock) -> None:
    gateway.answers = [streamed((1, None, "a"), cut=CUT), *[lost()] * 50]
    with pytest.raises(Unreachable) as raised:
        await gateway.client(patience_s=20).stream("talker", input="hi").read()
    assert isinstance(raised.value.__cause__, httpx2.RemoteProtocolError)
    assert (raised.value.code, raised.value.retryable) == ("UNREACHABLE", True)
    assert clock.at_s <= 20


async def test_connections_that_bring_nothing_are_given_up_as_well(
    gateway: ScriptedGateway, clock: PatientClock
) -> None:
    silent = Scripted(headers={"Content-Type": "text/event-stream", "X-Stream-Id": STREAM}, cut=SILENT)
    gateway.answers = [streamed((1, None, "a"), cut=CUT), *[silent] * 50]
    with pytest.raises(StreamCut) as raised:
        await gateway.client(patience_s=20).stream("talker", input="hi").read()
    assert raised.value.fields == {"streamId": STREAM, "cursor": 1}
    assert clock.at_s <= 20


async def test_whoever_gets_a_heartbeat_through_does_not_give_up(gateway: ScriptedGateway, clock: PatientClock) -> None:
    """A tool may work for an hour behind a proxy that cuts every answer: ever longer waits, and the end."""
    gateway.answers = [streamed((1, None, "a"), cut=CUT), *[resumed(cut=CUT)] * 50, resumed(END)]
    assert (await gateway.client(patience_s=20).stream("talker", input="hi").read()).status == "completed"
    assert clock.at_s > 100


async def test_whoever_does_not_resume_is_told_where_it_broke(gateway: ScriptedGateway) -> None:
    gateway.answers = [streamed((1, None, "a"), (2, None, "b"), cut=CUT)]
    stream = gateway.client().stream("talker", input="hi", resume=False)
    with pytest.raises(StreamCut) as raised:
        await stream.read()
    assert raised.value.fields == {"streamId": STREAM, "cursor": 2}
    assert (stream.text, stream.cursor) == ("ab", 2)
    assert len(gateway.requests) == 1


async def test_a_read_that_is_cancelled_loses_nothing(gateway: ScriptedGateway) -> None:
    class Hanging(httpx2.AsyncByteStream):
        async def __aiter__(self) -> Any:
            yield b"id: 1\ndata: hel\n\n"
            await asyncio.Event().wait()

    head = {"Content-Type": "text/event-stream", **HEAD}
    hanging = httpx2.Response(200, headers=head, stream=Hanging())
    gateway.answers = [streamed((2, None, "lo"), END)]
    answers = iter([hanging])
    transport = httpx2.MockTransport(lambda request: next(answers, None) or gateway.handle(request))
    client = gateway.client()
    client._transport.http._transport = transport
    stream = client.stream("talker", input="hi")
    assert (await anext(stream)).seq == 1
    reading = asyncio.create_task(anext(stream))
    await asyncio.sleep(0)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    await stream.read()
    assert stream.text == "hello"
    assert gateway.header("last-event-id") == ["1"]


# What is withdrawn -------------------------------------------------------------------------------------------------


async def test_a_rewind_takes_back_what_came_behind_its_frame(gateway: ScriptedGateway) -> None:
    gateway.answers = [
        streamed(
            (1, None, "kept "),
            (2, None, "w\u00f6rong"),
            (3, "rewind", {"toSeq": 1, "length": 5}),
            (4, None, "right"),
            (5, "result", result("right")),
        )
    ]
    async with gateway.client().stream("talker", input="hi") as stream:
        seen = [(frame.seq, stream.text) async for frame in stream]
    assert seen == [(1, "kept "), (2, "kept w\u00f6rong"), (3, "kept "), (4, "kept right"), (5, "kept right")]


async def test_a_reset_goes_on_under_higher_numbers(gateway: ScriptedGateway) -> None:
    gateway.answers = [
        streamed((1, None, "lost "), (2, None, "words"), cut=CUT),
        resumed((1000002, "rewind", {"toSeq": 0, "length": 0}), (1000003, None, "lost "), cut=CUT),
        resumed((1000004, None, "and found"), (1000005, "result", result("lost and found"))),
    ]
    stream = gateway.client().stream("talker", input="hi")
    await stream.read()
    assert stream.text == "lost and found"
    assert gateway.header("last-event-id") == [None, "2", "1000003"]


async def test_frames_that_are_gone_are_begun_anew(gateway: ScriptedGateway) -> None:
    """The committed text comes in their place, behind the withdrawal of all that the reader has."""
    gateway.answers = [
        streamed((1, None, "old "), (2, None, "half"), cut=CUT),
        refused(410, "STREAM_GONE", oldestSeq=900),
        resumed(
            (None, "rewind", {"toSeq": 0, "length": 0}),
            (890, None, "old text, "),
            (899, "status", {"status": "running", "trimmed": {"fromSeq": 891, "toSeq": 899}}),
            (900, None, "and new"),
            (901, "result", result()),
        ),
    ]
    stream = gateway.client().stream("talker", input="hi")
    frames = await frames_of(stream)
    assert isinstance(frames[2], Rewind)
    assert frames[4].data["trimmed"] == {"fromSeq": 891, "toSeq": 899}
    assert stream.text == "old text, and new"
    assert gateway.header("last-event-id") == [None, "2", None]


async def test_a_withdrawal_without_a_number_leaves_no_place_to_go_on_from(gateway: ScriptedGateway) -> None:
    """A gateway that makes the stream from its rows was cut before it could tell the text."""
    whole = [(None, "rewind", {"toSeq": 0, "length": 0}), (40, None, "hello"), (42, "result", result())]
    gateway.answers = [streamed((50, None, "hel"), cut=CUT), resumed(*whole[:1], cut=CUT), resumed(*whole)]
    stream = gateway.client().stream("talker", input="hi")
    await stream.read()
    assert (stream.text, stream.cursor) == ("hello", 42)
    assert gateway.header("last-event-id") == [None, "50", None]


async def test_without_resuming_frames_that_are_gone_are_an_error(gateway: ScriptedGateway) -> None:
    gateway.answers = [refused(410, "STREAM_GONE", oldestSeq=900)]
    with pytest.raises(StreamGone) as raised:
        await gateway.client().resume_stream(STREAM, since=5, resume=False).read()
    assert (raised.value.status, raised.value.fields) == (410, {"oldestSeq": 900})


# How it ends -------------------------------------------------------------------------------------------------------


async def test_a_reader_who_has_all_of_it_gets_the_result(gateway: ScriptedGateway) -> None:
    gateway.answers = [Scripted(status=204, headers={"X-Stream-Id": STREAM}), resumed((1, None, "hello"), END)]
    stream = gateway.client().resume_stream(STREAM, since=4)
    frames = await frames_of(stream)
    assert [type(frame) for frame in frames] == [Ended]
    assert stream.result.status == "completed"
    assert gateway.header("last-event-id") == ["4", None]


async def test_nothing_twice_is_no_stream(gateway: ScriptedGateway) -> None:
    gateway.answers = [Scripted(status=204, headers={"X-Stream-Id": STREAM})] * 2
    with pytest.raises(UnexpectedAnswer):
        await gateway.client().resume_stream(STREAM, since=4).read()


async def test_a_run_that_fails_ends_with_its_error(gateway: ScriptedGateway) -> None:
    error = {
        "code": "PROVIDER_ERROR",
        "message": "the model is away",
        "requestId": "req_1",
        "retryable": True,
        "runId": "run_1",
        "invocationId": "inv_1",
        "streamId": STREAM,
        "status": "failed",
        "steps": 2,
        "unanswered": [{"id": "in_1", "text": "wait"}],
    }
    gateway.answers = [
        streamed((1, None, "hal"), (2, "rewind", {"toSeq": 0, "length": 0}), (3, "error", {"error": error}))
    ]
    stream = gateway.client().stream("talker", input="hi")
    ended = (await frames_of(stream))[-1]
    assert isinstance(ended, Ended)
    assert (stream.result.status, stream.result.steps, stream.text) == ("failed", 2, "")
    assert [item.text for item in stream.result.unanswered] == ["wait"]
    with pytest.raises(ProviderError, match="the model is away") as raised:
        stream.result.raise_for_failure()
    assert raised.value.retryable


async def test_an_error_of_the_connection_does_not_end_the_stream(gateway: ScriptedGateway) -> None:
    body = {"error": {"code": "STORE_UNAVAILABLE", "message": "away", "requestId": "req_1", "retryable": True}}
    gone = {
        "error": {
            "code": "STREAM_GONE",
            "message": "too slow",
            "requestId": "req_1",
            "retryable": False,
            "oldestSeq": 9,
        }
    }
    gateway.answers = [
        streamed((1, None, "hel"), (None, "error", body)),
        resumed((2, None, "x"), (None, "error", gone)),
        resumed((None, "rewind", {"toSeq": 0, "length": 0}), (3, None, "hello"), END),
    ]
    stream = gateway.client().stream("talker", input="hi")
    await stream.read()
    assert stream.text == "hello"
    assert gateway.header("last-event-id") == [None, "1", None]


async def test_a_run_that_was_deleted_ends_it(gateway: ScriptedGateway) -> None:
    gone = {"error": {"code": "RUN_NOT_FOUND", "message": "the run was deleted", "requestId": None, "retryable": False}}
    gateway.answers = [streamed((1, None, "hel"), (None, "error", gone))]
    with pytest.raises(RunNotFound):
        await gateway.client().stream("talker", input="hi").read()


async def test_a_token_that_expires_is_replaced(gateway: ScriptedGateway) -> None:
    expired = {"error": {"code": "UNAUTHENTICATED", "message": "expired", "requestId": "r", "retryable": False}}
    tokens = iter(["one", "two", "three"])
    gateway.answers = [
        streamed((1, None, "hel"), (None, "error", expired)),
        refused(401, "UNAUTHENTICATED", reason="expired"),
        resumed((2, None, "lo"), END),
    ]
    stream = gateway.client(token=lambda: next(tokens)).stream("talker", input="hi")
    await stream.read()
    assert stream.text == "hello"
    assert gateway.header("authorization") == ["Bearer one", "Bearer two", "Bearer three"]


async def test_a_token_that_nothing_replaces_ends_it(gateway: ScriptedGateway) -> None:
    expired = {"error": {"code": "UNAUTHENTICATED", "message": "expired", "requestId": "r", "retryable": False}}
    gateway.answers = [streamed((1, None, "hel"), (None, "error", expired))]
    with pytest.raises(Unauthenticated):
        await gateway.client(token="good").stream("talker", input="hi").read()


# What comes --------------------------------------------------------------------------------------------------------


async def test_every_kind_has_its_class_and_no_kind_is_lost(gateway: ScriptedGateway) -> None:
    call = {"id": "t_1", "name": "look", "input": {"at": 1}}
    gateway.answers = [
        streamed(
            (1, "message", {"seq": 1, "role": "user"}),
            (2, "thinking", '{"no": "JSON, but text"}'),
            (3, "tool_start", call),
            (4, "output", {"id": "t_1", "text": "so far"}),
            (5, "tool", {**call, "isError": True, "durationMs": 12, "new": "field"}),
            (6, "steered", {"inputIds": ["in_1"]}),
            (7, "progress", {"done": 0.5}),
            (8, "progress", "no JSON"),
            (9, "invented_later", {"a": 1}),
            (10, "tool", {"another": "shape"}),
            (11, None, "line one\nline two"),
            (12, "result", result(new="field")),
        )
    ]
    frames = await frames_of(gateway.client().stream("clerk", input="hi"))
    assert [type(frame).__name__ for frame in frames] == (
        ["Committed", "Thinking", "ToolStart", "Output", "ToolEnd", "Steered", *["Event"] * 4, "Text", "Ended"]
    )
    committed, thinking, start, output, end, steered, progress, plain, later, strange, text, ended = frames
    assert (committed.row, committed.role) == (1, "user")
    assert thinking.text == '{"no": "JSON, but text"}'
    assert (start.id, start.name, start.input) == ("t_1", "look", {"at": 1})
    assert (output.id, output.text) == ("t_1", "so far")
    assert (end.is_error, end.duration_ms, end.data["new"]) == (True, 12, "field")
    assert steered.input_ids == ("in_1",)
    assert (progress.event, progress.data) == ("progress", {"done": 0.5})
    assert plain.data == "no JSON"
    assert isinstance(later, Event)
    assert (later.event, strange.event, strange.data) == ("invented_later", "tool", {"another": "shape"})
    assert text.text == "line one\nline two"
    assert ended.result.model_extra == {"new": "field"}
    assert ended.result.to_json() == result(new="field")


async def test_a_function_that_streams_nothing_has_its_end_alone(gateway: ScriptedGateway) -> None:
    gateway.answers = [told(200, result("", output=[1, 2]), X_Run_Id="run_1", X_Stream_Id=STREAM)]
    frames = await frames_of(gateway.client().stream_function("add", {"first": 1}))
    assert [type(frame) for frame in frames] == [Ended]
    assert frames[0].result.output == [1, 2]
    assert gateway.requests[0].read() == b'{"input":{"first":1}}'


async def test_input_that_steers_is_told_so(gateway: ScriptedGateway) -> None:
    receipt = {"runId": "run_1", "queued": 1, "inputId": "in_2"}
    gateway.answers = [
        streamed((7, "queued", receipt), (8, None, "more"), cut=CUT),
        resumed((9, "result", result("more"))),
    ]
    stream = gateway.client().stream("talker", input="hi", run_id="run_1")
    queued, *_ = await frames_of(stream)
    assert (queued.seq, queued.input_id, queued.queued) == (7, "in_2", 1)
    assert stream.text == "more"
    assert gateway.header("last-event-id") == [None, "8"]
