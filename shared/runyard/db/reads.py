"""What the gateway reads. Tenant and user are part of the query that loads a row: no second check can be forgotten."""

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from runyard.blocks import text_of
from runyard.db.records import Call, Input, Invocation, Message, Run
from runyard.db.tables import (
    agent_calls,
    agent_inputs,
    agent_invocations,
    agent_manifests,
    agent_messages,
    agent_runs,
    workers,
)
from runyard.ids import RunId


@dataclass(frozen=True, kw_only=True, slots=True)
class Owner:
    tenant_id: str
    user_id: str


@dataclass(frozen=True, kw_only=True, slots=True)
class RunFilter:
    """`metadata`: what top-level fields must be, each a text, or a number, true, false or null as JSON writes it."""

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


# Each reader of a stream and each wait for a result begins with these.
_owned_invocations = (
    sa.select(agent_invocations)
    .join(agent_runs)
    .where(agent_runs.c.tenant_id == sa.bindparam("tenant"), agent_runs.c.user_id == sa.bindparam("user"))
)
_invocation_by_id = _owned_invocations.where(agent_invocations.c.id == sa.bindparam("key"))
_invocation_by_stream = _owned_invocations.where(agent_invocations.c.stream_id == sa.bindparam("key"))
_run_by_id = sa.select(agent_runs).where(agent_runs.c.id == sa.bindparam("run"))


def _owned(owner: Owner) -> sa.ColumnElement[bool]:
    return sa.and_(agent_runs.c.tenant_id == owner.tenant_id, agent_runs.c.user_id == owner.user_id)


async def run_of(
    connection: AsyncConnection, run_id: str, owner: Owner
) -> tuple[Run, Invocation | None, list[Input]] | None:
    """A run, its newest invocation, if it has had one, and its inputs that are not folded yet."""
    row = (
        await connection.execute(sa.select(agent_runs).where(agent_runs.c.id == run_id, _owned(owner)))
    ).one_or_none()
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
    connection: AsyncConnection, owner: Owner, where: RunFilter, *, before: tuple[int, str] | None, limit: int
) -> list[tuple[Run, str | None]]:
    """Newest activity first, ties by id; each with the stream of its newest invocation."""
    statement = (
        sa.select(agent_runs, agent_invocations.c.stream_id)
        .outerjoin(agent_invocations, agent_invocations.c.id == agent_runs.c.invocation_id)
        .where(_owned(owner))
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
    for row in await connection.execute(statement):
        columns = dict(row._mapping)
        stream_id = columns.pop("stream_id")
        found.append((Run(**columns), stream_id))
    return found


def _metadata_value(connection: AsyncConnection, key: str) -> sa.ColumnElement[str]:
    """A top-level field as the JSON text that was stored, the same on both databases."""
    name = f'$."{key}"' if connection.dialect.name == "sqlite" else key
    value = agent_runs.c.metadata.op("->", return_type=sa.Text())(sa.cast(sa.literal(name, sa.Text), sa.Text))
    return sa.cast(value, sa.Text)


def _as_json(value: str) -> list[str]:
    """What a value in a query may be in JSON: `5` is the text "5" and the number."""
    written = [orjson.dumps(value).decode()]
    with contextlib.suppress(orjson.JSONDecodeError):
        literal = orjson.loads(value)
        if not isinstance(literal, str | dict | list):
            written.append(orjson.dumps(literal).decode())
    return written


async def messages_of(
    connection: AsyncConnection, run_id: str, owner: Owner, *, after_seq: int | None, descending: bool, limit: int
) -> list[Message] | None:
    """One page of a transcript; None when the run is not the caller's."""
    mine = await connection.execute(sa.select(agent_runs.c.id).where(agent_runs.c.id == run_id, _owned(owner)))
    if mine.one_or_none() is None:
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


async def invocation_of(connection: AsyncConnection, invocation_id: str, owner: Owner) -> tuple[Invocation, Run] | None:
    return await _owned_invocation(connection, _invocation_by_id, invocation_id, owner)


async def invocation_of_stream(
    connection: AsyncConnection, stream_id: str, owner: Owner
) -> tuple[Invocation, Run] | None:
    return await _owned_invocation(connection, _invocation_by_stream, stream_id, owner)


async def _owned_invocation(
    connection: AsyncConnection, statement: sa.Select[Any], key: str, owner: Owner
) -> tuple[Invocation, Run] | None:
    parameters = {"key": key, "tenant": owner.tenant_id, "user": owner.user_id}
    row = (await connection.execute(statement, parameters)).one_or_none()
    if row is None:
        return None
    invocation = Invocation(**row._mapping)
    run = (await connection.execute(_run_by_id, {"run": invocation.run_id})).one()
    return invocation, Run(**run._mapping)


async def invocations_of(
    connection: AsyncConnection, run_id: str, owner: Owner, *, before: tuple[int, str] | None, limit: int
) -> tuple[Run, list[Invocation]] | None:
    """A run and its invocations, newest first; None when the run is not the caller's."""
    row = (
        await connection.execute(sa.select(agent_runs).where(agent_runs.c.id == run_id, _owned(owner)))
    ).one_or_none()
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


async def accepted_run(connection: AsyncConnection, invocation_id: str) -> RunId | None:
    """The run of an invocation; None when its acceptance, of unknown outcome, was not committed."""
    statement = sa.select(agent_invocations.c.run_id).where(agent_invocations.c.id == invocation_id)
    found: RunId | None = (await connection.execute(statement)).scalar_one_or_none()
    return found


async def committed_answer(connection: AsyncConnection, run_id: str, invocation_id: str) -> tuple[str, int]:
    """The answer text that an invocation's rows hold: what its readers have seen, after all rewinds; and the number of
    the last frame that they account for, 0: of none.
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
    """For the gateway's own watch over streams that it serves; who may read them was decided when they were opened."""
    statement = sa.select(agent_invocations).where(agent_invocations.c.stream_id.in_(stream_ids))
    return {row.stream_id: Invocation(**row._mapping) for row in await connection.execute(statement)}


async def agents_known(connection: AsyncConnection, *, seen_since: int) -> tuple[list[Manifest], list[dict[str, str]]]:
    """Manifests seen since then, newest first, and the agents (name to version) of each living worker."""
    manifests = await connection.execute(
        sa.select(agent_manifests)
        .where(agent_manifests.c.last_seen >= seen_since)
        .order_by(agent_manifests.c.agent, agent_manifests.c.last_seen.desc(), agent_manifests.c.first_seen.desc())
    )
    living = await connection.execute(sa.select(workers.c.agents))
    return [Manifest(**row._mapping) for row in manifests], [row.agents for row in living]


_lock_no_row = sa.select(workers.c.id).where(sa.false()).with_for_update()


async def check_writable(connection: AsyncConnection) -> None:
    """Do nothing that a database which takes writes would refuse: after a failover an old primary answers reads.

    Asking for a lock, it is refused on a standby as a write is: `Database.read` tries it again over a new link, and
    tells of a database that is away.
    """
    await connection.execute(_lock_no_row)
