"""Contexts for tools that are run outside of a worker."""

from typing import Any

import structlog

from runyard.authoring.cancellation import Cancellation
from runyard.authoring.context import RunContext
from runyard.authoring.rooms import Rooms
from runyard.authoring.stream import Stream
from runyard.ids import InvocationId, RunId


class RecordingSink:
    def __init__(self) -> None:
        self.frames: list[tuple[str, Any]] = []

    def output(self, text: str) -> None:
        self.frames.append(("output", text))

    def event(self, name: str, data: Any) -> None:
        self.frames.append((name, data))

    def broadcast(self, room: str, event: str, data: Any) -> None:
        self.frames.append((f"{room} {event}", data))


def context(call_id: str | None = "toolu_1") -> RunContext:
    return RunContext(
        run_id=RunId("run_1"),
        session_id=None,
        invocation_id=InvocationId("inv_1"),
        agent="researcher",
        user_id="ada",
        tenant_id="acme",
        roles=frozenset(),
        metadata={},
        context=None,
        call_id=call_id,
        idempotency_key=None,
        cancelled=Cancellation(),
        stream=Stream(RecordingSink()),
        rooms=Rooms(RecordingSink()),
        resources={},
        log=structlog.get_logger(),
    )
