"""Rows as the store returns them."""

from typing import Any

from runyard.db.claims import Claim
from runyard.db.records import Input, Invocation, Message, Run
from runyard.ids import InvocationId, RunId, StreamId
from runyard.lifecycle.creating import ZERO_COST
from runyard.runs import RunStatus

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


def steering(input_id: str, content: Any) -> Input:
    """Waits to be folded."""
    return Input(
        id=input_id,
        run_id=RUN,
        invocation_id=INVOCATION,
        position=2,
        opens=False,
        content=content,
        folded_in_seq=None,
        created_at=0,
    )


def claim(**invocation: Any) -> Claim:
    """A claim of run_1 for inv_1, whose opening input was folded."""
    run = Run(
        id=RUN,
        tenant_id="acme",
        user_id="ada",
        agent="researcher",
        agent_version="v1",
        queue="default",
        session_id="s-1",
        title=None,
        metadata={},
        context=None,
        status=RunStatus.RUNNING,
        worker_id="wk_1",
        generation=1,
        rank=0,
        invocation_id=INVOCATION,
        cancel_requested=False,
        error=None,
        steps=0,
        last_seq=1,
        usage={},
        cost=ZERO_COST,
        created_at=0,
        last_activity_at=0,
    )
    values = {
        "id": INVOCATION,
        "run_id": RUN,
        "stream_id": StreamId("st_1"),
        "request_id": "req_1",
        "status": RunStatus.RUNNING,
        "roles": [],
        "options": {},
        "deaths": [],
        "steps": 0,
        "usage": {},
        "cost": ZERO_COST,
        "redis_run_id": "redis-1",
        "frame_base": None,
        "result": None,
        "error": None,
        "last_frame": None,
        "last_seq": None,
        "stream_closed": False,
        "created_at": 0,
        "started_at": 0,
        "settled_at": None,
    }
    return Claim(run=run, invocation=Invocation(**values | invocation), folded=(), appended=None)
