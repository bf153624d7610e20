"""Rows appended to a transcript. Whoever appends holds the run lock, and raises the run's `last_seq`."""

from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from runyard.blocks import Block, Content
from runyard.db.records import Message
from runyard.db.tables import agent_messages
from runyard.ids import InvocationId, RunId

_insert = sa.insert(agent_messages)


@dataclass(frozen=True, kw_only=True, slots=True)
class AssistantTurn:
    seq: int
    content: list[Block]
    model: str
    usage: dict[str, int]
    cost: dict[str, Any]
    stop_reason: str
    duration_ms: int
    first_frame: int
    last_frame: int


async def append_assistant_row(
    connection: AsyncConnection, run_id: RunId, invocation_id: InvocationId, turn: AssistantTurn, *, at: int
) -> Message:
    row: dict[str, Any] = {
        "run_id": run_id,
        "seq": turn.seq,
        "invocation_id": invocation_id,
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
    await connection.execute(_insert, row)
    return Message(**row)


async def append_user_row(
    connection: AsyncConnection, run_id: RunId, invocation_id: InvocationId, seq: int, content: Content, *, at: int
) -> Message:
    row: dict[str, Any] = {
        "run_id": run_id,
        "seq": seq,
        "invocation_id": invocation_id,
        "role": "user",
        "content": content,
        "created_at": at,
    }
    await connection.execute(_insert, row)
    return Message(**row)
