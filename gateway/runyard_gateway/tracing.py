"""The span of a request: from its first byte to where its answer begins.

An answer may stream for hours after that, which the spans of the workers describe.
"""

from collections.abc import Awaitable, Callable
from functools import wraps

import structlog
from opentelemetry import trace
from opentelemetry.trace import Span, SpanKind
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.types import ASGIApp

from runyard import traces
from runyard.errors import RunyardError
from runyard_gateway.failures import request_id_of

Endpoint = Callable[[Request], Awaitable[ASGIApp]]

SERVER_ERROR = 500
TRACE_CONTEXT = ("traceparent", "tracestate")


def traced(method: str, path: str, endpoint: Endpoint) -> Endpoint:
    """The endpoint of a route inside a span, below the span that the caller names, if any.

    https://opentelemetry.io/docs/specs/semconv/http/http-spans/, without the query, which may contain a ticket.
    """

    @wraps(endpoint)
    async def within_a_span(request: Request) -> ASGIApp:
        attributes = {
            "http.request.method": method,
            "http.route": path,
            "url.scheme": request.scope["scheme"],
            "runyard.request.id": request_id_of(request),
        }
        parent = traces.beneath(_carrier(request.headers))
        with traces.span(f"{method} {path}", kind=SpanKind.SERVER, parent=parent, attributes=attributes) as span:
            return await _answered(endpoint, request, span)

    return within_a_span


def of_run(run_id: str, invocation_id: str | None) -> None:
    """Name the run on the request's span, since a call that steers, stops or repeats is in another
    trace than the run.
    """
    span = trace.get_current_span()
    span.set_attribute("runyard.run.id", run_id)
    if invocation_id is not None:
        span.set_attribute("runyard.invocation.id", invocation_id)


async def _answered(endpoint: Endpoint, request: Request, span: Span) -> ASGIApp:
    names: dict[str, str] = {"request_id": request_id_of(request)}
    if (trace_id := traces.current_trace_id()) is not None:
        names["trace_id"] = trace_id
    with structlog.contextvars.bound_contextvars(**names):  # of all that is logged until the answer begins
        try:
            answer = await endpoint(request)
        except Exception as error:
            _failed(span, error)
            raise
    if (status := getattr(answer, "status_code", None)) is not None:  # what streams chooses its own as it begins
        span.set_attribute("http.response.status_code", status)
    return answer


def _failed(span: Span, error: Exception) -> None:
    """A caller's mistake sets the status only: it is no failure of this server."""
    status = error.status if isinstance(error, RunyardError) else SERVER_ERROR
    span.set_attribute("http.response.status_code", status)
    if isinstance(error, RunyardError):
        span.set_attribute("runyard.error.code", error.code)
    if status >= SERVER_ERROR:
        traces.failed(span, error.code if isinstance(error, RunyardError) else type(error).__name__)


def _carrier(headers: Headers) -> traces.Carrier:
    return {name: value for name in TRACE_CONTEXT if (value := headers.get(name))}
