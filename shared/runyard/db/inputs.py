"""Inputs: what callers sent, as rows of their own until each is folded into the transcript, exactly once."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from runyard.blocks import Block, Content, as_blocks, text_of
from runyard.db.locks import lock_owned
from runyard.db.records import Input, Message, Run
from runyard.db.scope import Scope
from runyard.db.tables import agent_inputs, agent_invocations, agent_runs
from runyard.db.together import Insert, Update, Values, Write
from runyard.db.transcripts import user_row
from runyard.errors import AlreadyFolded, InputQueueFull
from runyard.ids import InputId, InvocationId, RunId

STEERING_MAX = 32
STEERING_MAX_CHARS = 32_768
"""How much steering may wait on one run, in inputs and in characters; the limits of the system that Runyard follows."""

_unfolded = sa.and_(agent_inputs.c.run_id == sa.bindparam("run"), agent_inputs.c.folded_in_seq.is_(None))
_of_a_later_call = agent_inputs.c.invocation_id.in_(
    sa.select(agent_invocations.c.id).where(
        agent_invocations.c.run_id == sa.bindparam("run"),
        agent_invocations.c.settled_at.is_(None),
        agent_invocations.c.id != sa.bindparam("invocation"),
    )
)
_has_begun = sa.exists().where(
    agent_invocations.c.id == sa.bindparam("invocation"), agent_invocations.c.started_at.is_not(None)
)
_fold_due = sa.update(agent_inputs).where(_unfolded, sa.not_(_of_a_later_call)).returning(agent_inputs)
_fold_opening = _fold_due.where(sa.not_(_has_begun))
_STEERING_FOLDED = Update(
    table=agent_inputs,
    columns=("folded_in_seq",),
    where=sa.and_(_unfolded, agent_inputs.c.invocation_id == sa.bindparam("invocation")),
)
_waiting = sa.select(agent_inputs).where(_unfolded).order_by(agent_inputs.c.position)
_folded_in = (
    sa.select(agent_inputs)
    .where(agent_inputs.c.run_id == sa.bindparam("run"), agent_inputs.c.folded_in_seq == sa.bindparam("seq"))
    .order_by(agent_inputs.c.position)
)
_highest = sa.select(sa.func.coalesce(sa.func.max(agent_inputs.c.position), 0)).where(
    agent_inputs.c.run_id == sa.bindparam("run")
)
_ADDED = Insert(
    table=agent_inputs, columns=("id", "run_id", "invocation_id", "position", "opens", "content", "created_at")
)
_touch = sa.update(agent_runs).where(agent_runs.c.id == sa.bindparam("run")).values(last_seq=agent_runs.c.last_seq)
_find = sa.select(agent_inputs).where(
    agent_inputs.c.run_id == sa.bindparam("run"), agent_inputs.c.id == sa.bindparam("input")
)
_drop = sa.delete(agent_inputs).where(
    agent_inputs.c.run_id == sa.bindparam("run"), agent_inputs.c.id.in_(sa.bindparam("inputs", expanding=True))
)


async def next_position(connection: AsyncConnection, run_id: RunId) -> int:
    """The position of the next input of a run. The caller holds the run lock."""
    return int((await connection.execute(_highest, {"run": run_id})).scalar_one()) + 1


def adding(
    run_id: RunId,
    invocation_id: InvocationId,
    input_id: InputId,
    content: Content,
    *,
    position: int,
    opens: bool,
    at: int,
) -> tuple[Write, Values]:
    """The write that stores an input, for `write_together` with a change of its run."""
    return _ADDED, {
        "id": input_id,
        "run_id": run_id,
        "invocation_id": invocation_id,
        "position": position,
        "opens": opens,
        "content": content,
        "created_at": at,
    }


async def waiting_inputs(connection: AsyncConnection, run_id: RunId) -> list[Input]:
    """Inputs that are not folded yet, in the order in which they came."""
    return [Input(**row._mapping) for row in await connection.execute(_waiting, {"run": run_id})]


async def steering_folded_in(connection: AsyncConnection, run_id: RunId, seq: int) -> list[Input]:
    """The steering that a transcript row holds."""
    rows = await connection.execute(_folded_in, {"run": run_id, "seq": seq})
    return [found for row in rows if not (found := Input(**row._mapping)).opens]


def replacement_of(waiting: Sequence[Input], invocation_id: InvocationId) -> Input | None:
    """The opening input of the call that waits to take this invocation's place, if there is one."""
    return next((item for item in waiting if item.opens and item.invocation_id != invocation_id), None)


def check_room(steering: Sequence[Input], content: Content) -> None:
    """Raises `InputQueueFull` if the run has no room for this input beside the steering that waits."""
    chars = sum(len(text_of(item.content)) for item in steering) + len(text_of(content))
    if len(steering) >= STEERING_MAX or chars > STEERING_MAX_CHARS:
        raise InputQueueFull(
            f"at most {STEERING_MAX} inputs of {STEERING_MAX_CHARS} characters together may wait", waiting=len(steering)
        )


async def retract_input(connection: AsyncConnection, run_id: str, scope: Scope, input_id: str) -> Input | None:
    """Take back an input that is not folded yet. None: the caller has no such run, or the run has no such input.

    The opening input of a call cannot be taken back, since nothing would be left of the call: cancel the run instead.

    Raises:
        AlreadyFolded: the transcript has it, or it opens a call.
    """
    run = await lock_owned(connection, run_id, scope)
    if run is None:
        return None
    row = (await connection.execute(_find, {"run": run.id, "input": input_id})).one_or_none()
    if row is None:
        return None
    found = Input(**row._mapping)
    if found.folded_in_seq is not None:
        raise AlreadyFolded("the input is in the transcript already", inputId=input_id, seq=found.folded_in_seq)
    if found.opens:
        raise AlreadyFolded("the input opens a call: cancel the run instead", inputId=input_id, seq=None)
    await drop_inputs(connection, run.id, [found])
    await touch(connection, run.id)
    return found


async def drop_inputs(connection: AsyncConnection, run_id: RunId, inputs: Sequence[Input]) -> None:
    if inputs:
        await connection.execute(_drop, {"run": run_id, "inputs": [item.id for item in inputs]})


async def touch(connection: AsyncConnection, run_id: RunId) -> None:
    """Mark the run as changed, since the feed shows its waiting inputs."""
    await connection.execute(_touch, {"run": run_id})


async def fold_opening(connection: AsyncConnection, run: Run, *, at: int) -> tuple[tuple[Input, ...], Message | None]:
    """Begin the run's newest invocation: fold its opening input, its steering so far, and the inputs that earlier calls
    left unanswered into one user row. The caller holds the run lock, and appends the row in the same transaction.

    Nothing is folded if a worker has begun the invocation before: then its steering waits for a boundary.
    """
    seq = run.last_seq + 1
    parameters = {"run": run.id, "invocation": run.newest_invocation, "folded_in_seq": seq}
    inputs = _in_order(await connection.execute(_fold_opening, parameters))
    if not inputs:
        return (), None
    return inputs, user_row(run.id, run.newest_invocation, seq, user_content([], inputs), at=at)


def steering_of(waiting: Sequence[Input], invocation_id: InvocationId, seq: int) -> tuple[Input, ...]:
    """The waiting steering of this invocation, as it will be once it is folded into row `seq`."""
    return tuple(replace(item, folded_in_seq=seq) for item in waiting if item.invocation_id == invocation_id)


def folding(run_id: RunId, invocation_id: InvocationId, seq: int) -> tuple[Write, Values]:
    """The write that folds the steering of this invocation into row `seq`, which is appended in the same transaction.

    It folds exactly the inputs that `waiting_inputs` has read, since the run lock has been held from then on.
    """
    return _STEERING_FOLDED, {"run": run_id, "invocation": invocation_id, "folded_in_seq": seq}


async def take_due(
    connection: AsyncConnection, run_id: RunId, invocation_id: InvocationId, seq: int
) -> tuple[Input, ...]:
    """Fold the invocation's opening input, its steering, and the inputs that earlier calls left unanswered into row
    `seq`, which the caller appends in the same transaction.
    """
    parameters = {"run": run_id, "invocation": invocation_id, "folded_in_seq": seq}
    return _in_order(await connection.execute(_fold_due, parameters))


def user_content(results: Sequence[Block], inputs: Sequence[Input]) -> Content:
    """The content of one user row made of results and inputs.

    After results, each input is a block of its own. Without results, plain texts are joined by a blank line; if an
    image or a document is among the inputs, the content is a list of blocks.
    """
    contents = [item.content for item in inputs]
    texts = [content for content in contents if isinstance(content, str)]
    if not results and len(texts) == len(contents):
        return "\n\n".join(texts)
    return [*results, *(block for content in contents for block in as_blocks(content))]


def _in_order(rows: sa.CursorResult[Any]) -> tuple[Input, ...]:
    return tuple(sorted((Input(**row._mapping) for row in rows), key=lambda item: item.position))
