"""Traces are off without an endpoint; a request's span names its route and its caller's trace, and holds no content."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import structlog
from opentelemetry.trace import SpanKind, StatusCode
from starlette.requests import Request
from starlette.responses import Response
from tests.fakes.spans import Kept, keeping_spans, parent_id, span_id, trace_id

from runyard import traces
from runyard.errors import RunNotFound, StartError, StoreUnavailable
from runyard_gateway.tracing import traced

pytestmark = pytest.mark.anyio

TRACE_ID, CALLER = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
TRACEPARENT = f"00-{TRACE_ID}-{CALLER}-01"
SECRET = "swifts-winter-in-the-congo"

OFF = """
import sys
from runyard import traces
with traces.exporting("worker", {}), traces.span("a", attributes={}):
    assert traces.carried() is None
    assert traces.current_trace_id() is None
with traces.exporting("worker", {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_SDK_DISABLED": "TRUE"}):
    pass
print([name for name in sys.modules if name.startswith(("opentelemetry.sdk", "opentelemetry.exporter"))])
"""

LEAVING = """
import os
from runyard import traces
traces.LAST_SPANS_S = 0.1
with traces.exporting("worker", os.environ), traces.span("a", attributes={}):
    pass
print("left")
"""


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[Kept]:
    with keeping_spans(monkeypatch) as kept:
        yield kept


def test_without_an_endpoint_there_is_no_sdk() -> None:
    done = subprocess.run([sys.executable, "-c", OFF], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"


def test_an_endpoint_that_never_answers_holds_up_no_process_that_leaves() -> None:
    """The SDK alone would wait for 30 s."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        done = subprocess.run(
            [sys.executable, "-c", LEAVING],
            env=os.environ
            | {
                "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{silent.getsockname()[1]}",
                "OTEL_EXPORTER_OTLP_TIMEOUT": "600",
            },
            check=True,
            capture_output=True,
            text=True,
            timeout=20,
        )
    assert done.stdout == "left\n"


@pytest.mark.parametrize("name", traces.ENDPOINTS)
def test_an_endpoint_without_the_sdk_stops_the_start(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    with (
        pytest.raises(StartError, match=r"add the extra runyard\[otel\]"),
        traces.exporting("worker", {name: "http://x"}),
    ):
        pass


@pytest.mark.parametrize("name", traces.PROTOCOLS)
def test_another_protocol_stops_the_start(name: str) -> None:
    environ = {traces.ENDPOINTS[0]: "http://x", name: "grpc"}
    with pytest.raises(StartError, match="cannot be grpc"), traces.exporting("worker", environ):
        pass


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, "runyard-gateway"),
        ({"OTEL_SERVICE_NAME": "front"}, "front"),
        ({"OTEL_RESOURCE_ATTRIBUTES": "team=a,service.name=front"}, "front"),
    ],
)
def test_a_process_is_called_after_its_role_unless_it_is_named(
    variables: dict[str, str], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OTEL_SERVICE_NAME", "OTEL_RESOURCE_ATTRIBUTES"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    provider = traces._provider("gateway", variables)
    provider.shutdown()
    assert provider.resource.attributes["service.name"] == expected


def test_a_place_in_a_trace_is_carried_and_found_again(spans: Kept) -> None:
    parent = traces.beneath({"traceparent": TRACEPARENT, "tracestate": "vendor=1"})
    with traces.span("here", parent=parent, attributes={}):
        carrier = traces.carried()
        assert traces.current_trace_id() == TRACE_ID
    assert carrier == {"traceparent": f"00-{TRACE_ID}-{span_id(spans.only('here'))}-01", "tracestate": "vendor=1"}
    with traces.span("there", parent=traces.beneath(carrier), attributes={}):
        pass
    assert parent_id(spans.only("there")) == span_id(spans.only("here"))


@pytest.mark.parametrize(
    "carrier",
    [None, {}, {"traceparent": ""}, {"traceparent": "00-1-2-3"}, {"traceparent": f"00-{'0' * 32}-{CALLER}-01"}],
)
def test_without_a_place_a_span_begins_a_trace(carrier: Any, spans: Kept) -> None:
    with traces.span("outer", attributes={}), traces.span("new", parent=traces.beneath(carrier), attributes={}):
        pass
    assert parent_id(spans.only("new")) is None
    assert trace_id(spans.only("new")) != trace_id(spans.only("outer"))


def test_an_exception_leaves_nothing_of_its_message(spans: Kept) -> None:
    with pytest.raises(ValueError, match=SECRET), traces.span("fails", attributes={}):
        raise ValueError(SECRET)
    assert SECRET not in spans.only("fails").to_json()


# Requests ------------------------------------------------------------------------------------------------------------


def request(**headers: str) -> Request:
    return Request(
        {
            "type": "http",
            "scheme": "https",
            "method": "POST",
            "path": f"/v1/agents/{SECRET}/runs",
            "query_string": f"ticket={SECRET}".encode(),
            "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
            "runyard.request_id": "req_1",
        }
    )


async def serve(answer: Response | Exception | object, **headers: str) -> dict[str, Any]:
    """What the handler saw of its span and its log."""
    seen: dict[str, Any] = {}

    async def handler(_request: Request) -> Any:
        seen.update(carried=traces.carried(), logged=structlog.contextvars.get_contextvars())
        if isinstance(answer, Exception):
            raise answer
        return answer

    try:
        await traced("POST", "/v1/agents/{agent}/runs", handler)(request(**headers))
    except type(answer):  # type: ignore[misc]
        pass
    return seen


async def test_a_request_is_beneath_its_callers_span_and_named_by_its_route(spans: Kept) -> None:
    seen = await serve(Response(status_code=202), traceparent=TRACEPARENT)
    (span,) = spans.all
    assert (span.name, span.kind) == ("POST /v1/agents/{agent}/runs", SpanKind.SERVER)
    assert (trace_id(span), parent_id(span)) == (TRACE_ID, CALLER)
    assert dict(span.attributes) == {
        "http.request.method": "POST",
        "http.route": "/v1/agents/{agent}/runs",
        "http.response.status_code": 202,
        "url.scheme": "https",
        "runyard.request.id": "req_1",
    }
    assert SECRET not in span.to_json()
    assert seen == {
        "carried": {"traceparent": f"00-{TRACE_ID}-{span_id(span)}-01"},
        "logged": {"request_id": "req_1", "trace_id": TRACE_ID},
    }
    assert structlog.contextvars.get_contextvars() == {}


async def test_what_streams_ends_its_span_as_it_begins(spans: Kept) -> None:
    await serve(object())
    (span,) = spans.all
    assert span.end_time is not None
    assert "http.response.status_code" not in span.attributes


@pytest.mark.parametrize(
    ("error", "status", "kind"),
    [
        (RunNotFound(SECRET), 404, None),
        (StoreUnavailable(SECRET), 503, "STORE_UNAVAILABLE"),
        (ValueError(SECRET), 500, "ValueError"),
    ],
)
async def test_only_what_is_our_fault_is_a_failure(
    error: Exception, status: int, kind: str | None, spans: Kept
) -> None:
    await serve(error)
    (span,) = spans.all
    assert span.attributes["http.response.status_code"] == status
    assert span.attributes.get("error.type") == kind
    assert (span.status.status_code is StatusCode.ERROR) == (kind is not None)
    assert SECRET not in span.to_json()


async def test_a_callers_trace_is_carried_on_where_nobody_exports() -> None:
    """The workers may."""
    seen = await serve(Response(), traceparent=TRACEPARENT)
    assert seen["carried"] == {"traceparent": TRACEPARENT}
    assert seen["logged"] == {"request_id": "req_1", "trace_id": TRACE_ID}
    assert await serve(Response()) == {"carried": None, "logged": {"request_id": "req_1"}}
