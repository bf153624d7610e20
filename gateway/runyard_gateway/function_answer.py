"""The answer to a caller of a function who accepts a stream: the stream if the function writes one, else plain JSON."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from runyard.db import reads
from runyard.db.records import Invocation, Run
from runyard.errors import RunyardError, StoreUnavailable, StreamGone
from runyard.frames import RESERVED_EVENTS, Frame, FrameEvent
from runyard.lifecycle.new_turn import Accepted
from runyard.terminal import failure_body
from runyard_gateway.answers import json_answer
from runyard_gateway.auth.principal import Principal
from runyard_gateway.gateway import Gateway
from runyard_gateway.sse import Pulled, decode, disconnected, stream_sse
from runyard_gateway.streaming import ResumedStream, stream_headers
from runyard_gateway.tail import Position
from runyard_gateway.views import invocation_view

SILENCE_S = 15.0
"""A caller that has heard nothing for this long gets the stream, since proxies would cut a silent connection."""

_UNSAID = RESERVED_EVENTS - {FrameEvent.TEXT}


def is_functions_own(frame: Frame) -> bool:
    """Whether the function itself wrote this frame; every run also has frames of the system."""
    return frame.event not in _UNSAID


@dataclass(frozen=True, kw_only=True, slots=True)
class FunctionAnswer:
    """The first frame that the function itself writes makes the answer a stream."""

    gateway: Gateway
    accepted: Accepted
    principal: Principal
    request_id: str
    headers: Mapping[str, str]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        stream_id = self.accepted.stream_id
        with self.gateway.hub.watch(stream_id).bound_to(self.principal.credential) as tail:
            streams = await is_stream(tail, receive, is_functions_own, silence_s=SILENCE_S)
            plain = None if streams else await self._plain()
            if plain is None:
                headers = stream_headers(stream_id, self.headers)
                await stream_sse(scope, receive, send, tail, 0, headers=headers, request_id=self.request_id)
                return
        await plain(scope, receive, send)

    async def _plain(self) -> Response | None:
        headers = {**self.headers, "X-Stream-Id": self.accepted.stream_id}
        invocation_id = self.accepted.invocation_id
        return await _value(self.gateway, invocation_id, self.principal, request_id=self.request_id, headers=headers)


@dataclass(frozen=True, kw_only=True, slots=True)
class _AnswerAgain:
    """The answer to a repeated call, in the same form as the first answer. If the frames are gone, it is a stream if
    there is text.
    """

    stream: ResumedStream
    accepted: Accepted
    principal: Principal

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        streams = await self._streams(receive)
        answer = None if streams else await self._plain()
        await (answer or self.stream)(scope, receive, send)

    async def _streams(self, receive: Receive) -> bool:
        stream = self.stream
        with stream.gateway.hub.watch(stream.stream_id, seeks=True).bound_to(stream.credential) as tail:
            try:
                if await tail.seek(0) is Position.ABSENT and (result := (await stream.row()).result) is not None:
                    return bool(result["text"])
                return await is_stream(tail, receive, is_functions_own, silence_s=SILENCE_S)
            except StreamGone:
                return True

    async def _plain(self) -> Response | None:
        stream, invocation_id = self.stream, self.accepted.invocation_id
        headers = {**stream.headers, "X-Stream-Id": stream.stream_id}
        return await _value(
            stream.gateway, invocation_id, self.principal, request_id=stream.request_id, headers=headers
        )


def answer_again(stream: ResumedStream, accepted: Accepted, principal: Principal) -> ASGIApp:
    """A caller that already has a frame goes on reading the stream."""
    return stream if stream.cursor else _AnswerAgain(stream=stream, accepted=accepted, principal=principal)


async def _value(
    gateway: Gateway, invocation_id: str, principal: Principal, *, request_id: str, headers: Mapping[str, str]
) -> Response | None:
    """The value, or the error. None: the database is away; then the stream is sent, which also has the end."""
    try:
        found = await gateway.database.read(reads.invocation_of, invocation_id, principal.scope)
    except StoreUnavailable:
        return None
    if found is None or found[0].settled_at is None:
        return None
    return settled_answer(*found, request_id=request_id, headers=headers)


def settled_answer(invocation: Invocation, run: Run, *, request_id: str, headers: Mapping[str, str]) -> Response:
    """The result, or the error with its status."""
    if invocation.error is None:
        return json_answer(invocation_view(invocation, run), headers=dict(headers))
    assert invocation.result is not None, "a settled invocation has its result"
    body = failure_body(result=invocation.result, error=invocation.error, request_id=request_id)
    return json_answer(body, status=invocation.error.get("status", 500), headers=dict(headers))


async def is_stream(tail: Pulled, receive: Receive, is_said: Callable[[Frame], bool], *, silence_s: float) -> bool:
    """`says_something`; also True if the tail fails, like one whose reader's token has expired. The call is accepted:
    an error in place of its answer would look like a refusal, and in its stream it does not.
    """
    try:
        return await says_something(tail, receive, is_said, silence_s=silence_s)
    except RunyardError:
        return True


async def says_something(tail: Pulled, receive: Receive, is_said: Callable[[Frame], bool], *, silence_s: float) -> bool:
    """Wait until a frame for which `is_said` holds has come (True), or the end without one (False).

    Also True if the client has left, the process is leaving, or `silence_s` have passed.

    Raises:
        RunyardError: as the tail's `pull`.
    """
    now = asyncio.get_running_loop().time
    deadline, cursor, ended = now() + silence_s, 0, False

    def left(_: asyncio.Task[None]) -> None:
        tail.interrupt()

    gone = asyncio.create_task(disconnected(receive))
    gone.add_done_callback(left)
    try:
        while not ended and now() < deadline:
            body, cursor, ended = await tail.pull(cursor, deadline - now())
            for frame in decode(body):
                if frame.is_terminal:
                    return False
                if is_said(frame):
                    return True
    finally:
        gone.remove_done_callback(left)
        gone.cancel()
    return True
