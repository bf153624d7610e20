"""A worker's transactions on a run between its boundaries. Each begins with the run lock at the claimed generation."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from runyard.blocks import Block
from runyard.db.locks import claimed, write_claimed, write_locked
from runyard.db.records import Call, Invocation, Message, Run
from runyard.db.tables import agent_calls, agent_invocations, agent_messages, agent_runs
from runyard.db.together import InsertRows, Update, UpdateRows, Values, Write
from runyard.db.transcripts import AssistantTurn, appending, assistant_row
from runyard.ids import InvocationId, RunId
from runyard.runs import CallState


@dataclass(frozen=True, kw_only=True, slots=True)
class Held:
    """A run at the generation that its worker claimed: the fence of each of the worker's writes."""

    run_id: RunId
    invocation_id: InvocationId
    generation: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Totals:
    """What the invocation has spent so far, and (`run_...`) what all invocations of its run have spent."""

    steps: int
    usage: dict[str, int]
    cost: dict[str, Any]
    run_steps: int
    run_usage: dict[str, int]
    run_cost: dict[str, Any]

    @classmethod
    def stored(cls, run: Run, invocation: Invocation) -> Self:
        """As the rows have them."""
        return cls(
            steps=invocation.steps,
            usage=invocation.usage,
            cost=invocation.cost,
            run_steps=run.steps,
            run_usage=run.usage,
            run_cost=run.cost,
        )

    def run_values(self) -> dict[str, Any]:
        return {"steps": self.run_steps, "usage": self.run_usage, "cost": self.run_cost}

    def invocation_values(self) -> dict[str, Any]:
        return {"steps": self.steps, "usage": self.usage, "cost": self.cost}


@dataclass(frozen=True, kw_only=True, slots=True)
class PlannedCall:
    """A tool call that the model asks for. `refusal`: what the model is told instead of a result, if its input cannot
    be read and the call will not run.
    """

    call_id: str
    name: str
    idempotent: bool
    refusal: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class FinishedCall:
    index: int
    content: str | list[dict[str, Any]]
    is_error: bool


# Statements are made once: making one costs as much as executing it. The columns that an INSERT or UPDATE sets are the
# ones among its parameters.
_load_run = sa.select(agent_runs).where(agent_runs.c.id == sa.bindparam("run")).with_for_update()
_load_invocation = sa.select(agent_invocations).where(agent_invocations.c.id == sa.bindparam("invocation"))
_load_messages = (
    sa.select(agent_messages).where(agent_messages.c.run_id == sa.bindparam("run")).order_by(agent_messages.c.seq)
)
_of_turn = sa.and_(agent_calls.c.run_id == sa.bindparam("run"), agent_calls.c.assistant_seq == sa.bindparam("turn"))
_load_calls = sa.select(agent_calls).where(_of_turn).order_by(agent_calls.c.index)
_finish_open_call = sa.update(agent_calls).where(
    _of_turn, agent_calls.c.call_id == sa.bindparam("call"), agent_calls.c.state != CallState.FINISHED
)

TOTAL_COLUMNS = ("steps", "usage", "cost")
"""The columns of `Totals`, in a run and in an invocation."""

_RUN_STEPPED = Update(table=agent_runs, columns=("last_seq", "last_activity_at", *TOTAL_COLUMNS), where=claimed)
_CALLS_PLANNED = InsertRows(
    table=agent_calls,
    columns=(
        *("run_id", "assistant_seq", "index", "invocation_id", "call_id", "name", "idempotent", "state"),
        *("content", "is_error", "finished_at"),
    ),
)
_CALLS_STARTED = Update(
    table=agent_calls,
    columns=("state", "started_at"),
    where=sa.and_(_of_turn, agent_calls.c.index.in_(sa.bindparam("indexes", expanding=True))),
)
_CALLS_FINISHED = UpdateRows(
    table=agent_calls, columns=("state", "content", "is_error", "finished_at"), keys=("index",), where=_of_turn
)
_this_invocation = agent_invocations.c.id == sa.bindparam("invocation")
INVOCATION_STEPPED = Update(table=agent_invocations, columns=TOTAL_COLUMNS, where=_this_invocation)
_FRAMES_RESET = Update(table=agent_invocations, columns=("frame_base", "redis_run_id"), where=_this_invocation)
_ACQUITTED = Update(table=agent_invocations, columns=("deaths",), where=_this_invocation)


async def load_held(connection: AsyncConnection, held: Held) -> tuple[Run, Invocation]:
    """The run as it is now, and the invocation that this worker claimed. The run may have a newer one.

    It takes the run lock although it only reads: so it waits for a commit of unknown outcome to end.
    """
    run = Run(**(await connection.execute(_load_run, {"run": held.run_id})).one()._mapping)
    return run, await load_invocation(connection, held.invocation_id)


async def load_invocation(connection: AsyncConnection, invocation_id: InvocationId) -> Invocation:
    row = (await connection.execute(_load_invocation, {"invocation": invocation_id})).one()
    return Invocation(**row._mapping)


async def find_invocation(connection: AsyncConnection, run_id: RunId, invocation_id: str) -> Invocation | None:
    """None: this run has no such invocation."""
    found = _load_invocation.where(agent_invocations.c.run_id == sa.bindparam("run"))
    row = (await connection.execute(found, {"invocation": invocation_id, "run": run_id})).one_or_none()
    return None if row is None else Invocation(**row._mapping)


async def load_messages(connection: AsyncConnection, run_id: RunId) -> list[Message]:
    return [Message(**row._mapping) for row in await connection.execute(_load_messages, {"run": run_id})]


async def load_calls(connection: AsyncConnection, run_id: RunId, assistant_seq: int) -> list[Call]:
    rows = await connection.execute(_load_calls, {"run": run_id, "turn": assistant_seq})
    return [Call(**row._mapping) for row in rows]


async def append_turn(
    connection: AsyncConnection,
    held: Held,
    turn: AssistantTurn,
    calls: Sequence[PlannedCall],
    totals: Totals,
    *,
    at: int,
) -> Message:
    """Store the model's turn, and its tool calls as planned. One statement on Postgres.

    Raises:
        GenerationLost: the run belongs to another worker.
    """
    row = assistant_row(held.run_id, held.invocation_id, turn, at=at)
    await write_claimed(
        connection,
        held.run_id,
        held.generation,
        (_RUN_STEPPED, {"last_seq": turn.seq, "last_activity_at": at, **totals.run_values()}),
        appending(row),
        (INVOCATION_STEPPED, {"invocation": held.invocation_id, **totals.invocation_values()}),
        *_planning(held, turn.seq, calls, at=at),
    )
    return row


def _planning(held: Held, assistant_seq: int, calls: Sequence[PlannedCall], *, at: int) -> list[tuple[Write, Values]]:
    rows = [
        {
            "run_id": held.run_id,
            "assistant_seq": assistant_seq,
            "index": index,
            "invocation_id": held.invocation_id,
            "call_id": call.call_id,
            "name": call.name,
            "idempotent": call.idempotent,
            "state": CallState.PLANNED if call.refusal is None else CallState.FINISHED,
            "content": call.refusal,
            "is_error": None if call.refusal is None else True,
            "finished_at": None if call.refusal is None else at,
        }
        for index, call in enumerate(calls)
    ]
    return [(_CALLS_PLANNED, {"rows": rows})] if rows else []


async def start_calls(
    connection: AsyncConnection,
    held: Held,
    assistant_seq: int,
    *,
    starting: Sequence[int],
    finished: Sequence[FinishedCall],
    at: int,
) -> None:
    """Mark a batch of calls as started. `finished`: the results of calls that will not run (unknown tool, bad
    arguments). One statement on Postgres.

    Raises:
        GenerationLost: the run belongs to another worker.
    """
    writes = finishing(held, assistant_seq, finished, at=at)
    if starting:
        started = {"turn": assistant_seq, "indexes": list(starting), "state": CallState.STARTED, "started_at": at}
        writes.append((_CALLS_STARTED, {"run": held.run_id, **started}))
    await write_locked(connection, held.run_id, held.generation, *writes)


async def finish_call(
    connection: AsyncConnection, held: Held, assistant_seq: int, call: FinishedCall, *, at: int
) -> None:
    """Store one result as it comes. One statement on Postgres.

    Raises:
        GenerationLost: the run belongs to another worker.
    """
    await write_locked(connection, held.run_id, held.generation, *finishing(held, assistant_seq, [call], at=at))


def finishing(
    held: Held, assistant_seq: int, finished: Sequence[FinishedCall], *, at: int
) -> list[tuple[Write, Values]]:
    """The write of calls' results, under the run lock; none if there are no results."""
    rows = [
        {
            "index": call.index,
            "state": CallState.FINISHED,
            "content": call.content,
            "is_error": call.is_error,
            "finished_at": at,
        }
        for call in finished
    ]
    return [(_CALLS_FINISHED, {"run": held.run_id, "turn": assistant_seq, "rows": rows})] if rows else []


async def set_frame_base(connection: AsyncConnection, held: Held, base: int, redis_run_id: str) -> None:
    """Commit the number at which a reset stream begins, before the reset is written. One statement on Postgres.

    Raises:
        GenerationLost: the run belongs to another worker.
    """
    change = {"invocation": held.invocation_id, "frame_base": base, "redis_run_id": redis_run_id}
    await write_locked(connection, held.run_id, held.generation, (_FRAMES_RESET, change))


async def set_deaths(connection: AsyncConnection, held: Held, deaths: Sequence[list[str]]) -> None:
    """Store the invocation's deaths again, without the tools that have been acquitted. One statement on Postgres.

    Raises:
        GenerationLost: the run belongs to another worker.
    """
    change = {"invocation": held.invocation_id, "deaths": list(deaths)}
    await write_locked(connection, held.run_id, held.generation, (_ACQUITTED, change))


async def finish_open_calls(
    connection: AsyncConnection, run_id: RunId, assistant_seq: int, results: Sequence[Block], *, at: int
) -> None:
    """Store the results with which a settlement answers its open calls. Finished calls keep their result.

    So the ledger and the transcript say the same of each call. The transaction holds the run lock.
    """
    if results:
        await connection.execute(
            _finish_open_call,
            [
                {
                    "run": run_id,
                    "turn": assistant_seq,
                    "call": result["tool_use_id"],
                    "state": CallState.FINISHED,
                    "content": result.get("content", ""),
                    "is_error": result.get("is_error", False),
                    "finished_at": at,
                }
                for result in results
            ],
        )
