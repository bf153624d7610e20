"""Folding: inputs become rows of the transcript, each exactly once, in the transaction that appends the row."""

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from runyard.db.records import Input, Message, Run
from runyard.db.tables import agent_inputs, agent_messages

_fold = (
    sa.update(agent_inputs)
    .where(agent_inputs.c.run_id == sa.bindparam("run"), agent_inputs.c.folded_in_seq.is_(None))
    .returning(agent_inputs)
)
_append = sa.insert(agent_messages)


async def fold_inputs(connection: AsyncConnection, run: Run, *, at: int) -> tuple[tuple[Input, ...], Message | None]:
    """Append what callers sent as one user row; the run lock is held. Returns the inputs and the row."""
    seq = run.last_seq + 1
    folded = await connection.execute(_fold, {"run": run.id, "folded_in_seq": seq})
    inputs = tuple(sorted((Input(**row._mapping) for row in folded), key=lambda item: item.position))
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


def join_inputs(contents: Sequence[str | list[dict[str, Any]]]) -> str | list[dict[str, Any]]:
    """One user turn of several inputs: texts joined by a blank line; with blocks among them, a list of blocks."""
    texts = [content for content in contents if isinstance(content, str)]
    if len(texts) == len(contents):
        return "\n\n".join(texts)
    blocks: list[dict[str, Any]] = []
    for content in contents:
        blocks += [{"type": "text", "text": content}] if isinstance(content, str) else content
    return blocks
