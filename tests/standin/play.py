"""Plays one script onto one exchange."""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from tests.standin.errors import STATUS_OF_TYPE, error_body, error_event
from tests.standin.events import Emit, Envelope, Item, message_body, new_message_id, sse
from tests.standin.gates import Gates
from tests.standin.http import Exchange
from tests.standin.ledger import Ledger, SentMessage
from tests.standin.placement import render
from tests.standin.record import Request
from tests.standin.script import Act, Cut, CutHow, Event, Fail, Hold, Pause, Raw, Script


class BrokenOff(Exception):
    """The script cut the answer off: there is nothing more to play."""


@dataclass(kw_only=True)
class Player:
    exchange: Exchange
    request: Request
    gates: Gates
    ledger: Ledger
    due_s: float | None = None
    """When the last pause ended, on the loop's clock; None after a hold."""

    async def play(self, script: Script) -> None:
        """Answer the request. Raises:
        BrokenOff: the script ended the answer before its end.
        """
        for place in script.at_events:
            if place.event == "head":
                await self._perform(place.acts)
        if script.error is not None:
            error = script.error
            self.fail(error.status, error.type, error.message, error.headers)
            return
        envelope = Envelope(message_id=new_message_id(), model=self.request.model)
        items = render(script, envelope)
        sent = self.ledger.open(envelope.message_id)
        if self.request.body.get("stream") is True:
            await self._stream(items, sent)
        else:
            await self._answer_whole(script, envelope, items, sent)

    def respond(self, answer: dict[str, Any]) -> None:
        self.request.status = 200
        self.exchange.respond(200, self._headers("application/json"), orjson.dumps(answer))

    def fail(
        self,
        status: int,
        error_type: str | None = None,
        message: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.request.status = status
        request_id = self.request.request_id
        body = error_body(status, request_id=request_id, error_type=error_type, message=message)
        self.exchange.respond(status, self._headers("application/json") | dict(headers or {}), body)

    async def _stream(self, items: Iterable[Item], sent: SentMessage) -> None:
        self.request.status = 200
        headers = self._headers("text/event-stream; charset=utf-8") | {"cache-control": "no-cache"}
        self.exchange.start(200, headers)
        for item in items:
            if isinstance(item, Emit):
                self._note(item, sent)  # first: a client may answer before a slow write returns
                await self.exchange.chunk(item.data)
            else:
                await self._perform([item])
        await self.exchange.finish()

    async def _answer_whole(self, script: Script, envelope: Envelope, items: list[Item], sent: SentMessage) -> None:
        """Without streaming the acts happen before the one answer, and an error event is an HTTP error."""
        for item in items:
            match item:
                case Fail():
                    self.fail(STATUS_OF_TYPE.get(item.type, 500), item.type, item.message)
                    return
                case Hold() | Pause() | Cut():
                    await self._perform([item])
        self.respond(message_body(script, envelope, items))
        for item in items:
            if isinstance(item, Emit):
                self._note(item, sent)

    def _note(self, emit: Emit, sent: SentMessage) -> None:
        """The client gets this event (if it is still there)."""
        if not emit.complete:
            return
        self.request.events_sent += 1
        if emit.block is not None:
            self.ledger.add(sent, emit.block)
        if emit.usage:
            self.request.usage |= {key: value for key, value in emit.usage.items() if value is not None}
        if emit.stop_reason is not None:
            sent.stop_reason = emit.stop_reason
        if emit.name == "message_stop":
            sent.complete = True

    async def _perform(self, acts: Iterable[Act]) -> None:
        for act in acts:
            await self.exchange.flush()
            match act:
                case Hold():
                    await self._hold(act)
                case Pause():
                    await self._pause(act.ms / 1000)
                case Event():
                    await self._event(act.name, act.data)
                case Raw():
                    await self.exchange.chunk(act.data)
                case Fail():
                    await self._event("error", error_event(act.type, act.message, self.request.request_id))
                    await self._cut(CutHow.END)
                case Cut():
                    await self._cut(act.how)

    async def _event(self, name: str, data: Any) -> None:
        await self.exchange.chunk(sse(name, data))
        self.request.events_sent += 1

    async def _hold(self, hold: Hold) -> None:
        self.due_s = None
        gate = self.gates[hold.gate]
        if hold.ping_ms is None:
            await gate.hold()
            return
        async with asyncio.TaskGroup() as tasks:
            pings = tasks.create_task(self._ping_every(hold.ping_ms / 1000))
            await gate.hold()
            pings.cancel()

    async def _ping_every(self, interval_s: float) -> None:
        while True:
            await self._event("ping", {"type": "ping"})
            await self.exchange.flush()
            await asyncio.sleep(interval_s)

    async def _pause(self, pause_s: float) -> None:
        now_s = asyncio.get_running_loop().time()
        self.due_s = (now_s if self.due_s is None else self.due_s) + pause_s
        if self.due_s > now_s:
            await asyncio.sleep(self.due_s - now_s)

    async def _cut(self, how: CutHow) -> None:
        match how:
            case CutHow.RESET:
                await self.exchange.reset()
            case CutHow.END if self.exchange.started:
                await self.exchange.finish()
            case _:
                await self.exchange.close()
        raise BrokenOff

    def _headers(self, content_type: str) -> dict[str, str]:
        return {"content-type": content_type, "request-id": self.request.request_id}
