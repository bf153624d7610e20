"""Settled invocations whose streams are not known to be closed yet."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from runyard.db.now import database_now_ms
from runyard.db.records import Invocation
from runyard.db.tables import agent_invocations, agent_runs
from runyard.ids import InvocationId, RunId

LATE_AFTER_MS = 10_000
"""The process that settles an invocation closes its stream at once. After this time any worker closes it."""

BATCH = 50

_unclosed = (
    sa.select(agent_invocations)
    .where(
        agent_invocations.c.settled_at.is_not(None),
        sa.not_(agent_invocations.c.stream_closed),
        agent_invocations.c.settled_at <= sa.bindparam("settled_before"),
    )
    .order_by(agent_invocations.c.settled_at)
    .limit(BATCH)
)


_mark_closed = (
    sa.update(agent_invocations)
    .where(agent_invocations.c.id.in_(sa.bindparam("invocations", expanding=True)))
    .returning(agent_invocations.c.id)
)


_number = sa.update(agent_invocations).where(agent_invocations.c.id == sa.bindparam("invocation"))


async def late_closes(connection: AsyncConnection) -> list[Invocation]:
    """At most `BATCH` of them, the longest overdue first, by the database's clock."""
    settled_before = await database_now_ms(connection) - LATE_AFTER_MS
    rows = await connection.execute(_unclosed, {"settled_before": settled_before})
    return [Invocation(**row._mapping) for row in rows]


async def mark_closed(
    connection: AsyncConnection,
    invocation_ids: Sequence[InvocationId],
    *,
    last_frames: Mapping[InvocationId, int] = MappingProxyType({}),
) -> set[InvocationId]:
    """Note that the terminal frames of these invocations are in Redis. Takes no lock: the flag is only ever set.

    Returns the invocations that no longer exist: they were erased since they were settled, so their streams should be
    deleted.

    `last_frames`: for streams that were rewound or reset as they were closed, the number of the last frame before the
    closing ones. With it a gateway can make the terminal frame from the row, under the right number.
    """
    rows = await connection.execute(_mark_closed, {"invocations": list(invocation_ids), "stream_closed": True})
    there = set(rows.scalars())
    if last_frames:
        numbers = [{"invocation": key, "last_frame": last} for key, last in last_frames.items()]
        await connection.execute(_number, numbers)
    return set(invocation_ids) - there


async def set_closing_base(connection: AsyncConnection, run_id: RunId, invocation_id: InvocationId, base: int) -> None:
    """Commit the number at which the reset of a settled stream begins, before it is written."""
    await connection.execute(sa.select(agent_runs.c.id).where(agent_runs.c.id == run_id).with_for_update())
    await connection.execute(
        sa.update(agent_invocations).where(agent_invocations.c.id == invocation_id).values(frame_base=base)
    )
