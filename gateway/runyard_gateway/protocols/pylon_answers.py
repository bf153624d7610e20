"""Answers in Pylon's form: a value as plain JSON, a stream, a resumed stream."""

from dataclasses import dataclass

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from runyard.db import reads
from runyard.db.records import Invocation
from runyard.errors import NotReady
from runyard.frames import Frame, FrameEvent
from runyard.ids import StreamId
from runyard.lifecycle.new_turn import Accepted
from runyard_gateway.answers import json_answer
from runyard_gateway.auth.principal import Credential, Principal
from runyard_gateway.from_rows import settled_frames
from runyard_gateway.function_answer import is_stream, says_something
from runyard_gateway.gateway import Gateway
from runyard_gateway.protocols.pylon_frames import PylonTail, Translation, ended, is_said
from runyard_gateway.sse import HEARTBEAT_S, SSE_HEADERS, stream_sse
from runyard_gateway.tail import Position, Tail

STREAM_ID = "X-Pylon-Stream-Id"
RETRY = b"retry: 1000\n\n"
LONG_S = 1e6
"""The answer to a call consists of nothing but frames: it waits for the first one, and has no heartbeats."""

FAILED_STATUS = 400


@dataclass(frozen=True, kw_only=True, slots=True)
class PylonAnswer:
    """The stream, if the caller accepts one and there is a frame before the last; else the value, or the error with
    status 400.

    A stream ends with the caller's credential. The value is waited for even so: the call is accepted, and this contract
    has no other answer that would not look like a refusal.
    """

    gateway: Gateway
    accepted: Accepted
    principal: Principal
    is_function: bool
    may_stream: bool

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        stream_id = self.accepted.stream_id
        with self.gateway.hub.watch(stream_id) as tail:
            if not self.may_stream:
                await says_something(tail, receive, _is_never_said, silence_s=LONG_S)
            elif await is_stream(tail.bound_to(self.principal.credential), receive, is_said, silence_s=LONG_S):
                await stream_sse(
                    scope,
                    receive,
                    send,
                    PylonTail(tail, Translation(is_function=self.is_function)),
                    0,
                    headers=stream_headers(stream_id),
                    heartbeat_s=LONG_S,
                    prelude=b"",
                )
                return
        if (answer := await self._plain()) is not None:
            await answer(scope, receive, send)

    async def _plain(self) -> Response | None:
        """None: the call has not ended, and its caller has left.

        Raises:
            NotReady: it has not ended, and the gateway is leaving.
        """
        found = await self.gateway.database.read(reads.invocation_of, self.accepted.invocation_id, self.principal.scope)
        if found is None or found[0].result is None:
            if self.gateway.draining.is_set():
                raise NotReady("the gateway leaves while the call goes on: read its stream")
            return None
        event, value = ended(found[0].result, found[0].error, is_function=self.is_function)
        if event is FrameEvent.ERROR:
            return json_answer({"error": value}, status=FAILED_STATUS)
        return json_answer(value)


@dataclass(frozen=True, kw_only=True, slots=True)
class PylonResumed:
    """At the end of a stream that has ended, the answer is only the prelude."""

    gateway: Gateway
    invocation: Invocation
    credential: Credential
    cursor: int
    is_function: bool

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the stream from the cursor on.

        Raises:
            StreamGone: before the answer begins: frames after the cursor were dropped.
        """
        headers = stream_headers(self.invocation.stream_id)
        translation = Translation(is_function=self.is_function)
        with self.gateway.hub.watch(self.invocation.stream_id, seeks=True).bound_to(self.credential) as tail:
            frames = await self._whole(tail)
            if frames is not None:
                await send({"type": "http.response.start", "status": 200, "headers": [*SSE_HEADERS, *headers]})
                await send({"type": "http.response.body", "body": RETRY + translation.of(frames)})
                return
            await stream_sse(
                scope,
                receive,
                send,
                PylonTail(tail, translation),
                self.cursor,
                headers=headers,
                heartbeat_s=HEARTBEAT_S,
                prelude=RETRY,
            )

    async def _whole(self, tail: Tail) -> list[Frame] | None:
        """All frames that will ever come, if that is known; None: read them from the tail."""
        position = await tail.seek(self.cursor)
        if position is Position.ENDED:
            return []
        if position is Position.ABSENT and self.invocation.settled_at is not None:
            frames = await settled_frames(self.gateway.database, self.invocation)
            return frames if self.cursor < frames[-1].seq else []
        return None


def stream_headers(stream_id: StreamId) -> list[tuple[bytes, bytes]]:
    return [
        (STREAM_ID.lower().encode(), stream_id.encode()),
        (b"access-control-expose-headers", STREAM_ID.encode()),
    ]


def _is_never_said(_: Frame) -> bool:
    return False
