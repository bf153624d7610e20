"""A worker's sweep: what is old goes from the database and from Redis, and what fails holds up nothing else."""

import asyncio
from typing import Any

import pytest
from tests.contract.execution.worker import GUARD_S, Worker
from tests.contract.fsck.inspecting import execute
from tests.contract.store.states import OWNER, new_turn
from tests.contract.store.test_editing import new_run, rows_of
from tests.contract.store.test_retention import AGE, OLD
from tests.fakes.provider import says

from runyard.clock import now_ms
from runyard.db import retention as batches
from runyard.db.idempotency import CallKey
from runyard.db.retention import Forgotten
from runyard.errors import CommitUnknown, StoreUnavailable
from runyard.ids import RunId
from runyard.lifecycle.accept import accept_turn
from runyard.lifecycle.creating import create_idle_run
from runyard.lifecycle.editing import erase_run
from runyard.metrics import REGISTRY
from runyard.settings import Settings
from runyard.streams.ops import Close
from runyard_workers import retention
from runyard_workers.retention import Duty, duties_of, sweep, sweep_forever

pytestmark = pytest.mark.anyio

FORGET_RUNS = {"runs": Duty(batches.forget_runs, AGE)}


def counted(kind: str) -> float:
    return REGISTRY.get_sample_value("runyard_rows_forgotten_total", {"kind": kind}) or 0.0


async def idle_runs(worker: Worker, count: int) -> list[RunId]:
    """Old ones."""
    runs = [new_run(at=now_ms() - OLD) for _ in range(count)]
    return [(await worker.database.write(create_idle_run, run))[0].id for run in runs]


async def queued_with_a_key(worker: Worker) -> None:
    """A run that waits for long, and the old key of its call."""
    turn = new_turn(call_key=CallKey(key="k", request_hash="h"), at=now_ms() - OLD)
    await worker.database.write(accept_turn, turn)


async def keys_of(worker: Worker) -> list[bytes]:
    """All that Redis has of streams."""
    return [key async for key in worker.store._client.scan_iter(f"{worker.store.keys.prefix}:*", count=1000)]


async def test_a_run_goes_from_redis_too(worker: Worker) -> None:
    worker.script(says("South."))
    settled = await worker.run()
    await age(worker, settled.run.id)
    assert len(await keys_of(worker)) == 3, "frames, what is known of them, the index of finished streams"
    before = counted("runs")
    await sweep(worker.database, worker.store, FORGET_RUNS)
    assert counted("runs") == before + 1
    assert await rows_of(worker.database, settled.run.id) == {"agent_deletions": 1}
    assert await keys_of(worker) == []


async def age(worker: Worker, run_id: RunId) -> None:
    """Its last activity was long ago."""
    await execute(worker, "UPDATE agent_runs SET last_activity_at = :at WHERE id = :run", at=now_ms() - OLD, run=run_id)


async def test_one_round_deletes_all_that_is_due(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "BREATH_S", 0)
    await idle_runs(worker, 2 * batches.RUNS_A_BATCH + 1)
    before = counted("runs")
    await sweep(worker.database, worker.store, FORGET_RUNS)
    assert counted("runs") == before + 2 * batches.RUNS_A_BATCH + 1


async def test_what_takes_long_lets_the_others_have_their_turn(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "SWEEP_S", 0)
    await idle_runs(worker, batches.RUNS_A_BATCH + 1)
    await queued_with_a_key(worker)
    before = {kind: counted(kind) for kind in ("runs", "idempotency_keys")}
    duties = FORGET_RUNS | {"idempotency_keys": Duty(batches.forget_keys, AGE)}
    await sweep(worker.database, worker.store, duties)
    assert counted("runs") == before["runs"] + batches.RUNS_A_BATCH
    assert counted("idempotency_keys") == before["idempotency_keys"] + 1
    await sweep(worker.database, worker.store, duties)
    assert counted("runs") == before["runs"] + batches.RUNS_A_BATCH + 1


@pytest.mark.parametrize("error", [RuntimeError("a fault"), StoreUnavailable("away"), CommitUnknown("away")])
async def test_a_duty_that_fails_holds_up_no_other(worker: Worker, error: Exception) -> None:
    async def fails(_connection: Any, *, age_ms: int) -> Forgotten:
        raise error

    await idle_runs(worker, 1)
    before = counted("runs")
    await sweep(worker.database, worker.store, {"calls": Duty(fails, 1), **FORGET_RUNS})
    assert counted("runs") == before + 1


async def test_it_goes_on_for_as_long_as_the_worker_lives(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "SWEEP_S", 0.001)
    sweeping = asyncio.create_task(sweep_forever(worker.database, worker.store, FORGET_RUNS))
    for _ in range(2):
        (run,) = await idle_runs(worker, 1)
        async with asyncio.timeout(GUARD_S):
            while "agent_runs" in await rows_of(worker.database, run):
                pass  # each look gives way to the sweep
    sweeping.cancel()
    await asyncio.gather(sweeping, return_exceptions=True)


def settings(monkeypatch: pytest.MonkeyPatch, **values: str) -> Settings:
    urls = {"DATABASE_URL": "sqlite:///x.db", "REDIS_URL": "redis://localhost", "BROKER_URL": "redis://localhost"}
    for name, value in {**urls, **values}.items():
        monkeypatch.setenv(f"RUNYARD_{name}", value)
    return Settings.load()


def test_without_settings_transcripts_are_kept_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    assert set(duties_of(settings(monkeypatch))) == {"idempotency_keys", "deletions", "manifests", "calls"}
    asked = duties_of(settings(monkeypatch, RETAIN_RUNS_DAYS="30", RETAIN_CALLS_DAYS="0"))
    assert set(asked) == {"idempotency_keys", "deletions", "manifests", "runs"}
    assert asked["runs"].age_ms == 30 * retention.DAY_MS


async def test_a_stream_that_is_closed_behind_its_erased_run_leaves_nothing(worker: Worker) -> None:
    """The run is erased between its settlement and the end of its stream; so a close comes after all was deleted."""
    worker.script(says("South."))
    claim = await worker.claim()
    erased = asyncio.Event()
    apply = worker.store.apply

    async def close_late(ops: Any) -> Any:
        if any(isinstance(op, Close) for op in ops) and not erased.is_set():
            streams = await worker.database.write(erase_run, claim.run.id, OWNER, at=now_ms())
            await worker.store.forget(streams)
            erased.set()
        return await apply(ops)

    worker.store.apply = close_late  # type: ignore[method-assign]
    async with asyncio.timeout(GUARD_S):
        await worker.execution(claim).run()
        await erased.wait()
        await worker.closer.drained()
    assert await keys_of(worker) == []
    assert await rows_of(worker.database, claim.run.id) == {"agent_deletions": 1}
