"""uvicorn's HTTP/1.1 protocol, hardened against callers that stall, flood, leave early or offer an upgrade."""

import asyncio
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

import httptools
import orjson
import structlog
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from runyard.errors import CallerError, InvalidArgs, PayloadTooLarge, RequestTimeout
from runyard.ids import new_request_id
from runyard_gateway.lean_event import LeanEvent
from runyard_gateway.reception import HEAD_MAX_BYTES, Reception

FRAMING = frozenset({b"content-length", b"transfer-encoding"})

ServedApp = Any
"""An ASGI application in uvicorn's types, which differ from starlette's."""

log = structlog.get_logger()


class GuardedProtocol(HttpToolsProtocol):
    """Closes gaps that uvicorn leaves:

    - a head that does not end, and a request that comes too slowly or never, are refused, and the connection is closed;
    - data that is not HTTP is refused with the body that every error has;
    - the answer in progress learns of a disconnect even if a further request was already sent behind it;
    - an offer to upgrade is ignored (RFC 9110, section 7.8) without losing the body.
    """

    # uvicorn's own attributes, 28 of them, share one table of names among all connections. With more than 30 each
    # connection has a table of its own, of more than a kilobyte.
    __slots__ = ("_deadline", "_on_leave", "_reception", "_replays", "_running")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.pipeline = _Pipeline()  # type: ignore[assignment] # all of a deque that uvicorn uses
        self._on_leave: Callable[[], None] | None = None
        self._reception = Reception()
        self._deadline: asyncio.TimerHandle | None = None
        self._running: RequestResponseCycle | None = None
        self._replays = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as uvicorn's
        super().connection_made(transport)
        self.flow._is_writable_event = LeanEvent(is_set=True)  # type: ignore[assignment] # noqa: SLF001 - one answer at a time writes
        self.timeout_keep_alive_task = self.loop.call_later(self.timeout_keep_alive, self.timeout_keep_alive_handler)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._unset_keepalive_if_required()
        if self._deadline is not None:
            self._deadline.cancel()
        self.pipeline.clear()
        self._tell_disconnect()

    def data_received(self, data: bytes) -> None:
        self._unset_keepalive_if_required()
        if not self._reception.is_owed:
            self._reception.begin(self.loop.time())
        self._reception.read(len(data))
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._read_on(data[upgrade.args[0] :])
        except httptools.HttpParserError:
            if not self._reception.is_head_too_large:
                self._refuse(InvalidArgs("this is no HTTP/1.1 request"))
                return
        if self.transport.is_closing():
            return
        if self._reception.is_head_too_large:
            self._refuse(PayloadTooLarge(f"the head is larger than {HEAD_MAX_BYTES} bytes", limitBytes=HEAD_MAX_BYTES))
        elif self._reception.is_owed and self._deadline is None:
            self._check_later()

    def on_message_begin(self) -> None:
        if not self._replays:
            self._reception.begin(self.loop.time())
            super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        if not self._replays:
            self._count_head(len(url))
            super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._replays:
            self._count_head(len(name) + len(value) + len(b": \r\n"))
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        if not self._replays:
            super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._reception.body()
        super().on_body(body)

    def on_message_complete(self) -> None:
        if self._replays or not self.parser.should_upgrade():
            self._reception.end()
            self.cycle.more_body = False  # uvicorn's own leaves it where the answer came first
            super().on_message_complete()

    def on_leave(self, tell: Callable[[], None] | None) -> None:
        """Call `tell` once when the caller leaves the answer in progress; None cancels that."""
        self._on_leave = tell
        if tell is None:
            return
        self.flow.resume_reading()  # a large body may have paused it, and who is not read is not seen to leave
        if self._running is None or self._running.disconnected:
            tell()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ServedApp) -> None:
        self._running = cycle
        cycle.message_event = LeanEvent()  # type: ignore[assignment] # nobody waits yet, and then one task
        super()._start_asgi_task(cycle, app)

    def _count_head(self, size_bytes: int) -> None:
        self._reception.head(size_bytes)
        if self._reception.is_head_too_large:
            raise _HeadTooLargeError

    def _read_on(self, rest: bytes) -> None:
        """After an offer to upgrade the parser leaves the rest to the other protocol. That rest is the body and what
        follows it.

        Another parser is told how long the body is, and goes on.
        """
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn does
        framing = [b"%b: %b\r\n" % (name, value) for name, value in self.headers if name in FRAMING]
        self._replays = True
        self.parser.feed_data(b"POST / HTTP/1.1\r\n%b\r\n" % b"".join(framing))
        self._replays = False
        if rest:
            self.data_received(rest)

    @property
    def _is_answering(self) -> bool:
        """Whether a complete request has no complete answer yet, so that the caller need not send anything."""
        running = self._running
        return (
            running is not None
            and not running.response_complete
            and (running.response_started or not running.more_body)
        )

    @property
    def _is_answered(self) -> bool:
        """Whether a request was answered before all of it arrived: nobody reads the rest."""
        return self._running is not None and self._running.response_complete and self._running.more_body

    def _check_later(self) -> None:
        left_s = self._reception.left_s(self.loop.time(), is_answered=self._is_answered)
        self._deadline = self.loop.call_later(max(left_s, 0.0), self._on_deadline)

    def _on_deadline(self) -> None:
        self._deadline = None
        if not self._reception.is_owed or self.transport.is_closing():
            return
        now_s = self.loop.time()
        if self._is_answering or self.flow.read_paused:
            self._reception.forgive(now_s)
        if self._reception.left_s(now_s, is_answered=self._is_answered) > 0:
            self._check_later()
        else:
            self._refuse(RequestTimeout("the request did not come to its end in time"))

    def _refuse(self, error: CallerError) -> None:
        """Close the connection, and say why if that cannot be mistaken for the answer to another request."""
        request_id = new_request_id()
        log.info("connection refused", request_id=request_id, code=error.code)
        if not self._is_answering and not self._is_answered:
            body = orjson.dumps(error.body(request_id))
            headers = [
                *self.server_state.default_headers,
                (b"content-type", b"application/json"),
                (b"content-length", b"%d" % len(body)),
                (b"x-request-id", request_id.encode()),
                (b"connection", b"close"),
            ]
            head = b"".join(b"%b: %b\r\n" % header for header in headers)
            self.transport.write(
                b"HTTP/1.1 %d %b\r\n%b\r\n%b" % (error.status, HTTPStatus(error.status).phrase.encode(), head, body)
            )
        self._tell_disconnect()
        self.transport.close()

    def _tell_disconnect(self) -> None:
        if self._running is not None and not self._running.response_complete:
            self._running.disconnected = True
            self._running.message_event.set()
            if self._on_leave is not None:
                self._on_leave()


class _Pipeline(list[Any]):
    """Requests that wait behind another one. Most connections never have any, and an empty deque is large."""

    def appendleft(self, request: Any) -> None:
        self.insert(0, request)


class _HeadTooLargeError(Exception):
    """Stops the parser; `data_received` answers."""
