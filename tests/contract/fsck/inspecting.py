"""A worker's core with runs that `runyard fsck` inspects, and functions that break their rows or frames."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import sqlalchemy as sa
from tests.contract.execution.worker import Settled, Worker
from tests.fakes.provider import asks, says
from tests.fakes.rows import tool_use

from runyard import tool
from runyard.frames import Frame
from runyard.fsck.findings import Finding
from runyard.fsck.inspection import Inspection, Scope

RETAIN_MS = 60_000


@tool
async def lookup() -> str:
    """Look it up."""
    return "three pages"


async def two_steps(worker: Worker, **turn: Any) -> Settled:
    """A run that has looked something up: user, assistant with a call, user with its result, assistant."""
    worker.script(asks(tool_use("a", "lookup"), saying="Let me look. "), says("Found ", "it."), tools=[lookup])
    return await worker.run(**turn)


def inspection(worker: Worker) -> Inspection:
    return Inspection(worker.database, worker.store._client, prefix=worker.store.keys.prefix)


async def found(worker: Worker, *, grace_s: float = 0, **scope: Any) -> list[Finding]:
    """Without a grace what is suspect is told at the first look."""
    return [finding async for finding in inspection(worker).findings(Scope(grace_s=grace_s, **scope))]


async def codes(worker: Worker, **scope: Any) -> list[str]:
    return [finding.code for finding in await found(worker, **scope)]


async def execute(worker: Worker, *statements: str, **parameters: Any) -> None:
    """SQL behind everybody's back."""

    async def work(connection: Any) -> None:
        for statement in statements:
            await connection.execute(sa.text(statement), parameters)

    await worker.database.write(work)


@asynccontextmanager
async def kept_for_ever(worker: Worker, *keys: str) -> AsyncIterator[None]:
    for key in keys:
        await worker.store._client.persist(key)
    yield
    for key in keys:
        await worker.store._client.pexpire(key, RETAIN_MS)


async def rewrite(worker: Worker, stream_id: str, change: Callable[[Frame], Frame | None]) -> None:
    """Each frame of a stream as `change` gives it; None: it is gone."""
    client, key = worker.store._client, worker.store.keys.frames(stream_id)
    frames = [change(frame) for frame in await worker.store.read(stream_id, 0, 10_000)]
    await client.delete(key)
    for frame in filter(None, frames):
        event = {} if frame.event is None else {"e": frame.event}
        await client.xadd(key, {**event, "d": frame.data}, id=f"{frame.seq}-0")
    await client.pexpire(key, RETAIN_MS)


async def set_meta(worker: Worker, stream_id: str, **fields: str | int) -> None:
    await worker.store._client.hset(worker.store.keys.meta(stream_id), mapping=fields)
