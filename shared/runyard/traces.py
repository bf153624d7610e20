"""Spans, over OpenTelemetry's API: one trace from a call's HTTP request to the steps and tools of its run.

Nothing that people, models or tools wrote is ever in a span. An exception's message may contain it, so exceptions are
not recorded: a span only has their kind (`error.type`). Without an endpoint there is no SDK, and spans do nothing
(docs/traces.md).
"""

import contextlib
import os
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from opentelemetry.util.types import AttributeValue

from runyard.errors import StartError

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider

ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
PROTOCOL = "http/protobuf"
"""https://opentelemetry.io/docs/specs/otel/protocol/exporter/; all other variables of it are read by the SDK."""

LAST_SPANS_S = 5.0

Carrier = dict[str, str]
"""A span's place in its trace, as rows keep it: `{"traceparent": "00-...", "tracestate": "..."}`, the second only if
there is one. https://www.w3.org/TR/trace-context/"""

_W3C = TraceContextTextMapPropagator()
"""Without baggage, since callers may put content into it."""

tracer = trace.get_tracer("runyard")


def span(
    name: str,
    *,
    kind: SpanKind = SpanKind.INTERNAL,
    parent: Context | None = None,
    attributes: Mapping[str, AttributeValue],
) -> AbstractContextManager[Span]:
    """The current span inside the block, which ends it. `parent` None: a child of the current span."""
    return tracer.start_as_current_span(
        name,
        context=parent,
        kind=kind,
        attributes=attributes,
        record_exception=False,
        set_status_on_exception=False,
    )


def failed(it: Span, error_type: str) -> None:
    """Mark a span as failed, with a word of ours or the name of a class."""
    it.set_attribute("error.type", error_type)
    it.set_status(Status(StatusCode.ERROR))


def carried() -> Carrier | None:
    """The current span's place in its trace; None: nobody traces, and no caller did."""
    carrier: Carrier = {}
    _W3C.inject(carrier)
    return carrier or None


def beneath(carrier: Mapping[str, str] | None) -> Context:
    """The context for a span whose parent is elsewhere; without a carrier the span begins a trace."""
    return _W3C.extract(carrier or {}, Context())


def current_trace_id() -> str | None:
    """The trace's id as logs and trace viewers show it: 32 hex digits."""
    context = trace.get_current_span().get_span_context()
    return trace.format_trace_id(context.trace_id) if context.is_valid else None


@contextlib.contextmanager
def exporting(role: str, environ: Mapping[str, str]) -> Iterator[None]:
    """While the block runs, send spans to the endpoint that OpenTelemetry's own variables name; without one, nowhere.

    A thread sends them, and holds nobody up: spans that an absent endpoint does not take are dropped. At the end what
    is left is sent, for a few seconds, since a process that leaves has to be gone in time.

    Raises:
        StartError: there is an endpoint, and the SDK is not installed or the protocol is not `http/protobuf`.
    """
    if not any(environ.get(name) for name in ENDPOINTS) or environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        yield
        return
    protocol = next((value for name in PROTOCOLS if (value := environ.get(name))), PROTOCOL)
    if protocol != PROTOCOL:
        raise StartError(f"spans are sent as {PROTOCOL}: OTEL_EXPORTER_OTLP_PROTOCOL cannot be {protocol}")
    provider = _provider(role, environ)
    trace.set_tracer_provider(provider)
    try:
        yield
    finally:
        sending = threading.Thread(target=provider.shutdown, name="last spans", daemon=True)
        sending.start()
        sending.join(LAST_SPANS_S)


def _provider(role: str, environ: Mapping[str, str]) -> "TracerProvider":
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        raise StartError(
            "OTEL_EXPORTER_OTLP_ENDPOINT is set, and OpenTelemetry's SDK is not installed: add the extra runyard[otel]"
        ) from error
    process: dict[str, AttributeValue] = {"host.name": socket.gethostname(), "process.pid": os.getpid()}
    if not environ.get("OTEL_SERVICE_NAME") and "service.name=" not in environ.get("OTEL_RESOURCE_ATTRIBUTES", ""):
        process["service.name"] = f"runyard-{role}"
    provider = TracerProvider(resource=Resource.create(process), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return provider
