"""Folding: inputs become rows of the transcript, each exactly once, in the transaction that appends the row."""

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from runyard.db.records import Input, Run
from runyard.db.tables import agent_inputs, agent_messages

_unfolded = (
    sa.select(agent_inputs)
    .where(agent_inputs.c.run_id == sa.bindparam("run"), agent_inputs.c.folded_in_seq.is_(None))
    .order_by(agent_inputs.c.position)
)
_append = sa.insert(agent_messages)
_mark_folded = sa.update(agent_inputs).where(
    agent_inputs.c.run_id == sa.bindparam("run"), agent_inputs.c.id.in_(sa.bindparam("inputs", expanding=True))
)


async def fold_inputs(connection: AsyncConnection, run: Run, *, at: int) -> tuple[tuple[Input, ...], int]:
    """Append what callers sent as one user row; the run lock is held. Returns the inputs and the new last seq."""
    rows = await connection.execute(_unfolded, {"run": run.id})
    inputs = tuple(Input(**row._mapping) for row in rows)
    if not inputs:
        return (), run.last_seq
    seq = run.last_seq + 1
    await connection.execute(
        _append,
        {
            "run_id": run.id,
            "seq": seq,
            "invocation_id": run.invocation_id,
            "role": "user",
            "content": join_inputs([item.content for item in inputs]),
            "created_at": at,
        },
    )
    await connection.execute(
        _mark_folded, {"run": run.id, "inputs": [item.id for item in inputs], "folded_in_seq": seq}
    )
    return inputs, seq


def join_inputs(contents: Sequence[str | list[dict[str, Any]]]) -> str | list[dict[str, Any]]:
    """One user turn of several inputs: texts joined by a blank line; with blocks among them, a list of blocks."""
    texts = [content for content in contents if isinstance(content, str)]
    if len(texts) == len(contents):
        return "\n\n".join(texts)
    blocks: list[dict[str, Any]] = []
    for content in contents:
        blocks += [{"type": "text", "text": content}] if isinstance(content, str) else content
    return blocks
