"""A run that leaves its worker in the middle, and the worker that goes on with it."""

import asyncio
import threading
from typing import Any

import pytest
import sqlalchemy as sa
from tests.contract.execution.crew import Crew, give_back_all, own, reached
from tests.contract.execution.worker import GUARD_S, Worker
from tests.contract.store import states
from tests.fakes.provider import asks, says
from tests.fakes.rows import text, tool_use

from runyard import RunContext, tool
from runyard.blocks import INTERRUPTED
from runyard.db import boundaries, claims, turns
from runyard.db.claims import Claim
from runyard.db.tables import agent_invocations
from runyard.runs import CallState, RunStatus
from runyard_workers.liveness import Liveness
from runyard_workers.providers.model import TextDelta

pytestmark = pytest.mark.anyio


async def give_back(worker: Worker, claim: Claim) -> Claim:
    """As a worker's death does; the run as the next worker claims it."""
    await worker.database.write(claims.give_back, claim.run.id, claim.run.generation)
    return await worker.claim_queued()


async def test_a_model_call_that_is_given_back_is_made_anew(worker: Worker) -> None:
    begun = asyncio.Event()
    worker.script([TextDelta("Half an "), begun.set, asyncio.Event()])
    first, crew = await worker.claim(), Crew(worker=worker)
    crew.start(first)
    await reached(begun)
    seen = await worker.seen(first)
    await give_back_all(crew.runner)
    assert worker.provider.open_streams == 0
    assert crew.publisher.woken == [(first.run.id, first.invocation.id, "default")]
    await crew.left()

    worker.script(says("A whole ", "answer."))
    settled = (await worker.execute(await worker.claim_queued())).check(seen=seen)
    assert settled.order == ["status", "message", "", "rewind", "status", "", "", "message", "result"]
    assert settled.run.generation == first.run.generation + 2
    assert (settled.result["steps"], settled.contents[-1]) == (1, [text("A whole answer.")])


async def test_text_of_committed_steps_is_kept(worker: Worker) -> None:
    begun = asyncio.Event()

    @tool
    async def lookup() -> str:
        return "found"

    step = asks(tool_use("toolu_1", "lookup"), saying="Let me check.")
    worker.script(step, [TextDelta("It sa"), begun.set, asyncio.Event()], tools=[lookup])
    first, crew = await worker.claim(), Crew(worker=worker)
    crew.start(first)
    await reached(begun)
    seen = await worker.seen(first)
    await give_back_all(crew.runner)

    worker.script(step, says("It says so."), tools=[lookup])
    settled = (await worker.execute(await worker.claim_queued())).check(seen=seen)
    assert settled.events("rewind") == [{"toSeq": settled.rows[1].last_frame, "length": len("Let me check.")}]
    assert (settled.result["steps"], settled.run.usage["input_tokens"]) == (2, 40)
    assert settled.events("tool_start") == [{"id": "toolu_1", "name": "lookup", "input": {}}]


async def test_a_stream_that_its_first_worker_never_made_begins_as_one_that_was_lost(worker: Worker) -> None:
    """Nothing tells the two apart."""
    worker.script(says("Hi."))
    settled = (await worker.execute(await give_back(worker, await worker.claim()))).check()
    assert settled.order == ["rewind", "status", "", "message", "result"]


async def test_each_call_goes_on_as_the_ledger_says(worker: Worker, block: threading.Event) -> None:
    done: list[tuple[str, str | None]] = []
    started = {name: asyncio.Event() for name in ("pay", "fetch")}
    hangs = [True]
    loop = asyncio.get_running_loop()

    def note(ctx: RunContext, name: str) -> None:
        done.append((name, ctx.idempotency_key))

    @tool
    async def look(ctx: RunContext) -> str:
        note(ctx, "look")
        return "seen"

    @tool
    def pay(ctx: RunContext) -> str:
        note(ctx, "pay")
        loop.call_soon_threadsafe(started["pay"].set)
        block.wait(GUARD_S)
        return "paid"

    @tool(idempotent=True)
    async def fetch(ctx: RunContext) -> str:
        note(ctx, "fetch")
        started["fetch"].set()
        if hangs[0]:
            await asyncio.Event().wait()
        return "fetched"

    @tool(exclusive=True)
    async def tidy(ctx: RunContext) -> str:
        note(ctx, "tidy")
        return "tidied"

    calls = [tool_use(f"toolu_{number}", name) for number, name in enumerate(["look", "pay", "fetch", "tidy"])]
    worker.script(asks(*calls), says("Done."), tools=[look, pay, fetch, tidy])
    first, crew = await worker.claim(), Crew(worker=worker)
    crew.start(first)
    await worker.database.wrote(turns.finish_call)
    for event in started.values():
        await reached(event)
    await give_back_all(crew.runner)
    await crew.left()
    hangs[0] = False

    settled = (await worker.execute(await worker.claim_queued())).check()
    assert [(result["content"], result.get("is_error", False)) for result in settled.results] == [
        ("seen", False),
        (INTERRUPTED, True),
        ("fetched", False),
        ("tidied", False),
    ]
    keys = dict(done)
    assert sorted(done) == sorted([*keys.items(), ("fetch", keys["fetch"])])
    assert len(set(keys.values())) == 4
    assert [call.state for call in settled.calls] == [CallState.FINISHED] * 4


async def test_a_call_with_broken_input_stays_refused(worker: Worker) -> None:
    ran: list[str] = []

    @tool
    async def write(path: str = "a.txt") -> None:
        ran.append(path)

    turn = asks(tool_use("toolu_1", "write"), broken_inputs={"toolu_1": "its input is not valid JSON"})
    worker.script(turn, says("Sorry."), tools=[write])
    first, crew = await worker.claim(), Crew(worker=worker)
    at_results = asyncio.Event()

    async def stop_here() -> None:
        at_results.set()
        await asyncio.Event().wait()

    worker.database.before[boundaries.append_results] = stop_here
    crew.start(first)
    await reached(at_results)
    await give_back_all(crew.runner)
    settled = (await worker.execute(await worker.claim_queued())).check()
    assert (settled.results[0]["content"], ran) == ("its input is not valid JSON", [])


@pytest.mark.parametrize(
    "work",
    [turns.append_turn, turns.start_calls, boundaries.append_results, boundaries.end_turn],
    ids=lambda work: work.__name__,
)
async def test_a_run_that_is_stopped_in_a_commit_goes_on_elsewhere(worker: Worker, work: Any) -> None:
    runs: list[str] = []

    @tool(idempotent=True)
    async def lookup(q: str) -> str:
        runs.append(q)
        return "found"

    worker.script(asks(tool_use("toolu_1", "lookup", q="x"), saying="Let me check."), says("Done."), tools=[lookup])
    first, crew = await worker.claim(), Crew(worker=worker)
    committing = asyncio.Event()

    async def stop_here() -> None:
        committing.set()
        await asyncio.Event().wait()

    worker.database.before[work] = stop_here
    crew.start(first)
    await reached(committing)
    seen = await worker.seen(first)
    await give_back_all(crew.runner)
    settled = (await worker.execute(await worker.claim_queued())).check(seen=seen)
    assert settled.result["text"] == "Done."
    assert len(runs) == (2 if work is boundaries.append_results else 1)


@pytest.mark.parametrize(
    ("deaths", "reason"),
    [
        ([["pay"]] * 3, "3 workers died while the tool 'pay' ran"),
        ([[]] * 10, "10 workers died while they executed the run"),
    ],
)
async def test_a_run_that_kills_its_workers_ends(worker: Worker, deaths: list[list[str]], reason: str) -> None:
    async def count(connection: Any) -> None:
        await connection.execute(sa.update(agent_invocations).values(deaths=deaths))

    worker.script(says("Hi."))
    await states.accepted(worker.database)
    await worker.database.write(count)
    settled = (await worker.execute(await worker.claim_queued())).check()
    assert settled.run.error == {"code": "RUN_CRASHED", "message": reason, "retryable": False}
    assert worker.provider.requests == []


async def test_a_tool_that_comes_back_is_acquitted_of_deaths(worker: Worker) -> None:
    """Also by an error: the process has outlived the call. Deaths stay counted, and other tools stay suspected."""

    @tool
    async def pay() -> None:
        raise RuntimeError("no money")

    async def count(connection: Any) -> None:
        await connection.execute(sa.update(agent_invocations).values(deaths=[["pay"], ["look", "pay"]]))

    worker.script(asks(tool_use("toolu_1", "pay")), says("Done."), tools=[pay])
    await states.accepted(worker.database)
    await worker.database.write(count)
    settled = (await worker.execute(await worker.claim_queued())).check()
    assert (settled.run.status, settled.invocation.deaths) == (RunStatus.COMPLETED, [[], ["look"]])


async def test_without_a_beat_no_model_call_starts(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    worker.script(says("Hi."))
    worker.liveness = Liveness()
    worker.liveness.seen(0)
    waits = asyncio.Event()
    wait = worker.liveness.wait

    async def watched() -> None:
        waits.set()
        await wait()

    monkeypatch.setattr(worker.liveness, "wait", watched)
    running = asyncio.create_task(worker.run())
    await reached(waits)
    await asyncio.sleep(0)
    assert worker.provider.requests == []
    worker.liveness.seen(float("inf"))
    (await running).check()


async def test_a_run_is_dropped_when_two_beats_in_a_row_miss_it(worker: Worker) -> None:
    begun = asyncio.Event()
    worker.script([TextDelta("Half"), begun.set, asyncio.Event()])
    claim, crew = await worker.claim(), Crew(worker=worker)
    crew.start(claim)
    await reached(begun)
    mine = own(claim)
    for stored in ([], mine, []):
        crew.runner.compare(stored)
    await asyncio.sleep(0)
    assert worker.provider.open_streams == 1
    crew.runner.compare(own(claim, taken_over=True))
    await crew.left()
    assert worker.provider.open_streams == 0
    assert (await states.run_row(worker.database, claim.run.id)).status is RunStatus.RUNNING
    assert crew.publisher.woken == []


async def test_a_run_that_nobody_runs_is_given_back_after_two_beats(worker: Worker) -> None:
    claim, crew = await worker.claim(), Crew(worker=worker)
    stored = own(claim)
    for seen in (stored, [], stored):
        crew.runner.compare(seen)
    await asyncio.gather(*crew.runner._background)
    assert (await states.run_row(worker.database, claim.run.id)).status is RunStatus.RUNNING
    crew.runner.compare(stored)
    await asyncio.gather(*crew.runner._background)
    run = await states.run_row(worker.database, claim.run.id)
    assert (run.status, run.worker_id, run.generation) == (RunStatus.QUEUED, None, claim.run.generation + 1)
    assert crew.publisher.woken == [(claim.run.id, claim.invocation.id, "default")]


async def test_a_worker_that_leaves_gives_back_what_a_beat_found_unheld(worker: Worker) -> None:
    claim, crew = await worker.claim(), Crew(worker=worker)
    crew.runner.compare(own(claim))
    await give_back_all(crew.runner)
    assert (await states.run_row(worker.database, claim.run.id)).status is RunStatus.QUEUED


async def test_a_worker_taken_for_dead_drops_all_and_writes_nothing(worker: Worker) -> None:
    begun = asyncio.Event()
    worker.script([TextDelta("Half"), begun.set, asyncio.Event()])
    claim, crew = await worker.claim(), Crew(worker=worker)
    crew.start(claim)
    await reached(begun)
    before = await states.contents(worker.database)
    crew.runner.drop_all()
    await crew.left()
    assert await states.contents(worker.database) == before


async def test_a_settled_run_frees_its_slot(worker: Worker) -> None:
    worker.script(says("Hi."))
    crew = Crew(worker=worker)
    crew.start(await worker.claim())
    await crew.left()


async def test_a_run_that_cannot_even_begin_fails_and_frees_its_slot(worker: Worker) -> None:
    claim, crew = await worker.claim(agent="researcher"), Crew(worker=worker)
    object.__setattr__(claim.run, "agent", "gone")
    crew.start(claim)
    await crew.left()
    assert (await states.run_row(worker.database, claim.run.id)).status is RunStatus.FAILED
