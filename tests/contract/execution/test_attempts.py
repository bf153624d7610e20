"""A provider that fails: retries, and the chain of models."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from tests.contract.execution.worker import GUARD_S, Settled, Worker
from tests.fakes.models import NO_WAITS, QueuedModels
from tests.fakes.provider import MODEL, Script, asks, says
from tests.fakes.rows import text, tool_use

from runyard import tool
from runyard.authoring.agents import Agent, agent
from runyard.db.claims import Claim
from runyard.errors import ProviderError, ProviderUnavailable
from runyard.runs import RunStatus
from runyard_workers import flusher, output
from runyard_workers import turn as turn_module
from runyard_workers.execution import Execution
from runyard_workers.prices import cost
from runyard_workers.providers.model import Activity, TextDelta, ThinkingDelta, Usage, UsageSoFar
from runyard_workers.retries import RetryPolicy

pytestmark = pytest.mark.anyio

OVERLOADED = ProviderUnavailable("the provider answered 529: Overloaded", status=529, type="overloaded_error")
CUT = ProviderUnavailable("the provider's stream ended early", status=200, type="cut_stream")
REFUSED = ProviderError("the provider refused the key: check ANTHROPIC_API_KEY", status=401, type=None)
OTHER = "claude-haiku-4-5"


@tool
async def lookup() -> str:
    return "found"


def execution(
    worker: Worker, claim: Claim, models: QueuedModels, definition: Agent, retries: RetryPolicy = NO_WAITS
) -> Execution:
    worker.agent = definition
    services = replace(worker.services, providers=models, retries=retries)  # type: ignore[arg-type]
    return Execution(services, claim, worker.loaded)


async def run(worker: Worker, models: QueuedModels, *, options: Any = None, **definition: Any) -> Settled:
    claim = await worker.claim(content="hi", options=options or {})
    async with asyncio.timeout(GUARD_S):
        await execution(worker, claim, models, agent(**definition)).run()
    return (await worker.settled(claim.run.id)).check()


def one_model(*scripts: Script) -> QueuedModels:
    return QueuedModels(scripts={MODEL: scripts})


async def test_before_any_content_a_failure_is_tried_again_and_readers_are_told(worker: Worker) -> None:
    settled = await run(worker, one_model([OVERLOADED], [Activity(ping=False), CUT], says("Hello.")), model=MODEL)
    assert settled.run.status is RunStatus.COMPLETED
    assert settled.order == ["status", "message", "status", "status", "", "message", "result"]
    assert settled.events("status")[1:] == [
        {"status": "retrying", "model": MODEL, "attempt": 2, "waitMs": 0},
        {"status": "retrying", "model": MODEL, "attempt": 3, "waitMs": 0},
    ]
    assert settled.result["steps"] == 1
    assert "errors" not in settled.result


async def test_after_content_it_is_withdrawn_and_two_answers_are_never_glued(worker: Worker) -> None:
    settled = await run(
        worker,
        one_model(
            asks(tool_use("toolu_1", "lookup"), saying="Let me ch\u00e9ck. "),
            [ThinkingDelta("Hm."), TextDelta("It "), TextDelta("sa"), CUT],
            [ThinkingDelta("Hm."), CUT],
            says("It says ", "so."),
        ),
        tools=[lookup],
    )
    assert settled.contents[-1] == [text("It says so.")]
    kept = {"toSeq": settled.rows[1].last_frame, "length": len("Let me check. ")}
    assert settled.events("rewind") == [kept, kept]
    first, last = settled.rows[3].first_frame, settled.rows[3].last_frame
    assert [frame.data.decode() for frame in settled.frames if first <= frame.seq <= last] == ["It says ", "so."]  # type: ignore[operator]


async def test_thinking_that_no_reader_saw_needs_no_rewind(worker: Worker) -> None:
    settled = await run(worker, one_model([ThinkingDelta("Hm."), CUT], says("Hello.")), stream_thinking=False)
    assert settled.events("rewind") == []


@pytest.mark.parametrize("status", [400, 401, 403, 404])
async def test_what_would_fail_again_is_not_tried_again(worker: Worker, status: int) -> None:
    models = one_model([ProviderError("no", status=status)])
    settled = await run(worker, models)
    assert settled.run.error == {"code": "PROVIDER_ERROR", "message": "no", "retryable": False}
    assert len(models.requests) == 1


@pytest.mark.parametrize("shown", [[], [TextDelta("Half an ")]])
async def test_attempts_are_bounded_and_a_chain_of_one_fails_with_the_providers_own_error(
    worker: Worker, shown: list[TextDelta]
) -> None:
    models = one_model(*([*shown, OVERLOADED] for _ in range(5)))
    settled = await run(worker, models)
    assert settled.run.error == {"code": "PROVIDER_ERROR", "message": OVERLOADED.message, "retryable": True}
    assert len(models.requests) == 4
    assert settled.contents == ["hi"]


async def test_a_wait_that_is_too_long_is_not_waited(worker: Worker) -> None:
    later = ProviderUnavailable("slow down", status=429, retry_after_s=3600.0)
    models = QueuedModels(scripts={MODEL: [[later]], OTHER: [says("Hello.")]})
    settled = await run(worker, models, model=MODEL, fallbacks=[OTHER])
    assert settled.run.status is RunStatus.COMPLETED
    assert models.asked == [MODEL, OTHER]


async def test_what_failed_attempts_have_cost_is_counted_and_their_output_estimated(worker: Worker) -> None:
    begun = UsageSoFar(Usage(input_tokens=27, output_tokens=1), MODEL)
    models = one_model([begun, TextDelta("x" * 40), CUT], says("Hello.", usage=Usage(input_tokens=20, output_tokens=8)))
    settled = await run(worker, models)
    total = Usage(input_tokens=47, output_tokens=19, output_tokens_estimated=10)  # one counted, ten not, eight counted
    assert settled.run.usage == settled.result["usage"] == total.to_dict()
    assert settled.run.cost == cost(MODEL, total).to_dict()
    assert settled.rows[-1].usage == Usage(input_tokens=20, output_tokens=8).to_dict()
    assert settled.run.steps == 1


async def test_the_next_model_of_the_chain_answers(worker: Worker) -> None:
    models = QueuedModels(scripts={MODEL: [[TextDelta("Half"), CUT]] * 4, OTHER: [says("Whole.")]})
    settled = await run(worker, models, model=MODEL, fallbacks=[OTHER])
    assert models.asked == [MODEL] * 4 + [OTHER]
    assert settled.contents[-1] == [text("Whole.")]
    assert settled.events("status")[-1] == {"status": "retrying", "model": OTHER, "attempt": 1, "waitMs": 0}


@pytest.mark.parametrize("head", ["claude-without-a-key", MODEL])
async def test_a_model_that_may_not_be_used_gives_way_at_once(worker: Worker, head: str) -> None:
    models = QueuedModels(scripts={MODEL: [[REFUSED]], OTHER: [says("Hello.")]})
    settled = await run(worker, models, model=head, fallbacks=[OTHER])
    assert settled.run.status is RunStatus.COMPLETED
    assert models.asked in ([OTHER], [MODEL, OTHER])


async def test_each_step_begins_with_the_head_of_the_chain(worker: Worker) -> None:
    models = QueuedModels(
        scripts={MODEL: [[REFUSED], says("Done.")], OTHER: [asks(tool_use("toolu_1", "lookup"))]},
    )
    await run(worker, models, model=MODEL, fallbacks=[OTHER], tools=[lookup])
    assert models.asked == [MODEL, OTHER, MODEL]


async def test_a_callers_model_takes_the_place_of_the_head(worker: Worker) -> None:
    models = QueuedModels(scripts={"claude-opus-4-5": [[REFUSED]], OTHER: [says("Hello.")]})
    await run(worker, models, model=MODEL, fallbacks=[OTHER], options={"model": "claude-opus-4-5"})
    assert models.asked == ["claude-opus-4-5", OTHER]


async def test_a_fallback_that_the_caller_asks_for_is_asked_once(worker: Worker) -> None:
    models = QueuedModels(scripts={OTHER: [[REFUSED]]})
    settled = await run(worker, models, model=MODEL, fallbacks=[OTHER], options={"model": OTHER})
    assert models.asked == [OTHER]
    assert settled.run.error is not None
    assert settled.run.error["code"] == "PROVIDER_ERROR"


async def test_an_exhausted_chain_tells_every_attempts_error(worker: Worker) -> None:
    models = QueuedModels(scripts={MODEL: [[REFUSED]], OTHER: [[TextDelta("Half"), OVERLOADED]] * 4})
    settled = await run(worker, models, model="no-key", fallbacks=[MODEL, OTHER])
    assert settled.run.error == {
        "code": "FALLBACK_EXHAUSTED",
        "message": f"all 3 models failed; the last one: {OVERLOADED.message}",
        "retryable": True,
    }
    errors = settled.result["errors"]
    assert [error["model"] for error in errors] == ["no-key", MODEL, *[OTHER] * 4]
    assert errors[0] == {"model": "no-key", "code": "MODEL_NOT_CONFIGURED", "message": "no key for no-key"}
    assert errors[1] == {"model": MODEL, "code": "PROVIDER_ERROR", "message": REFUSED.message, "status": 401}
    assert errors[2]["type"] == "overloaded_error"
    (body,) = settled.events("error")
    assert body["error"]["errors"] == errors
    assert settled.contents == ["hi"]


async def test_a_chain_that_will_not_work_later_either_says_so(worker: Worker) -> None:
    settled = await run(worker, QueuedModels(scripts={}), model="no-key", fallbacks=["none-either"])
    assert settled.run.error is not None
    assert (settled.run.error["code"], settled.run.error["retryable"]) == ("FALLBACK_EXHAUSTED", False)


async def test_a_connection_without_a_byte_is_dead_and_tried_again(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turn_module, "DEAD_AFTER_S", 0.05)
    settled = await run(worker, one_model([TextDelta("Half"), asyncio.Event()], says("Whole.")))
    assert settled.contents[-1] == [text("Whole.")]
    assert len(settled.events("rewind")) == 1


async def test_frames_that_are_lost_beside_a_retry_are_made_good(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flusher, "BUFFER_MAX_BYTES", 1000)
    monkeypatch.setattr(output, "FLUSH_BEFORE_COMMIT_S", 0.01)

    def redis_goes() -> None:
        worker.store.away = True

    words = [f"{number} " for number in range(50)]
    claim = await worker.claim(content="hi")
    models = one_model([TextDelta("Half"), worker.store.applied, redis_goes, *map(TextDelta, words), CUT], says(*words))
    async with asyncio.timeout(GUARD_S):
        await execution(worker, claim, models, agent()).run()
    worker.store.away = False
    settled = (await worker.settled(claim.run.id)).check()
    assert settled.contents[-1] == [text("".join(words))]
    assert settled.events("rewind") == [{"toSeq": 0, "length": 0}]


async def test_a_cancel_ends_the_wait_for_the_next_attempt(worker: Worker) -> None:
    later = ProviderUnavailable("slow down", status=429, retry_after_s=100.0)
    claim = await worker.claim(content="hi")
    failing = asyncio.Event()
    models = one_model([TextDelta("Half an "), failing.set, later])
    held = execution(worker, claim, models, agent(), RetryPolicy())
    running = asyncio.create_task(held.run())
    async with asyncio.timeout(GUARD_S):
        await failing.wait()
        assert any(b"retrying" in frame.data for frame in await worker.seen(claim))
        held.cancel()
        await running
    settled = await worker.settled(claim.run.id)
    assert settled.run.status is RunStatus.CANCELLED
    assert settled.contents == ["hi"]
    settled.check()
