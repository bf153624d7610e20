"""A worker's transactions on a run that it runs. Each begins with the run lock at the claimed generation."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from runyard.blocks import Block, Content
from runyard.db.claims import GivenBack
from runyard.db.inputs import join_inputs, steering_blocks, take_steering, waiting_inputs
from runyard.db.locks import lock_claimed, update_claimed
from runyard.db.records import Call, Input, Invocation, Message, Run
from runyard.db.tables import agent_calls, agent_invocations, agent_messages, agent_runs
from runyard.ids import InvocationId, RunId
from runyard.runs import CallState, RunEvent, RunStatus, after


@dataclass(frozen=True, kw_only=True, slots=True)
class Held:
    """The run as its worker holds it: the fence of each of its writes."""

    run_id: RunId
    invocation_id: InvocationId
    generation: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Totals:
    """Absolute figures after a step, for the invocation and for the run over all its invocations."""

    steps: int
    usage: dict[str, int]
    cost: dict[str, Any]
    run_steps: int
    run_usage: dict[str, int]
    run_cost: dict[str, Any]

    @classmethod
    def stored(cls, run: Run, invocation: Invocation) -> Self:
        """Those of an invocation that has done nothing since it was stored."""
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
class AssistantTurn:
    seq: int
    content: list[dict[str, Any]]
    model: str
    usage: dict[str, int]
    cost: dict[str, Any]
    stop_reason: str
    duration_ms: int
    first_frame: int
    last_frame: int


@dataclass(frozen=True, kw_only=True, slots=True)
class PlannedCall:
    """A call that the model asks for. `refusal`: what the model is told when its input cannot be read; never runs."""

    call_id: str
    name: str
    idempotent: bool
    refusal: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class FinishedCall:
    index: int
    content: str | list[dict[str, Any]]
    is_error: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Settlement:
    """How an invocation ends. `result` and `error` are what its terminal frame will say."""

    event: RunEvent
    result: dict[str, Any]
    error: dict[str, Any] | None
    last_frame: int


Conclude = Callable[[Sequence[Message], bool, Sequence[Input]], Settlement]
"""Makes a settlement under the run lock, of the rows just appended, the cancel flag and the inputs left unanswered."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Boundary:
    """What a boundary's transaction stored. `settlement` None: the invocation goes on.

    `replacement`: the call that took the place of the one that ended.
    """

    appended: tuple[Message, ...]
    steered: tuple[Input, ...]
    cancel_requested: bool
    settlement: Settlement | None
    replacement: GivenBack | None = None


# Statements are made once: making one costs as much as executing it. The columns that an INSERT or UPDATE sets are the
# ones among its parameters.
_load_run = sa.select(agent_runs).where(agent_runs.c.id == sa.bindparam("run")).with_for_update()
_load_invocation = sa.select(agent_invocations).where(agent_invocations.c.id == sa.bindparam("invocation"))
_load_messages = (
    sa.select(agent_messages).where(agent_messages.c.run_id == sa.bindparam("run")).order_by(agent_messages.c.seq)
)
_of_turn = sa.and_(agent_calls.c.run_id == sa.bindparam("run"), agent_calls.c.assistant_seq == sa.bindparam("turn"))
_load_calls = sa.select(agent_calls).where(_of_turn).order_by(agent_calls.c.index)
_start_calls = sa.update(agent_calls).where(_of_turn, agent_calls.c.index.in_(sa.bindparam("indexes", expanding=True)))
_finish_call = sa.update(agent_calls).where(_of_turn, agent_calls.c.index == sa.bindparam("call"))
_insert_message = sa.insert(agent_messages)
_insert_calls = sa.insert(agent_calls)
_change_run = sa.update(agent_runs).where(agent_runs.c.id == sa.bindparam("run"))
_change_invocation = sa.update(agent_invocations).where(agent_invocations.c.id == sa.bindparam("invocation"))


async def load_run(connection: AsyncConnection, run_id: RunId) -> tuple[Run, Invocation]:
    """The run and its newest invocation, as they are now.

    Asks for the run lock, though it only reads: after a commit of unknown outcome it waits until that one has ended.
    """
    run = Run(**(await connection.execute(_load_run, {"run": run_id})).one()._mapping)
    row = (await connection.execute(_load_invocation, {"invocation": run.invocation_id})).one()
    return run, Invocation(**row._mapping)


async def load_held(connection: AsyncConnection, held: Held) -> tuple[Run, Invocation]:
    """The run and the invocation that a worker holds, or held: by now another one may be the run's newest."""
    run = Run(**(await connection.execute(_load_run, {"run": held.run_id})).one()._mapping)
    row = (await connection.execute(_load_invocation, {"invocation": held.invocation_id})).one()
    return run, Invocation(**row._mapping)


async def load_messages(connection: AsyncConnection, run_id: RunId) -> list[Message]:
    return [Message(**row._mapping) for row in await connection.execute(_load_messages, {"run": run_id})]


async def load_calls(connection: AsyncConnection, run_id: RunId, assistant_seq: int) -> list[Call]:
    rows = await connection.execute(_load_calls, {"run": run_id, "turn": assistant_seq})
    return [Call(**row._mapping) for row in rows]


async def append_user_row(connection: AsyncConnection, run: Run, seq: int, content: list[Block], *, at: int) -> Message:
    """A user row of the run's newest invocation; the run lock is held."""
    row: dict[str, Any] = {
        "run_id": run.id,
        "seq": seq,
        "invocation_id": run.invocation_id,
        "role": "user",
        "content": content,
        "created_at": at,
    }
    await connection.execute(_insert_message, row)
    return Message(**row)


async def append_turn(
    connection: AsyncConnection,
    held: Held,
    turn: AssistantTurn,
    calls: Sequence[PlannedCall],
    totals: Totals,
    *,
    at: int,
) -> Message:
    """The model's turn and the calls it asks for, planned.

    Raises:
        GenerationLost: the run belongs to another worker.
    """
    await update_claimed(
        connection,
        held.run_id,
        held.generation,
        last_seq=turn.seq,
        last_activity_at=at,
        **totals.run_values(),
    )
    row = _turn_row(held, turn, at=at)
    await connection.execute(_insert_message, row)
    if calls:
        await connection.execute(
            _insert_calls,
            [
                {
                    "run_id": held.run_id,
                    "assistant_seq": turn.seq,
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
            ],
        )
    await _update_invocation(connection, held, **totals.invocation_values())
    return Message(**row)


async def start_calls(
    connection: AsyncConnection,
    held: Held,
    assistant_seq: int,
    *,
    starting: Sequence[int],
    finished: Sequence[FinishedCall],
    at: int,
) -> None:
    """Mark a batch as started; `finished` are those that never run (unknown tool, bad arguments).

    Raises:
        GenerationLost: the run belongs to another worker.
    """
    await lock_claimed(connection, held.run_id, held.generation)
    if starting:
        await connection.execute(
            _start_calls,
            {
                "run": held.run_id,
                "turn": assistant_seq,
                "indexes": list(starting),
                "state": CallState.STARTED,
                "started_at": at,
            },
        )
    for call in finished:
        await _finish(connection, held, assistant_seq, call, at=at)


async def finish_call(
    connection: AsyncConnection, held: Held, assistant_seq: int, call: FinishedCall, *, at: int
) -> None:
    """Store one result as it comes.

    Raises:
        GenerationLost: the run belongs to another worker.
    """
    await lock_claimed(connection, held.run_id, held.generation)
    await _finish(connection, held, assistant_seq, call, at=at)


async def append_results(
    connection: AsyncConnection,
    held: Held,
    assistant_seq: int,
    *,
    finished: Sequence[FinishedCall],
    results: list[Block],
    at: int,
) -> Boundary:
    """The tool boundary: all results of the batch in the order of the calls, then what steers the run, as one user row.

    Raises:
        GenerationLost: the run belongs to another worker.
    """
    run = await lock_claimed(connection, held.run_id, held.generation)
    for call in finished:
        await _finish(connection, held, assistant_seq, call, at=at)
    seq = assistant_seq + 1
    steered = await take_steering(connection, held.run_id, held.invocation_id, seq)
    row = _user_row(held, seq, [*results, *steering_blocks([item.content for item in steered])], at=at)
    await connection.execute(_insert_message, row)
    await _update_run(connection, held, last_seq=seq, last_activity_at=at)
    return Boundary(appended=(Message(**row),), steered=steered, cancel_requested=run.cancel_requested, settlement=None)


async def end_turn(
    connection: AsyncConnection,
    held: Held,
    *,
    turn: AssistantTurn | None,
    results: list[Block],
    conclude: Conclude,
    totals: Totals,
    at: int,
) -> Boundary:
    """The terminal boundary: the model's last turn, what steers the run, the cancel flag, and the end, if it is one.

    With steering and no cancel the invocation goes on: the inputs become its next user turn. Otherwise `conclude`
    makes the settlement from what is appended by then; steering that a cancel finds is kept in the transcript.

    `results` answer calls of the turn that do not run.

    Raises:
        GenerationLost: the run belongs to another worker.
    """
    run = await lock_claimed(connection, held.run_id, held.generation)
    rows: list[Message] = []
    seq = run.last_seq
    if turn is not None:
        seq += 1
        await connection.execute(_insert_message, _turn_row(held, turn, at=at))
        rows.append(Message(**_turn_row(held, turn, at=at)))
    steered = await take_steering(connection, held.run_id, held.invocation_id, seq + 1)
    if results or steered:
        seq += 1
        contents = [item.content for item in steered]
        content = [*results, *steering_blocks(contents)] if results else join_inputs(contents)
        row = _user_row(held, seq, content, at=at)
        await connection.execute(_insert_message, row)
        rows.append(Message(**row))
    if steered and not run.cancel_requested:
        await _update_run(connection, held, last_seq=seq, last_activity_at=at, **totals.run_values())
        await _update_invocation(connection, held, **totals.invocation_values())
        return Boundary(appended=tuple(rows), steered=steered, cancel_requested=False, settlement=None)
    settlement = conclude(rows, run.cancel_requested, [])
    replacement = await _settle(connection, run, held, settlement, totals, last_seq=seq, at=at)
    return Boundary(
        appended=tuple(rows),
        steered=steered,
        cancel_requested=run.cancel_requested,
        settlement=settlement,
        replacement=replacement,
    )


async def fail_turn(
    connection: AsyncConnection, held: Held, *, results: list[Block], conclude: Conclude, totals: Totals, at: int
) -> Boundary:
    """The end of an invocation that failed: `results` answer its open calls; what steers it stays, unanswered.

    Raises:
        GenerationLost: the run belongs to another worker.
    """
    run = await lock_claimed(connection, held.run_id, held.generation)
    rows: list[Message] = []
    seq = run.last_seq
    if results:
        seq += 1
        row = _user_row(held, seq, results, at=at)
        await connection.execute(_insert_message, row)
        rows.append(Message(**row))
    unanswered = [item for item in await waiting_inputs(connection, run.id) if item.invocation_id == held.invocation_id]
    settlement = conclude(rows, run.cancel_requested, unanswered)
    replacement = await _settle(connection, run, held, settlement, totals, last_seq=seq, at=at)
    return Boundary(
        appended=tuple(rows),
        steered=(),
        cancel_requested=run.cancel_requested,
        settlement=settlement,
        replacement=replacement,
    )


async def _settle(
    connection: AsyncConnection,
    run: Run,
    held: Held,
    settlement: Settlement,
    totals: Totals,
    *,
    last_seq: int,
    at: int,
) -> GivenBack | None:
    """End the invocation and the run; where a caller replaced the invocation, the run is queued with the next one."""
    status = after(RunStatus.RUNNING, settlement.event)
    values: dict[str, Any] = {"status": status, "error": settlement.error}
    waiting = await waiting_inputs(connection, held.run_id)
    replacement = next((item for item in waiting if item.invocation_id != held.invocation_id), None)
    if replacement is not None:
        values = {
            "status": after(RunStatus.RUNNING, RunEvent.REPLACE),
            "error": None,
            "invocation_id": replacement.invocation_id,
            "rank": replacement.created_at,
        }
    await _update_run(
        connection,
        held,
        worker_id=None,
        cancel_requested=False,
        last_seq=last_seq,
        last_activity_at=at,
        **values,
        **totals.run_values(),
    )
    await _update_invocation(
        connection,
        held,
        status=status,
        result=settlement.result,
        error=settlement.error,
        last_frame=settlement.last_frame,
        last_seq=last_seq,
        settled_at=at,
        **totals.invocation_values(),
    )
    if replacement is None:
        return None
    return GivenBack(run_id=held.run_id, invocation_id=replacement.invocation_id, queue=run.queue)


async def set_frame_base(connection: AsyncConnection, held: Held, base: int, redis_run_id: str) -> None:
    """Commit where a reset stream's numbers begin, before the reset is written.

    Raises:
        GenerationLost: the run belongs to another worker.
    """
    await lock_claimed(connection, held.run_id, held.generation)
    await _update_invocation(connection, held, frame_base=base, redis_run_id=redis_run_id)


async def _update_run(connection: AsyncConnection, held: Held, **values: Any) -> None:
    await connection.execute(_change_run, {"run": held.run_id, **values})


def _turn_row(held: Held, turn: AssistantTurn, *, at: int) -> dict[str, Any]:
    return {
        "run_id": held.run_id,
        "seq": turn.seq,
        "invocation_id": held.invocation_id,
        "role": "assistant",
        "content": turn.content,
        "model": turn.model,
        "usage": turn.usage,
        "cost": turn.cost,
        "stop_reason": turn.stop_reason,
        "duration_ms": turn.duration_ms,
        "first_frame": turn.first_frame,
        "last_frame": turn.last_frame,
        "created_at": at,
    }


def _user_row(held: Held, seq: int, content: Content, *, at: int) -> dict[str, Any]:
    return {
        "run_id": held.run_id,
        "seq": seq,
        "invocation_id": held.invocation_id,
        "role": "user",
        "content": content,
        "created_at": at,
    }


async def _finish(connection: AsyncConnection, held: Held, assistant_seq: int, call: FinishedCall, *, at: int) -> None:
    await connection.execute(
        _finish_call,
        {
            "run": held.run_id,
            "turn": assistant_seq,
            "call": call.index,
            "state": CallState.FINISHED,
            "content": call.content,
            "is_error": call.is_error,
            "finished_at": at,
        },
    )


async def _update_invocation(connection: AsyncConnection, held: Held, **values: Any) -> None:
    await connection.execute(_change_invocation, {"invocation": held.invocation_id, **values})
