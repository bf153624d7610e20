"""Transcript rows as the store returns them."""

from typing import Any

from runyard.db.records import Message
from runyard.ids import InvocationId, RunId

RUN = RunId("run_1")
INVOCATION = InvocationId("inv_1")


def row(seq: int, role: str, content: Any, *, invocation_id: InvocationId = INVOCATION) -> Message:
    return Message(
        run_id=RUN,
        seq=seq,
        invocation_id=invocation_id,
        role=role,
        content=content,
        model=None,
        usage=None,
        cost=None,
        stop_reason=None,
        duration_ms=None,
        first_frame=None,
        last_frame=None,
        created_at=0,
    )


def rows(*turns: tuple[str, Any]) -> list[Message]:
    """`("user", "hi"), ("assistant", [...]), ...` as rows 1, 2, ..."""
    return [row(seq, role, content) for seq, (role, content) in enumerate(turns, start=1)]


def text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def tool_use(call_id: str, name: str = "lookup", **arguments: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": name, "input": arguments}


def thinking(text: str, signature: str = "c2lnbmVk") -> dict[str, Any]:
    return {"type": "thinking", "thinking": text, "signature": signature}
