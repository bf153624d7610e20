"""The spans of a run's execution: which there are, what they are beneath, and that nothing anybody wrote is in them."""

import asyncio
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import structlog
from opentelemetry import trace
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes
from opentelemetry.trace import SpanKind, StatusCode
from tests.contract.execution.crew import Crew, give_back_all, own, reached
from tests.contract.execution.worker import Worker
from tests.contract.store import states
from tests.fakes.models import NO_WAITS, QueuedModels
from tests.fakes.provider import MODEL, asks, says
from tests.fakes.rows import tool_use
from tests.fakes.spans import Kept, keeping_spans, parent_id, span_id, trace_id

from runyard import RunContext, function, tool
from runyard.authoring.agents import agent
from runyard.db.claims import Claim
from runyard.errors import ProviderError, ProviderUnavailable
from runyard.lifecycle.cancelling import cancel_run
from runyard.runs import RunStatus
from runyard_workers import spans as spans_module
from runyard_workers.providers.model import TextDelta, ThinkingDelta, Usage
from runyard_workers.runner import Runner

pytestmark = pytest.mark.anyio

TRACE_ID, CALLER = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
CALL = {"traceparent": f"00-{TRACE_ID}-{CALLER}-01", "tracestate": "vendor=1"}
SECRET = "swifts-winter-in-the-congo"
OVERLOADED = ProviderUnavailable(f"the provider answered 529: {SECRET}", status=529, type="overloaded_error")
REFUSED = ProviderError(f"the provider refused: {SECRET}", status=400, type="invalid_request_error")


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[Kept]:
    with keeping_spans(monkeypatch) as kept:
        yield kept


@tool
async def lookup(ctx: RunContext, q: str) -> str:
    """As an author's own instrumentation would: a span of theirs is beneath the tool's."""
    ctx.log.info("looked up")
    return f"about {q} {trace.get_current_span().get_span_context().span_id:016x}"


@tool
def fail(q: str) -> str:
    raise ValueError(f"{SECRET} {q}")


async def drive(worker: Worker, claim: Claim, **services: Any) -> None:
    crew = Crew(worker=worker)
    if services:
        crew.runner = Runner(replace(worker.services, **services), crew.slots, crew.publisher)
    crew.start(claim)
    await crew.left()


async def test_a_run_is_its_agent_its_model_calls_and_its_tools_beneath_the_call(worker: Worker, spans: Kept) -> None:
    usage = Usage(input_tokens=20, output_tokens=8, cache_read_input_tokens=100, cache_creation_input_tokens=3)
    worker.script(
        [ThinkingDelta("hm"), *asks(tool_use("toolu_1", "lookup", q="swifts"), usage=usage)],
        says("So."),
        tools=[lookup],
    )
    claim = await worker.claim(trace_context=CALL)
    await drive(worker, claim)
    assert spans.names == [
        "invoke_agent researcher",
        f"chat {MODEL}",
        "execute_tool lookup",
        f"chat {MODEL}",
    ]
    invocation = spans.only("invoke_agent researcher")
    assert {trace_id(span) for span in spans.all} == {TRACE_ID}
    assert parent_id(invocation) == CALLER
    assert {parent_id(span) for span in spans.all[1:]} == {span_id(invocation)}
    assert invocation.context.trace_state.get("vendor") == "1"
    assert dict(invocation.attributes) == {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": "researcher",
        "gen_ai.agent.version": "v1",
        "gen_ai.conversation.id": claim.run.id,
        "runyard.run.id": claim.run.id,
        "runyard.invocation.id": claim.invocation.id,
        "runyard.generation": 1,
        "runyard.worker.id": worker.worker_id,
        "runyard.queue": "default",
        "runyard.takeover": False,
        "runyard.outcome": "completed",
    }
    first, second = spans.named(f"chat {MODEL}")
    assert first.kind is SpanKind.CLIENT
    told = dict(first.attributes)
    assert 0 <= told.pop("gen_ai.response.time_to_first_chunk") < 60
    assert told == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "scripted",
        "gen_ai.request.model": MODEL,
        "gen_ai.request.max_tokens": 4096,
        "gen_ai.request.stream": True,
        "gen_ai.response.model": MODEL,
        "gen_ai.response.finish_reasons": ("tool_use",),
        "gen_ai.usage.input_tokens": 123,
        "gen_ai.usage.output_tokens": 8,
        "gen_ai.usage.cache_read.input_tokens": 100,
        "gen_ai.usage.cache_creation.input_tokens": 3,
        "runyard.step": 1,
        "runyard.attempt": 1,
    }
    assert (second.attributes["runyard.step"], second.attributes["gen_ai.response.finish_reasons"]) == (
        2,
        ("end_turn",),
    )
    called = spans.only("execute_tool lookup")
    assert dict(called.attributes) == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "lookup",
        "gen_ai.tool.type": "function",
        "gen_ai.tool.call.id": "toolu_1",
    }
    (result,) = (await worker.settled(claim.run.id)).results
    assert result["content"] == f"about swifts {span_id(called)}"
    assert {span.status.status_code for span in spans.all} == {StatusCode.UNSET}


def test_names_are_those_of_the_conventions() -> None:
    known = {name for name in vars(gen_ai_attributes).values() if isinstance(name, str)}
    source = Path(spans_module.__file__).read_text()
    used = set(re.findall(r'"(gen_ai\.[\w.]+)"', source))
    assert len(used) > 15
    assert used <= known


async def test_a_run_that_changes_hands_stays_in_one_trace(worker: Worker, spans: Kept) -> None:
    begun = asyncio.Event()
    worker.script([TextDelta("Half an "), begun.set, asyncio.Event()])
    first, crew = await worker.claim(trace_context=CALL), Crew(worker=worker)
    crew.start(first)
    await reached(begun)
    await give_back_all(crew.runner)
    worker.script(says("A whole answer."))
    second = await worker.claim_queued()
    await drive(worker, second)
    before, after = spans.named("invoke_agent researcher")
    assert [trace_id(span) for span in (before, after)] == [TRACE_ID] * 2
    assert [parent_id(span) for span in (before, after)] == [CALLER] * 2
    asked = ("runyard.takeover", "runyard.generation", "runyard.outcome")
    assert [before.attributes[name] for name in asked] == [False, 1, "dropped"]
    assert [after.attributes[name] for name in asked] == [True, 3, "completed"]
    broken_off, whole = spans.named(f"chat {MODEL}")
    assert broken_off.status.status_code is StatusCode.UNSET  # nothing failed: it was stopped on purpose
    assert broken_off.attributes["gen_ai.usage.output_tokens"] == 2
    assert "gen_ai.response.finish_reasons" not in broken_off.attributes
    assert [parent_id(span) for span in (broken_off, whole)] == [span_id(before), span_id(after)]


async def test_each_attempt_is_a_model_call_and_a_failure_says_its_code(worker: Worker, spans: Kept) -> None:
    worker.agent = agent(model=MODEL, fallbacks=["claude-haiku-4-5"])
    models = QueuedModels(scripts={MODEL: [[OVERLOADED], [REFUSED]], "claude-haiku-4-5": [[REFUSED]]})
    claim = await worker.claim(trace_context=CALL)
    await drive(worker, claim, providers=models, retries=NO_WAITS)
    attempts = spans.all[1:]
    assert [(span.name, span.attributes["runyard.attempt"], span.attributes["error.type"]) for span in attempts] == [
        (f"chat {MODEL}", 1, "PROVIDER_ERROR"),
        (f"chat {MODEL}", 2, "PROVIDER_ERROR"),
        ("chat claude-haiku-4-5", 1, "PROVIDER_ERROR"),
    ]
    invocation = spans.only("invoke_agent researcher")
    asked = ("runyard.outcome", "error.type")
    assert [invocation.attributes[name] for name in asked] == ["failed", "FALLBACK_EXHAUSTED"]
    assert {span.status.status_code for span in spans.all} == {StatusCode.ERROR}


async def test_a_cancelled_run_is_no_failure(worker: Worker, spans: Kept) -> None:
    begun = asyncio.Event()
    worker.script([TextDelta("Half"), begun.set, asyncio.Event()])
    claim, crew = await worker.claim(trace_context=CALL), Crew(worker=worker)
    crew.start(claim)
    await reached(begun)
    await worker.database.write(cancel_run, claim.run.id, states.OWNER, at=states.AT)
    crew.runner.compare([replace(own(claim)[0], cancel_requested=True)])
    await crew.left()
    assert (await worker.settled(claim.run.id)).run.status is RunStatus.CANCELLED
    assert spans.only("invoke_agent researcher").attributes["runyard.outcome"] == "cancelled"
    assert {span.status.status_code for span in spans.all} == {StatusCode.UNSET}


async def test_a_function_is_its_invocation_and_its_call(worker: Worker, spans: Kept) -> None:
    @function
    async def double(number: int) -> int:
        return number * 2

    worker.functions = (double,)
    await drive(worker, await worker.claim(agent="fn:double", content='{"number": 2}', trace_context=CALL))
    assert spans.names == ["invoke_function double", "execute_tool double"]
    assert "gen_ai.agent.name" not in spans.all[0].attributes


async def test_nothing_that_anybody_wrote_is_in_a_span(worker: Worker, spans: Kept) -> None:
    worker.script(
        [
            ThinkingDelta(SECRET),
            *asks(tool_use("toolu_1", "fail", q=SECRET), tool_use("toolu_2", "lookup", q=SECRET), saying=SECRET),
        ],
        [TextDelta(SECRET), RuntimeError(SECRET)],
        tools=[fail, lookup],
        system=SECRET,
    )
    claim = await worker.claim(
        content=SECRET, trace_context=CALL, title=SECRET, metadata={"m": SECRET}, context={"c": SECRET}
    )
    await drive(worker, claim)
    assert (await worker.settled(claim.run.id)).run.status is RunStatus.FAILED
    assert spans.only("execute_tool fail").attributes["error.type"] == "tool_error"
    told = [span.to_json() for span in spans.all]
    assert len(told) == 5
    assert [line for line in told if SECRET in line] == []


async def test_a_call_that_nobody_traces_begins_a_trace_of_its_worker(worker: Worker, spans: Kept) -> None:
    worker.script(says("Hi."))
    await drive(worker, await worker.claim())
    invocation, chat = spans.all
    assert parent_id(invocation) is None
    assert trace_id(chat) == trace_id(invocation)


async def test_what_is_not_sampled_is_not_recorded_by_anybody(worker: Worker, spans: Kept) -> None:
    worker.script(says("Hi."))
    await drive(worker, await worker.claim(trace_context={"traceparent": f"00-{TRACE_ID}-{CALLER}-00"}))
    assert spans.all == []


async def test_log_lines_of_a_run_name_it_and_its_trace(worker: Worker, spans: Kept) -> None:
    lines: list[dict[str, Any]] = []

    def keep(_logger: Any, _method: str, event: Any) -> Any:
        lines.append(dict(event))
        raise structlog.DropEvent

    structlog.configure(processors=[structlog.contextvars.merge_contextvars, keep])
    worker.script(asks(tool_use("toolu_1", "lookup", q="swifts")), says("So."), tools=[lookup])
    claim = await worker.claim(trace_context=CALL)
    await drive(worker, claim)
    names = {
        "run_id": claim.run.id,
        "invocation_id": claim.invocation.id,
        "generation": 1,
        "worker_id": worker.worker_id,
        "trace_id": TRACE_ID,
    }
    assert [line["event"] for line in lines] == ["run claimed", "looked up", "run settled"]
    assert [line for line in lines if not names.items() <= line.items()] == []
