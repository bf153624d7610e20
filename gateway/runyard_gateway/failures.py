"""The one place where exceptions become answers: `{"error": {"code", "message", "requestId", "retryable"}}`."""

from collections.abc import Callable
from math import ceil
from typing import Any

import orjson
import structlog
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from runyard.errors import InternalError, MethodNotAllowed, RateLimited, RouteNotFound, RunyardError, Unauthenticated
from runyard.ids import RequestId, new_request_id
from runyard.metrics import FAILURES

Tell = Callable[[RunyardError, Request], tuple[int, dict[str, Any]]]
"""How a protocol reports a failed request: its status and its body."""

TELL = "runyard.tell"
"""The key in a request's scope that has the `Tell` of routes with a protocol of their own."""

log = structlog.get_logger()


class Failures:
    """The outermost middleware: gives each request an id (`X-Request-Id`), and turns each exception into an answer.

    Once an answer has begun, a failure can only break it off: the connection closes, and the reader comes back by its
    cursor.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = new_request_id()
        scope["runyard.request_id"] = request_id
        scope["app"] = self  # without an app in the scope starlette's routing answers 404 and 405 in words of its own
        began = False

        async def send_with_id(message: Message) -> None:
            nonlocal began
            if message["type"] == "http.response.start":
                began = True
                headers = MutableHeaders(scope=message)
                headers["X-Request-Id"] = request_id
                headers.setdefault("Referrer-Policy", "no-referrer")  # an address may hold a ticket
            await send(message)

        try:
            await self._app(scope, receive, send_with_id)
        except ClientDisconnect:
            log.info("caller left before the end of the request", request_id=request_id, path=scope["path"])
        except Exception as error:
            failure = _failure(error, request_id, scope)
            FAILURES.labels(failure.code).inc()
            if began:
                raise
            tell: Tell = scope.get(TELL, as_ours)
            await _answer(failure, *tell(failure, Request(scope)), send_with_id)


def request_id_of(request: Request) -> RequestId:
    request_id: RequestId = request.scope["runyard.request_id"]
    return request_id


def _failure(error: Exception, request_id: RequestId, scope: Scope) -> RunyardError:
    match error:
        case RunyardError():
            if error.status >= 500:  # noqa: PLR2004 - HTTP's server errors
                log.warning("request failed", request_id=request_id, code=error.code, error=error.message)
            return error
        case HTTPException(status_code=404):
            return RouteNotFound(f"no such route: {scope['path']}")
        case HTTPException(status_code=405):
            allowed = sorted((error.headers or {})["Allow"].split(", "))
            return MethodNotAllowed(f"{scope['method']} is not allowed on {scope['path']}", allow=allowed)
        case _:
            log.error(
                "request failed by an unexpected error", request_id=request_id, path=scope["path"], exc_info=error
            )
            return InternalError("Internal error")


def as_ours(failure: RunyardError, request: Request) -> tuple[int, dict[str, Any]]:
    """The status and the body of this API's errors."""
    return failure.status, failure.body(request_id_of(request))


async def _answer(failure: RunyardError, status: int, told: dict[str, Any], send: Send) -> None:
    body = orjson.dumps(told)
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if isinstance(failure, Unauthenticated):
        headers.append((b"www-authenticate", _challenge(failure)))
    if isinstance(failure, MethodNotAllowed):
        headers.append((b"allow", ", ".join(failure.fields["allow"]).encode()))
    if isinstance(failure, RateLimited):
        headers.append((b"retry-after", str(ceil(failure.fields["retryAfterMs"] / 1000)).encode()))
    if status == 503:  # noqa: PLR2004 - Service Unavailable
        headers.append((b"retry-after", b"1"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _challenge(failure: Unauthenticated) -> bytes:
    """https://datatracker.ietf.org/doc/html/rfc6750#section-3: the challenge names an error only if
    something was sent.
    """
    return b"Bearer" if failure.fields["reason"] == "missing" else b'Bearer error="invalid_token"'
