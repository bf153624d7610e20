"""The spans of a run's execution: the invocation of its agent, each model call, each tool call.

Names are those of the semantic conventions for generative AI, which trace viewers know
(https://opentelemetry.io/docs/specs/semconv/gen-ai/). Names of our own begin with `runyard.`.
"""

import contextlib
from collections.abc import Iterator

from opentelemetry import trace
from opentelemetry.trace import Span, SpanKind
from opentelemetry.util.types import AttributeValue

from runyard import traces
from runyard.db.claims import Claim
from runyard.errors import RunyardError
from runyard.names import FUNCTION_PREFIX
from runyard_workers.providers.model import ModelRequest, Turn, Usage
from runyard_workers.turn import ModelCall


def invoking(claim: Claim) -> contextlib.AbstractContextManager[Span]:
    """The span of one claim. A worker that takes the run over has another one beside it, below the same call."""
    run, invocation = claim.run, claim.invocation
    is_function = run.agent.startswith(FUNCTION_PREFIX)
    operation = "invoke_function" if is_function else "invoke_agent"
    name = run.agent.removeprefix(FUNCTION_PREFIX)
    attributes: dict[str, AttributeValue] = {
        "gen_ai.operation.name": operation,
        "runyard.run.id": run.id,
        "runyard.invocation.id": invocation.id,
        "runyard.generation": run.generation,
        "runyard.worker.id": run.worker_id or "",
        "runyard.queue": run.queue,
        "runyard.takeover": claim.is_takeover,
    }
    if not is_function:
        attributes |= {"gen_ai.agent.name": name, "gen_ai.conversation.id": run.id}
        if run.agent_version:
            attributes["gen_ai.agent.version"] = run.agent_version
    parent = traces.beneath(invocation.trace_context)
    return traces.span(f"{operation} {name}", parent=parent, attributes=attributes)


def left(outcome: str, *, error_type: str | None = None) -> None:
    """Note how the execution ended, on the span of its invocation."""
    span = trace.get_current_span()
    span.set_attribute("runyard.outcome", outcome)
    if error_type is not None:
        traces.failed(span, error_type)


@contextlib.contextmanager
def calling_model(provider: str, request: ModelRequest, call: ModelCall, *, step: int, attempt: int) -> Iterator[Span]:
    """One attempt of a step. The provider's SDK makes no span of its own."""
    attributes: dict[str, AttributeValue] = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": provider,
        "gen_ai.request.model": request.model,
        "gen_ai.request.max_tokens": request.max_tokens,
        "gen_ai.request.stream": True,
        "runyard.step": step,
        "runyard.attempt": attempt,
    }
    with traces.span(f"chat {request.model}", kind=SpanKind.CLIENT, attributes=attributes) as span:
        try:
            yield span
        except BaseException as error:
            if call.spent is not None:
                _spent(span, call.spent.model, call.spent.usage)
            if isinstance(error, Exception):  # others stop the call on purpose
                traces.failed(span, error.code if isinstance(error, RunyardError) else type(error).__name__)
            raise
        finally:
            if call.first_after_s is not None:
                span.set_attribute("gen_ai.response.time_to_first_chunk", call.first_after_s)


def answered(span: Span, turn: Turn) -> None:
    """Set the attributes of a model call that gave a whole turn."""
    span.set_attribute("gen_ai.response.finish_reasons", [turn.stop_reason])
    _spent(span, turn.model, turn.usage)


def _spent(span: Span, model: str, usage: Usage) -> None:
    cached = usage.cache_read_input_tokens + usage.cache_creation_input_tokens
    span.set_attributes(
        {
            "gen_ai.response.model": model,
            "gen_ai.usage.input_tokens": usage.input_tokens + cached,  # the convention counts those, too
            "gen_ai.usage.output_tokens": usage.output_tokens,
            "gen_ai.usage.cache_read.input_tokens": usage.cache_read_input_tokens,
            "gen_ai.usage.cache_creation.input_tokens": usage.cache_creation_input_tokens,
        }
    )


def executing_tool(name: str, call_id: str) -> contextlib.AbstractContextManager[Span]:
    attributes: dict[str, AttributeValue] = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": name,
        "gen_ai.tool.type": "function",
        "gen_ai.tool.call.id": call_id,
    }
    return traces.span(f"execute_tool {name}", attributes=attributes)
