"""What the gateway reads. The query that loads a row includes the caller's scope, so there is no second check to
forget.
"""

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import orjson
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from runyard.blocks import text_of
from runyard.db.records import Call, Input, Invocation, Message, Run
from runyard.db.scope import Scope, Scoped
from runyard.db.tables import (
    agent_calls,
    agent_inputs,
    agent_invocations,
    agent_manifests,
    agent_messages,
    agent_runs,
    workers,
)
from runyard.ids import WorkerId


@dataclass(frozen=True, kw_only=True, slots=True)
class RunFilter:
    """`metadata`: what top-level fields must equal, each given as a string, or as JSON for a number, true, false or
    null.
    """

    agent: str | None = None
    status: str | None = None
    session_id: str | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Manifest:
    agent: str
    version: str
    manifest: dict[str, object]
    first_seen: int
    last_seen: int


_run = Scoped(sa.select(agent_runs).where(agent_runs.c.id == sa.bindparam("run")))
_invocations = sa.select(agent_invocations).join(agent_runs)
_invocation_by_id = Scoped(_invocations.where(agent_invocations.c.id == sa.bindparam("key")))
_invocation_by_stream = Scoped(_invocations.where(agent_invocations.c.stream_id == sa.bindparam("key")))
_owner_of_stream = Scoped(
    sa.select(agent_runs.c.tenant_id, agent_runs.c.user_id)
    .select_from(agent_invocations.join(agent_runs))
    .where(agent_invocations.c.stream_id == sa.bindparam("key"))
)
_run_of_invocation = sa.select(agent_runs).where(agent_runs.c.id == sa.bindparam("run"))


async def run_of(
    connection: AsyncConnection, run_id: str, scope: Scope
) -> tuple[Run, Invocation | None, list[Input]] | None:
    """A run, its newest invocation if it has had one, and its inputs that are not folded yet. None: not
    the caller's.
    """
    row = (await _run.execute(connection, scope, run=run_id)).one_or_none()
    if row is None:
        return None
    run = Run(**row._mapping)
    invocation = (
        await connection.execute(sa.select(agent_invocations).where(agent_invocations.c.id == run.invocation_id))
    ).one_or_none()
    waiting = await connection.execute(
        sa.select(agent_inputs)
        .where(agent_inputs.c.run_id == run_id, agent_inputs.c.folded_in_seq.is_(None))
        .order_by(agent_inputs.c.position)
    )
    newest = None if invocation is None else Invocation(**invocation._mapping)
    return run, newest, [Input(**item._mapping) for item in waiting]


async def runs_of(
    connection: AsyncConnection, scope: Scope, where: RunFilter, *, before: tuple[int, str] | None, limit: int
) -> list[tuple[Run, str | None]]:
    """Runs, newest activity first, then by id, each with the stream of its newest invocation."""
    statement = (
        sa.select(agent_runs, agent_invocations.c.stream_id)
        .outerjoin(agent_invocations, agent_invocations.c.id == agent_runs.c.invocation_id)
        .order_by(agent_runs.c.last_activity_at.desc(), agent_runs.c.id.desc())
        .limit(limit)
    )
    if where.agent is not None:
        statement = statement.where(agent_runs.c.agent == where.agent)
    if where.status is not None:
        statement = statement.where(agent_runs.c.status == where.status)
    if where.session_id is not None:
        statement = statement.where(agent_runs.c.session_id == where.session_id)
    for key, value in where.metadata.items():
        statement = statement.where(_metadata_value(connection, key).in_(_as_json(value)))
    if before is not None:
        statement = statement.where(sa.tuple_(agent_runs.c.last_activity_at, agent_runs.c.id) < sa.tuple_(*before))
    found = []
    for row in await Scoped(statement).execute(connection, scope):
        columns = dict(row._mapping)
        stream_id = columns.pop("stream_id")
        found.append((Run(**columns), stream_id))
    return found


def _metadata_value(connection: AsyncConnection, key: str) -> sa.ColumnElement[str]:
    """A top-level field as the JSON text that was stored; the same on both databases."""
    name = f"$.{orjson.dumps(key).decode()}" if connection.dialect.name == "sqlite" else key
    value = agent_runs.c.metadata.op("->", return_type=sa.Text())(sa.cast(sa.literal(name, sa.Text), sa.Text))
    return sa.cast(value, sa.Text)


def _as_json(value: str) -> list[str]:
    """The JSON that a value in a query may stand for: `5` is the string "5" or the number."""
    written = [orjson.dumps(value).decode()]
    with contextlib.suppress(orjson.JSONDecodeError):
        literal = orjson.loads(value)
        if not isinstance(literal, str | dict | list):
            written.append(orjson.dumps(literal).decode())
    return written


async def messages_of(
    connection: AsyncConnection, run_id: str, scope: Scope, *, after_seq: int | None, descending: bool, limit: int
) -> list[Message] | None:
    """One page of a transcript; None when the run is not the caller's."""
    if (await _run.execute(connection, scope, run=run_id)).one_or_none() is None:
        return None
    seq = agent_messages.c.seq
    statement = (
        sa.select(agent_messages)
        .where(agent_messages.c.run_id == run_id)
        .order_by(seq.desc() if descending else seq)
        .limit(limit)
    )
    if after_seq is not None:
        statement = statement.where(seq < after_seq if descending else seq > after_seq)
    return [Message(**row._mapping) for row in await connection.execute(statement)]


async def invocation_of(connection: AsyncConnection, invocation_id: str, scope: Scope) -> tuple[Invocation, Run] | None:
    return await _owned_invocation(connection, _invocation_by_id, invocation_id, scope)


async def invocation_of_stream(
    connection: AsyncConnection, stream_id: str, scope: Scope
) -> tuple[Invocation, Run] | None:
    return await _owned_invocation(connection, _invocation_by_stream, stream_id, scope)


async def owner_of_stream(connection: AsyncConnection, stream_id: str, scope: Scope) -> tuple[str, str] | None:
    """The tenant and the user of a stream that the caller may read."""
    row = (await _owner_of_stream.execute(connection, scope, key=stream_id)).one_or_none()
    return None if row is None else (row.tenant_id, row.user_id)


async def _owned_invocation(
    connection: AsyncConnection, statement: Scoped, key: str, scope: Scope
) -> tuple[Invocation, Run] | None:
    row = (await statement.execute(connection, scope, key=key)).one_or_none()
    if row is None:
        return None
    invocation = Invocation(**row._mapping)
    run = (await connection.execute(_run_of_invocation, {"run": invocation.run_id})).one()
    return invocation, Run(**run._mapping)


async def invocations_of(
    connection: AsyncConnection, run_id: str, scope: Scope, *, before: tuple[int, str] | None, limit: int
) -> tuple[Run, list[Invocation]] | None:
    """A run and its invocations, newest first; None when the run is not the caller's."""
    row = (await _run.execute(connection, scope, run=run_id)).one_or_none()
    if row is None:
        return None
    statement = (
        sa.select(agent_invocations)
        .where(agent_invocations.c.run_id == run_id)
        .order_by(agent_invocations.c.created_at.desc(), agent_invocations.c.id.desc())
        .limit(limit)
    )
    if before is not None:
        statement = statement.where(
            sa.tuple_(agent_invocations.c.created_at, agent_invocations.c.id) < sa.tuple_(*before)
        )
    found = await connection.execute(statement)
    return Run(**row._mapping), [Invocation(**item._mapping) for item in found]


async def steps_of(connection: AsyncConnection, invocation: Invocation) -> list[tuple[Message, list[Call]]]:
    """The model's turns of an invocation with the calls each asked for."""
    turns = await connection.execute(
        sa.select(agent_messages)
        .where(
            agent_messages.c.run_id == invocation.run_id,
            agent_messages.c.invocation_id == invocation.id,
            agent_messages.c.role == "assistant",
        )
        .order_by(agent_messages.c.seq)
    )
    calls = await connection.execute(
        sa.select(agent_calls)
        .where(agent_calls.c.run_id == invocation.run_id, agent_calls.c.invocation_id == invocation.id)
        .order_by(agent_calls.c.assistant_seq, agent_calls.c.index)
    )
    by_turn: dict[int, list[Call]] = {}
    for row in calls:
        call = Call(**row._mapping)
        by_turn.setdefault(call.assistant_seq, []).append(call)
    return [(Message(**row._mapping), by_turn.get(row.seq, [])) for row in turns]


async def committed_answer(connection: AsyncConnection, run_id: str, invocation_id: str) -> tuple[str, int]:
    """The answer text in an invocation's rows, which is what readers have seen after all rewinds, and the number of the
    last frame that the rows account for; 0: none.
    """
    rows = await connection.execute(
        sa.select(agent_messages.c.content, agent_messages.c.last_frame)
        .where(
            agent_messages.c.run_id == run_id,
            agent_messages.c.invocation_id == invocation_id,
            agent_messages.c.role == "assistant",
        )
        .order_by(agent_messages.c.seq)
    )
    text, last_frame = "", 0
    for row in rows:
        text += text_of(row.content)
        last_frame = max(last_frame, row.last_frame)
    return text, last_frame


async def invocations_by_stream(connection: AsyncConnection, stream_ids: Sequence[str]) -> dict[str, Invocation]:
    """The invocations of these streams, for the gateway's own watch. Who may read a stream was decided when it was
    opened.
    """
    statement = sa.select(agent_invocations).where(agent_invocations.c.stream_id.in_(stream_ids))
    return {row.stream_id: Invocation(**row._mapping) for row in await connection.execute(statement)}


async def agents_known(
    connection: AsyncConnection, *, seen_since: int
) -> tuple[list[Manifest], dict[WorkerId, dict[str, str]]]:
    """The manifests seen since then, newest first, and each registered worker's agents, name to version."""
    manifests = await connection.execute(
        sa.select(agent_manifests)
        .where(agent_manifests.c.last_seen >= seen_since)
        .order_by(agent_manifests.c.agent, agent_manifests.c.last_seen.desc(), agent_manifests.c.first_seen.desc())
    )
    registered = await connection.execute(sa.select(workers.c.id, workers.c.agents))
    return [Manifest(**row._mapping) for row in manifests], {row.id: row.agents for row in registered}


_lock_no_row = sa.select(workers.c.id).where(sa.false()).with_for_update()


async def check_writable(connection: AsyncConnection) -> None:
    """Does nothing, but fails on a database that cannot be written: after a failover an old primary still answers
    reads.

    It asks for a lock, which a standby refuses like a write. `Database.read` then tries again over a new link, or
    reports the database as away.
    """
    await connection.execute(_lock_no_row)
