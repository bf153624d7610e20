"""`runyard fsck` on streams: whatever is broken by hand in Redis is found, and nothing else."""

import json
from collections.abc import Awaitable, Callable

import pytest
from tests.contract.execution.worker import Settled, Worker
from tests.contract.fsck.inspecting import codes, execute, found, kept_for_ever, rewrite, set_meta, two_steps
from tests.contract.store import states
from tests.fakes.databases import Fault
from tests.fakes.provider import asks, says
from tests.fakes.rows import tool_use

from runyard import RunContext, tool
from runyard.db import boundaries
from runyard.errors import ProviderError
from runyard.frames import Frame, FrameEvent, event_payload
from runyard.fsck.findings import Code
from runyard.streams.ops import Close
from runyard_workers.providers.model import TextDelta

pytestmark = pytest.mark.anyio


@pytest.fixture
async def settled(worker: Worker) -> Settled:
    return await two_steps(worker)


async def test_a_stream_whose_time_is_over_is_sound(worker: Worker, settled: Settled) -> None:
    stream_id = settled.invocation.stream_id
    await worker.store._client.delete(worker.store.keys.frames(stream_id))
    assert await codes(worker) == []
    await worker.store._client.delete(worker.store.keys.meta(stream_id))
    assert await codes(worker) == []


async def test_a_stream_that_is_not_closed(worker: Worker, settled: Settled) -> None:
    await execute(worker, "UPDATE agent_invocations SET stream_closed = FALSE")
    (finding,) = await found(worker)
    assert (finding.code, finding.stream_id) == (Code.STREAM_OPEN, settled.invocation.stream_id)
    await execute(worker, "UPDATE agent_invocations SET stream_closed = TRUE")
    await set_meta(worker, settled.invocation.stream_id, state="live")
    assert await codes(worker) == [Code.STREAM_OPEN]


async def test_a_stream_that_is_closed_too_early(worker: Worker) -> None:
    run = await states.accepted(worker.database)
    invocation = (await states.run_and_invocation(worker.database, run.id))[1]
    await worker.store.close(
        Close(stream_id=invocation.stream_id, settled_last=0, frames=[event_payload("result", {})])
    )
    (finding,) = await found(worker)
    assert (finding.code, finding.stream_id) == (Code.STREAM_EARLY, invocation.stream_id)


def other_text(frame: Frame) -> Frame:
    return frame if frame.event is not None else Frame(frame.seq, None, frame.data.upper())


def without_text(frame: Frame) -> Frame:
    """As if a rewind had come too late, or a deletion of a frame had kept its number."""
    return frame if frame.data != b"it." else Frame(frame.seq, "status", b"{}")


def bad_utf8(frame: Frame) -> Frame:
    return frame if frame.data != b"it." else Frame(frame.seq, None, b"\xff")


def rewind_that_lies(frame: Frame) -> Frame:
    """It withdraws nothing, and tells another length than what is left."""
    if frame.event != FrameEvent.MESSAGE or frame.seq == 2:
        return frame
    return Frame(frame.seq, *event_payload("rewind", {"toSeq": frame.seq - 1, "length": 3}))


def other_end(frame: Frame) -> Frame:
    return Frame(frame.seq, frame.event, frame.data.replace(b"end_turn", b"max_tokens"))


def end_in_the_middle(frame: Frame) -> Frame:
    return Frame(frame.seq, "result", b"{}") if frame.event == "tool" else frame


def hole(frame: Frame) -> Frame | None:
    return None if frame.event == "tool" else frame


def no_end(frame: Frame) -> Frame | None:
    return None if frame.is_terminal else frame


def no_beginning(frame: Frame) -> Frame | None:
    return None if frame.seq == 1 else frame


@pytest.mark.parametrize(
    ("code", "change"),
    [
        (Code.STREAM_TEXT, other_text),
        (Code.STREAM_TEXT, without_text),
        (Code.STREAM_REWIND, rewind_that_lies),
        (Code.STREAM_END, other_end),
        (Code.STREAM_END, end_in_the_middle),
        (Code.STREAM_NUMBERS, hole),
        (Code.STREAM_NUMBERS, no_end),
        (Code.STREAM_NUMBERS, no_beginning),
    ],
)
async def test_what_is_broken_of_a_stream_is_found(
    worker: Worker, settled: Settled, code: Code, change: Callable[[Frame], Frame | None]
) -> None:
    await rewrite(worker, settled.invocation.stream_id, lambda frame: frame)
    assert await codes(worker) == []
    await rewrite(worker, settled.invocation.stream_id, change)
    (finding,) = await found(worker)
    assert (finding.code, finding.stream_id) == (code, settled.invocation.stream_id)


@pytest.mark.parametrize("change", [{"last": 1}, {"last": 99}, {"first": 3}])
async def test_a_hash_that_tells_of_other_frames_than_there_are(
    worker: Worker, settled: Settled, change: dict[str, int]
) -> None:
    """By a `last` that is too low a reader before the end is told that it has all; by `first`, that frames are gone."""
    await set_meta(worker, settled.invocation.stream_id, **change)
    (finding,) = await found(worker)
    assert (finding.code, finding.stream_id) == (Code.STREAM_NUMBERS, settled.invocation.stream_id)


async def test_a_frame_that_cannot_be_read(worker: Worker, settled: Settled) -> None:
    await rewrite(worker, settled.invocation.stream_id, bad_utf8)
    assert await codes(worker) == [Code.STREAM_TEXT] * 2


async def test_another_end_than_the_row_gives(worker: Worker, settled: Settled) -> None:
    result = json.dumps(settled.result | {"finishReason": "stop_sequence"})
    await execute(worker, "UPDATE agent_invocations SET result = :result", result=result)
    assert await codes(worker) == [Code.STREAM_END]


async def test_a_stream_without_its_oldest_frames(worker: Worker, settled: Settled) -> None:
    stream_id = settled.invocation.stream_id
    kept = next(frame.seq for frame in settled.frames if frame.data == b"it.")
    await rewrite(worker, stream_id, lambda frame: frame if frame.seq >= kept else None)
    await set_meta(worker, stream_id, first=kept)
    assert await codes(worker) == []
    await rewrite(worker, stream_id, other_text)
    assert await codes(worker) == [Code.STREAM_TEXT]


async def test_keys_that_stay_for_ever(worker: Worker, settled: Settled) -> None:
    client, keys = worker.store._client, worker.store.keys
    await client.set(f"{keys.prefix}:broker:default", "the broker's own")
    assert await codes(worker) == []
    meta = keys.meta(settled.invocation.stream_id)
    async with kept_for_ever(worker, meta):
        (finding,) = await found(worker)
        assert (finding.code, finding.key) == (Code.KEY_TTL, meta)
        async with kept_for_ever(worker, keys.finished):
            assert await codes(worker) == [Code.KEY_TTL] * 2
    assert await codes(worker) == []


# Streams with a history --------------------------------------------------------------------------------------------


async def failed(worker: Worker) -> None:
    worker.script([TextDelta("never "), ProviderError("no", status=400, type="invalid_request_error")])
    await worker.run()


async def reset(worker: Worker) -> None:
    """Redis forgets everything in the middle."""

    async def forget() -> None:
        keys = [key async for key in worker.store._client.scan_iter(f"{worker.store.keys.prefix}:stream:*")]
        await worker.store._client.delete(*keys)

    answer = says("Found ", "it.")
    worker.script(asks(tool_use("a", "lookup"), saying="Let me look. "), [answer[0], forget, *answer[1:]])
    worker.agent = type(worker.agent)(**{**vars(worker.agent), "tools": (lookup_slowly,)})
    await worker.run()


async def loaded_anew(worker: Worker) -> None:
    """After a commit of unknown outcome text is withdrawn and said again."""
    worker.database.faults[boundaries.end_turn] = [Fault.LOST_REQUEST]
    worker.script(says("Once ", "more."))
    await worker.run()


@tool
async def lookup_slowly(ctx: RunContext) -> str:
    """Look it up."""
    ctx.stream.write("looking")
    return "three pages"


@pytest.mark.parametrize("history", [failed, reset, loaded_anew])
async def test_whatever_a_stream_went_through_is_sound(
    worker: Worker, history: Callable[[Worker], Awaitable[None]]
) -> None:
    await history(worker)
    assert await codes(worker) == []
