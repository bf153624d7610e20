"""Inputs: rows of their own until they are folded into the transcript, each exactly once."""

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from runyard.blocks import Block, Content, as_blocks, text_of
from runyard.db.locks import lock_owned
from runyard.db.reads import Owner
from runyard.db.records import Input, Message, Run
from runyard.db.tables import agent_inputs, agent_invocations, agent_messages
from runyard.errors import AlreadyFolded, InputQueueFull
from runyard.ids import InputId, InvocationId, RunId

WAITING_MAX = 32
WAITING_MAX_CHARS = 32_768
"""Steering that waits to be folded, over all of a run's inputs."""

_unfolded = sa.and_(agent_inputs.c.run_id == sa.bindparam("run"), agent_inputs.c.folded_in_seq.is_(None))
_of_invocation = sa.and_(_unfolded, agent_inputs.c.invocation_id == sa.bindparam("invocation"))
_of_a_later_call = agent_inputs.c.invocation_id.in_(
    sa.select(agent_invocations.c.id).where(
        agent_invocations.c.run_id == sa.bindparam("run"),
        agent_invocations.c.settled_at.is_(None),
        agent_invocations.c.id != sa.bindparam("invocation"),
    )
)
_fold = sa.update(agent_inputs).where(_unfolded, sa.not_(_of_a_later_call)).returning(agent_inputs)
_fold_steering = sa.update(agent_inputs).where(_of_invocation).returning(agent_inputs)
_waiting = sa.select(agent_inputs).where(_unfolded).order_by(agent_inputs.c.position)
_highest = sa.select(sa.func.coalesce(sa.func.max(agent_inputs.c.position), 0)).where(
    agent_inputs.c.run_id == sa.bindparam("run")
)
_append = sa.insert(agent_messages)
_insert = sa.insert(agent_inputs)
_find = sa.select(agent_inputs).where(
    agent_inputs.c.run_id == sa.bindparam("run"), agent_inputs.c.id == sa.bindparam("input")
)
_opening = sa.select(sa.func.min(agent_inputs.c.position)).where(
    agent_inputs.c.invocation_id == sa.bindparam("invocation")
)
_drop = sa.delete(agent_inputs).where(
    agent_inputs.c.run_id == sa.bindparam("run"), agent_inputs.c.id.in_(sa.bindparam("inputs", expanding=True))
)


async def add_input(
    connection: AsyncConnection,
    run_id: RunId,
    invocation_id: InvocationId,
    input_id: InputId,
    content: Content,
    *,
    is_first: bool = False,
    at: int,
) -> None:
    """Store what a caller sent; the run lock is held. `is_first`: the run is new."""
    position = 1 if is_first else int((await connection.execute(_highest, {"run": run_id})).scalar_one()) + 1
    await connection.execute(
        _insert,
        {
            "id": input_id,
            "run_id": run_id,
            "invocation_id": invocation_id,
            "position": position,
            "content": content,
            "created_at": at,
        },
    )


async def waiting_inputs(connection: AsyncConnection, run_id: RunId) -> list[Input]:
    """Those not folded yet, in the order in which they came."""
    return [Input(**row._mapping) for row in await connection.execute(_waiting, {"run": run_id})]


def check_room(waiting: Sequence[Input], content: Content) -> None:
    """Raises `InputQueueFull` when steering input would be more than a run may hold."""
    chars = sum(len(text_of(item.content)) for item in waiting) + len(text_of(content))
    if len(waiting) >= WAITING_MAX or chars > WAITING_MAX_CHARS:
        raise InputQueueFull(
            f"at most {WAITING_MAX} inputs of {WAITING_MAX_CHARS} characters together may wait", waiting=len(waiting)
        )


async def retract_input(connection: AsyncConnection, run_id: str, owner: Owner, input_id: str) -> Input | None:
    """Take back an input that is not folded yet. None: this user has no such run, or the run no such input.

    The opening input of a queued call cannot be taken back: without it there is no call; cancel the run instead.

    Raises:
        AlreadyFolded: the transcript has it, or it opens a call.
    """
    run = await lock_owned(connection, run_id, tenant_id=owner.tenant_id, user_id=owner.user_id)
    if run is None:
        return None
    row = (await connection.execute(_find, {"run": run.id, "input": input_id})).one_or_none()
    if row is None:
        return None
    found = Input(**row._mapping)
    if found.folded_in_seq is not None:
        raise AlreadyFolded("the input is in the transcript already", inputId=input_id, seq=found.folded_in_seq)
    if (await connection.execute(_opening, {"invocation": found.invocation_id})).scalar_one() == found.position:
        raise AlreadyFolded("the input opens a call: cancel the run instead", inputId=input_id, seq=None)
    await drop_inputs(connection, run.id, [found])
    return found


async def drop_inputs(connection: AsyncConnection, run_id: RunId, inputs: Sequence[Input]) -> None:
    if inputs:
        await connection.execute(_drop, {"run": run_id, "inputs": [item.id for item in inputs]})


async def fold_inputs(connection: AsyncConnection, run: Run, *, at: int) -> tuple[tuple[Input, ...], Message | None]:
    """Append what waits for the run's newest invocation, and what earlier ones left unanswered, as one user row.

    The run lock is held. Returns the inputs and the row.
    """
    seq = run.last_seq + 1
    inputs = _in_order(
        await connection.execute(_fold, {"run": run.id, "invocation": run.invocation_id, "folded_in_seq": seq})
    )
    if not inputs:
        return (), None
    row: dict[str, Any] = {
        "run_id": run.id,
        "seq": seq,
        "invocation_id": run.invocation_id,
        "role": "user",
        "content": join_inputs([item.content for item in inputs]),
        "created_at": at,
    }
    await connection.execute(_append, row)
    return inputs, Message(**row)


async def take_steering(
    connection: AsyncConnection, run_id: RunId, invocation_id: InvocationId, seq: int
) -> tuple[Input, ...]:
    """Mark what steers this invocation as folded into row `seq`, which the caller appends in the same transaction."""
    parameters = {"run": run_id, "invocation": invocation_id, "folded_in_seq": seq}
    return _in_order(await connection.execute(_fold_steering, parameters))


def join_inputs(contents: Sequence[Content]) -> Content:
    """One user turn of several inputs: texts joined by a blank line; with blocks among them, a list of blocks."""
    texts = [content for content in contents if isinstance(content, str)]
    if len(texts) == len(contents):
        return "\n\n".join(texts)
    return steering_blocks(contents)


def steering_blocks(contents: Sequence[Content]) -> list[Block]:
    """One text block per input, behind the results of a tool batch."""
    return [block for content in contents for block in as_blocks(content)]


def _in_order(rows: sa.CursorResult[Any]) -> tuple[Input, ...]:
    return tuple(sorted((Input(**row._mapping) for row in rows), key=lambda item: item.position))
