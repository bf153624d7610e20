"""An exporter that keeps spans in memory, for tests of one process."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import format_span_id, format_trace_id

from runyard import traces


@dataclass(frozen=True, kw_only=True)
class Kept:
    exporter: InMemorySpanExporter

    @property
    def all(self) -> list[ReadableSpan]:
        """Those that have ended, in the order in which they began."""
        return sorted(self.exporter.get_finished_spans(), key=lambda span: span.start_time)

    @property
    def names(self) -> list[str]:
        return [span.name for span in self.all]

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.all if span.name == name]

    def only(self, name: str) -> ReadableSpan:
        (found,) = self.named(name)
        return found


@contextlib.contextmanager
def keeping_spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[Kept]:
    """In place of the process's own tracer, which can be set once only."""
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(traces, "tracer", provider.get_tracer("test"))
    yield Kept(exporter=exporter)
    provider.shutdown()


def trace_id(span: ReadableSpan) -> str:
    return format_trace_id(span.context.trace_id)


def span_id(span: ReadableSpan) -> str:
    return format_span_id(span.context.span_id)


def parent_id(span: ReadableSpan) -> str | None:
    return None if span.parent is None else format_span_id(span.parent.span_id)
