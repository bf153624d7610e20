"""Appending rows to a transcript. The caller holds the run lock and raises the run's `last_seq`."""

from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from runyard.blocks import Block, Content
from runyard.db.records import Message
from runyard.db.tables import agent_messages
from runyard.db.together import Insert, Values, Write
from runyard.ids import InvocationId, RunId

_ROW = Insert(table=agent_messages, columns=tuple(column.name for column in agent_messages.c if column.default is None))
_insert = sa.insert(agent_messages)


@dataclass(frozen=True, kw_only=True, slots=True)
class AssistantTurn:
    """A turn of the model; `model` None: a function's turn."""

    seq: int
    content: list[Block]
    model: str | None
    usage: dict[str, int]
    cost: dict[str, Any]
    stop_reason: str
    duration_ms: int
    first_frame: int
    last_frame: int


def assistant_row(run_id: RunId, invocation_id: InvocationId, turn: AssistantTurn, *, at: int) -> Message:
    return Message(
        run_id=run_id,
        seq=turn.seq,
        invocation_id=invocation_id,
        role="assistant",
        content=turn.content,
        model=turn.model,
        usage=turn.usage,
        cost=turn.cost,
        stop_reason=turn.stop_reason,
        duration_ms=turn.duration_ms,
        first_frame=turn.first_frame,
        last_frame=turn.last_frame,
        created_at=at,
    )


def user_row(run_id: RunId, invocation_id: InvocationId, seq: int, content: Content, *, at: int) -> Message:
    return Message(run_id=run_id, seq=seq, invocation_id=invocation_id, role="user", content=content, created_at=at)


def appending(row: Message) -> tuple[Write, Values]:
    """The write that stores a row, for `write_together` with a change of its run."""
    return _ROW, _values(row)


async def append(connection: AsyncConnection, row: Message) -> None:
    await connection.execute(_insert, _values(row))


def _values(row: Message) -> dict[str, Any]:
    return {name: getattr(row, name) for name in _ROW.columns}
