"""A run's stream when Redis is away, forgets, or is another one: the reader's text equals the rows in the end."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace

import pytest
from tests.contract.execution.crew import reached
from tests.contract.execution.redis_losses import Loss, forget_all, forget_newest
from tests.contract.execution.worker import GUARD_S, Settled, Worker, look
from tests.fakes.models import QueuedModels
from tests.fakes.provider import MODEL, asks, says, turn
from tests.fakes.rows import text, tool_use

from runyard import RunContext, tool
from runyard.db import boundaries, claims
from runyard.db.claims import Claim
from runyard.errors import ProviderError, ProviderUnavailable
from runyard.frames import Frame, FrameEvent, answer_text, cost_bytes, event_payload
from runyard.lifecycle.endings import stored_ending
from runyard.runs import RunStatus
from runyard_workers import closer as closer_module
from runyard_workers import flusher, output
from runyard_workers.closer import Closer
from runyard_workers.execution import Execution
from runyard_workers.providers.model import TextDelta, ThinkingDelta
from runyard_workers.stream_writer import StreamWriter

pytestmark = pytest.mark.anyio

RESET = {"toSeq": 0, "length": 0}


@pytest.fixture
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "FLUSH_BEFORE_COMMIT_S", 0.01)
    monkeypatch.setattr(StreamWriter.flush, "__defaults__", (0.01,))
    monkeypatch.setattr(StreamWriter.opened, "__defaults__", (0.01,))


losses = pytest.mark.parametrize("lose", [forget_all, forget_newest])


async def run_with_loss_in_the_tool(worker: Worker, lose: Loss) -> tuple[list[Frame], Settled]:
    """Two steps; while the tool runs, Redis loses what the first one said. Returns what was seen before that."""
    claim = await worker.claim()
    seen: list[Frame] = []

    @tool
    async def lookup() -> str:
        seen.extend(await worker.seen(claim))
        await lose(worker, claim.invocation.stream_id)
        return "found"

    worker.script(
        asks(tool_use("toolu_1", "lookup"), saying="Let me ch\u00e9ck. "), says("Found ", "it."), tools=[lookup]
    )
    return seen, await worker.execute(claim)


@losses
async def test_lost_frames_are_made_good_with_the_next_turn(worker: Worker, lose: Loss) -> None:
    seen, settled = await run_with_loss_in_the_tool(worker, lose)
    settled.check(seen=seen)
    base = settled.invocation.frame_base
    assert base is not None
    assert base > seen[-1].seq + 900_000
    assert (settled.frames[1].seq, settled.frames[1].data.decode()) == (base + 1, "Let me ch\u00e9ck. ")
    assert settled.events("rewind") == [RESET]
    said = [frame for frame in settled.frames[2:] if frame.event is None]
    assert b"".join(frame.data for frame in said) == b"Found it."
    assert (settled.rows[3].first_frame, settled.rows[3].last_frame) == (base + 2, said[-1].seq)


@losses
async def test_an_answer_that_is_lost_half_way_is_told_again_before_it_ends(worker: Worker, lose: Loss) -> None:
    seen: list[Frame] = []
    meanwhile: list[Frame] = []

    async def lose_now() -> None:
        seen.extend(await worker.seen(claim))
        await lose(worker, claim.invocation.stream_id)

    async def see() -> None:
        """Redis is found out by the frame that it cannot take; the model says nothing meanwhile."""
        while not meanwhile or meanwhile[-1].data != b"One two ":
            await asyncio.sleep(0.01)
            meanwhile[:] = await worker.seen(claim)

    thought = ThinkingDelta("It seems so. ")
    deltas = [TextDelta(word) for word in ("One ", "two ", "three ", "four.")]
    worker.script(
        [thought, deltas[0], lose_now, deltas[1], see, deltas[2], deltas[3], turn(text("One two three four."))]
    )
    claim = await worker.claim()
    settled = (await worker.execute(claim)).check(seen=seen)
    assert [(frame.event, frame.data) for frame in meanwhile] == [
        ("rewind", event_payload("rewind", RESET)[1]),
        ("thinking", b"It seems so. "),
        (None, b"One two "),
    ]
    assert settled.frames[: len(meanwhile)] == meanwhile
    base = settled.invocation.frame_base
    assert base == meanwhile[0].seq > seen[-1].seq + 900_000
    assert (settled.rows[1].first_frame, settled.rows[1].last_frame) == (base + 1, base + 4)


async def give_back_after_the_first_step(worker: Worker) -> tuple[list[Frame], Claim]:
    claim = await worker.claim()
    stopped = asyncio.Event()

    @tool(idempotent=True)
    async def lookup() -> str:
        if not stopped.is_set():
            stopped.set()
            await asyncio.Event().wait()
        return "found"

    worker.script(asks(tool_use("toolu_1", "lookup"), saying="Let me check. "), says("Found it."), tools=[lookup])
    running = asyncio.create_task(worker.execution(claim).run())
    async with asyncio.timeout(GUARD_S):
        await stopped.wait()
    seen = await worker.seen(claim)
    running.cancel()
    await asyncio.wait([running])
    await worker.database.write(claims.give_back, claim.run.id, claim.run.generation)
    return seen, claim


@losses
async def test_frames_lost_between_two_workers_are_made_good_at_once(worker: Worker, lose: Loss) -> None:
    seen, first = await give_back_after_the_first_step(worker)
    await lose(worker, first.invocation.stream_id)
    settled = (await worker.execute(await worker.claim_queued())).check(seen=seen)
    assert settled.events("rewind") == [RESET]
    assert settled.invocation.frame_base == settled.frames[0].seq


async def half_said(worker: Worker) -> tuple[list[Frame], Claim]:
    """A run whose first words were seen, and lost by Redis, before any row accounts for them; it goes on."""
    begun = asyncio.Event()
    worker.script([TextDelta("Half an "), begun.set, asyncio.Event()])
    claim = await worker.claim()
    running = asyncio.create_task(worker.execution(claim).run())
    await reached(begun)
    seen = await worker.seen(claim)
    running.cancel()
    await asyncio.wait([running])
    return seen, claim


async def test_words_lost_before_any_row_was_stored_are_made_good_by_the_next_worker(worker: Worker) -> None:
    """Nothing is committed that could be missed: that the stream is gone is all that tells of it."""
    seen, first = await half_said(worker)
    await worker.database.write(claims.give_back, first.run.id, first.run.generation)
    await forget_all(worker, first.invocation.stream_id)
    worker.script(says("A whole ", "answer."))
    settled = (await worker.execute(await worker.claim_queued())).check(seen=seen)
    assert settled.events("rewind") == [RESET]


async def test_words_lost_before_a_failure_are_withdrawn(worker: Worker) -> None:
    seen: list[Frame] = []

    async def lose_what_was_said() -> None:
        seen.extend(await worker.seen(claim))
        await forget_all(worker, claim.invocation.stream_id)

    async def notice() -> None:
        await worker.seen(claim)

    worker.script([TextDelta("Half an "), lose_what_was_said, TextDelta("answer"), notice, ProviderError("refused")])
    claim = await worker.claim()
    settled = (await worker.execute(claim)).check(seen=seen)
    assert settled.run.status is RunStatus.FAILED
    assert settled.order == ["rewind", "error"]


@pytest.mark.parametrize("run_id", ["redis-2", None])
async def test_behind_another_redis_every_frame_is_in_doubt(worker: Worker, run_id: str | None) -> None:
    seen, _ = await give_back_after_the_first_step(worker)
    worker.server.now = run_id
    settled = (await worker.execute(await worker.claim_queued())).check(seen=seen)
    assert settled.events("rewind") == [RESET]
    assert settled.invocation.redis_run_id == (run_id or "redis-1")


async def test_behind_the_same_redis_the_stream_goes_on(worker: Worker) -> None:
    seen, _ = await give_back_after_the_first_step(worker)
    settled = (await worker.execute(await worker.claim_queued())).check(seen=seen)
    assert settled.invocation.frame_base is None
    assert settled.frames[: len(seen)] == seen


async def test_a_second_loss_gets_a_higher_base(worker: Worker) -> None:
    seen, first = await give_back_after_the_first_step(worker)
    await forget_all(worker, first.invocation.stream_id)

    async def forget_again() -> None:
        seen.extend(frame for frame in await worker.seen(first) if frame.seq > seen[-1].seq)
        await forget_all(worker, first.invocation.stream_id)

    worker.database.before[boundaries.end_turn] = forget_again
    settled = (await worker.execute(await worker.claim_queued())).check(seen=seen)
    assert settled.frames[0].seq > 2_000_000
    assert settled.invocation.frame_base == settled.frames[0].seq


@pytest.mark.usefixtures("short_waits")
async def test_a_run_completes_without_redis_and_its_frames_come_later(worker: Worker) -> None:
    @tool
    async def lookup() -> str:
        return "found"

    worker.script(asks(tool_use("toolu_1", "lookup"), saying="Let me check. "), says("Found ", "it."), tools=[lookup])
    claim = await worker.claim()
    worker.store.away = True
    async with asyncio.timeout(GUARD_S):
        await worker.execution(claim).run()
    ended = await look(worker.database, worker.store, claim.run.id)
    assert (ended.run.status, ended.invocation.stream_closed, ended.frames) == (RunStatus.COMPLETED, False, [])
    worker.store.away = False
    settled = (await worker.settled(claim.run.id)).check()
    assert settled.order == [
        *("status", "message", "", "message", "tool_start", "tool", "message"),
        *("", "", "message", "result"),
    ]


@pytest.mark.usefixtures("short_waits")
async def test_a_run_taken_over_without_redis_begins_anew_when_it_is_back(worker: Worker) -> None:
    seen, first = await give_back_after_the_first_step(worker)
    worker.store.away = True
    async with asyncio.timeout(GUARD_S):
        await worker.execution(await worker.claim_queued()).run()
    worker.store.away = False
    settled = (await worker.settled(first.run.id)).check(seen=seen)
    assert settled.events("rewind") == [RESET]


@pytest.mark.usefixtures("short_waits")
async def test_beyond_the_buffer_frames_are_lost_and_the_text_is_not(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flusher, "BUFFER_MAX_BYTES", 1000)

    def redis_goes() -> None:
        worker.store.away = True

    worker.script([worker.store.applied, redis_goes, *says(*(f"{number} " for number in range(50)))])
    claim = await worker.claim()
    async with asyncio.timeout(GUARD_S):
        await worker.execution(claim).run()
    worker.store.away = False
    settled = (await worker.settled(claim.run.id)).check()
    assert settled.events("rewind") == [RESET]
    assert [frame.data.count(b" ") for frame in settled.frames if frame.event is None] == [50]


@losses
async def test_frames_lost_before_the_end_are_made_good_by_the_close(worker: Worker, lose: Loss) -> None:
    worker.script(says("All of ", "the answer."))
    claim = await worker.claim()
    seen: list[Frame] = []

    async def lose_now() -> None:
        seen.extend(await worker.seen(claim))
        await lose(worker, claim.invocation.stream_id)

    worker.database.before[boundaries.end_turn] = lose_now
    settled = (await worker.execute(claim)).check(seen=seen)
    assert settled.order == ["rewind", "", "message", "result"]
    assert settled.invocation.frame_base == settled.frames[0].seq > 1_000_000


async def test_what_is_written_after_the_end_is_dropped(worker: Worker) -> None:
    kept: list[RunContext] = []

    @tool
    async def lookup(ctx: RunContext) -> str:
        kept.append(ctx)
        return "found"

    def system(ctx: RunContext) -> str:
        kept.append(ctx)
        ctx.stream.event("prompt", {})
        return "Be brief."

    async def write_late() -> None:
        for ctx in kept:
            ctx.stream.event("late", {})

    worker.script(asks(tool_use("toolu_1", "lookup")), says("Done."), tools=[lookup], system=system)
    worker.database.before[boundaries.end_turn] = write_late
    settled = (await worker.run()).check()
    await write_late()
    assert len(kept) == 3
    assert settled.events("late") == []
    assert settled.frames[-1].seq == settled.invocation.last_frame + 2
    assert settled.order.count("prompt") == 2


def with_closer(worker: Worker, closer: Closer, claim: Claim) -> Execution:
    return Execution(replace(worker.services, closer=closer), claim, worker.loaded)


async def test_a_stream_that_its_worker_did_not_close_is_closed_from_the_rows(worker: Worker) -> None:
    worker.script(says("Hello."))
    claim = await worker.claim()
    await with_closer(worker, Closer(worker.database, worker.store), claim).run()
    ended = await look(worker.database, worker.store, claim.run.id)
    assert ended.order[-1] == ""
    worker.closer.close(stored_ending(ended.invocation, ended.rows))
    settled = (await worker.settled(claim.run.id)).check()
    assert settled.order[-2:] == ["message", "result"]


async def test_of_two_who_close_the_first_one_wins(worker: Worker) -> None:
    worker.script(says("Hello."))
    settled = (await worker.run()).check()
    worker.closer.close(stored_ending(settled.invocation, settled.rows))
    again = (await worker.settled(settled.run.id)).check()
    assert again.frames == settled.frames


async def test_many_streams_are_closed_in_several_calls(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(closer_module, "CLOSES_A_CALL", 2)
    worker.script(says("Hello."))
    found = [await worker.claim() for _ in range(5)]
    await asyncio.gather(*(worker.execution(claim).run() for claim in found))
    for claim in found:
        (await worker.settled(claim.run.id)).check()


async def test_an_end_that_cannot_be_made_keeps_no_other_stream_open(worker: Worker) -> None:
    """A fault of ours in one of them: the worker goes on, and so does the next sweep."""
    worker.script(says("Hello."))
    settled = [(await worker.run()).check() for _ in range(3)]
    endings = [stored_ending(each.invocation, each.rows) for each in settled]
    streams = [each.stream_id for each in endings]
    await worker.store.forget(streams)
    worker.closer.close(replace(endings[0], result={"text": object()}))  # no JSON
    for ending in endings[1:]:
        worker.closer.close(ending)
    async with asyncio.timeout(GUARD_S):
        await worker.closer.drained()
    assert (await worker.store.infos(streams)).keys() == set(streams[1:])


@pytest.mark.usefixtures("short_waits")
async def test_while_redis_is_away_no_more_than_the_newest_ends_are_kept(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(closer_module, "UNCLOSED_MAX", 2)
    worker.script(says("Hello."))
    found = [await worker.claim() for _ in range(3)]
    worker.store.away = True
    for claim in found:
        await worker.execution(claim).run()
    assert len(worker.flusher._writers) == 2
    worker.store.away = False
    for claim in found[1:]:  # the first one's is found by its row, if it was not on its way already
        (await worker.settled(claim.run.id)).check()
    assert worker.flusher._writers == set()


async def test_what_is_kept_of_a_long_answer_makes_the_whole_of_it(worker: Worker) -> None:
    """At every frame, whatever of the first ones is gone by then: where an attempt failed and where it thinks, too."""

    @tool
    async def lookup() -> str:
        return "found"

    worker.store.max_bytes = 4000
    words = [TextDelta(f"{number} ") for number in range(150)]
    thoughts = [ThinkingDelta(f"Hm {number}. ") for number in range(30)]
    cut = ProviderUnavailable("the provider's stream ended early", status=200, type="cut_stream")
    scripts = [
        asks(tool_use("toolu_1", "lookup"), saying="Kept. "),
        [*words, cut],
        [*thoughts, *words, turn(text("".join(word.text for word in words)))],
    ]
    worker.script(model=MODEL, tools=[lookup])
    services = replace(worker.services, providers=QueuedModels(scripts={MODEL: scripts}))  # type: ignore[arg-type]
    claim = await worker.claim()
    async with asyncio.timeout(GUARD_S):
        await Execution(services, claim, worker.loaded).run()
    settled = (await worker.settled(claim.run.id)).check()
    committed = settled.rows[1].last_frame
    assert committed is not None
    assert len(settled.events("rewind")) > 4
    for at in range(committed + 1, settled.rows[3].last_frame or 0):
        seen = settled.frames[:at]
        kept, kept_bytes = len(seen), 0
        while kept and (kept_bytes := kept_bytes + cost_bytes(*seen[kept - 1][1:])) <= worker.store.max_bytes:
            kept -= 1
        assert newcomer(seen[kept:], after=committed, has="Kept. ") == newcomer(seen, after=0, has="")


def newcomer(frames: Sequence[Frame], *, after: int, has: str) -> str:
    """The text of a reader that `has` the committed text, up to frame `after`, and reads these frames."""
    pieces = [(after, has)]
    for frame in frames:
        if frame.event == FrameEvent.REWIND:
            to_seq = json.loads(frame.data)["toSeq"]
            pieces = [piece for piece in pieces if piece[0] <= to_seq]
        elif frame.seq > after and (piece := answer_text(frame.event, frame.data)) is not None:
            pieces.append((frame.seq, piece))
    return "".join(piece for _, piece in pieces)
