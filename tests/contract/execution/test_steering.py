"""Input that reaches a run at work: folded at its boundaries, once, whatever fails there."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from tests.contract.execution.crew import Crew, reached
from tests.contract.execution.worker import GUARD_S, Settled, Worker, look
from tests.contract.store import states
from tests.contract.store.holder import Holder
from tests.fakes.databases import Fault
from tests.fakes.provider import Script, asks, says, turn
from tests.fakes.rows import text, tool_use

from runyard import RunContext, tool
from runyard.db import boundaries, claims, turns
from runyard.db.claims import Claim
from runyard.errors import ProviderError
from runyard.lifecycle.accept import accept_turn
from runyard.lifecycle.new_turn import Accepted
from runyard.runs import RunStatus

pytestmark = pytest.mark.anyio

AWAY, LOST_REQUEST, LOST_ANSWER = Fault.AWAY, Fault.LOST_REQUEST, Fault.LOST_ANSWER
ORDERS = [[AWAY], [LOST_REQUEST], [LOST_ANSWER], [AWAY, LOST_REQUEST, AWAY, LOST_ANSWER]]


async def steer(worker: Worker, claim: Claim, content: Any = "wait") -> Accepted:
    return await worker.database.write(accept_turn, states.new_turn(continues=claim.run.id, content=content))


def steering(worker: Worker, claim: Claim, *contents: Any, ids: list[str] | None = None) -> Any:
    """A hook that sends these, one after the other."""

    async def send() -> None:
        for content in contents:
            sent = states.new_turn(continues=claim.run.id, content=content)
            await worker.database.write(accept_turn, sent)
            if ids is not None:
                ids.append(sent.input_id)

    return send


def user_turns(settled: Settled) -> list[Any]:
    return [row.content for row in settled.rows if row.role == "user"]


async def test_input_that_comes_during_the_answer_is_answered_too(worker: Worker) -> None:
    """One invocation, one stream, one terminal frame."""
    worker.script(says("First."), says("Second."))
    claim = await worker.claim(content="go")
    ids: list[str] = []
    worker.database.before[boundaries.end_turn] = steering(worker, claim, "wait, ...", ids=ids)
    settled = (await worker.execute(claim)).check()
    assert user_turns(settled) == ["go", "wait, ..."]
    assert (settled.run.status, settled.result["text"], settled.result["steps"]) == (
        RunStatus.COMPLETED,
        "Second.",
        2,
    )
    assert settled.run.usage["input_tokens"] == 40
    assert settled.events("steered") == [{"inputIds": ids}]
    assert settled.order == [
        *["status", "message", "", "message", "message", "steered"],
        *["", "message", "result"],
    ]
    assert [event["seq"] for event in settled.events("message")] == [1, 2, 3, 4]


async def test_inputs_that_came_together_are_one_turn(worker: Worker) -> None:
    worker.script(says("First."), says("Second."))
    claim = await worker.claim(content="go")
    ids: list[str] = []
    worker.database.before[boundaries.end_turn] = steering(worker, claim, "wait", "and that", ids=ids)
    settled = (await worker.execute(claim)).check()
    assert user_turns(settled) == ["go", "wait\n\nand that"]
    assert settled.events("steered") == [{"inputIds": ids}]


async def test_at_a_tool_boundary_results_lead_in_the_order_of_the_calls(worker: Worker) -> None:
    """Three tools that end as 3, 1, 2; the last block is the text."""
    ended = [asyncio.Event() for _ in range(3)]

    @tool
    async def work(number: int) -> str:
        if before := {1: 3, 2: 1}.get(number):
            await ended[before - 1].wait()
        ended[number - 1].set()
        return f"result {number}"

    calls = [tool_use(f"toolu_{number}", "work", number=number) for number in (1, 2, 3)]
    worker.script(asks(*calls), says("Done."), tools=[work])
    claim = await worker.claim(content="go")
    worker.database.before[turns.start_calls] = steering(worker, claim, "wait", "and that")
    settled = (await worker.execute(claim)).check()
    results = [
        {"type": "tool_result", "tool_use_id": f"toolu_{number}", "content": f"result {number}"} for number in (1, 2, 3)
    ]
    assert user_turns(settled) == ["go", [*results, text("wait"), text("and that")]]
    assert worker.provider.requests[1].messages[-1]["content"] == user_turns(settled)[1]
    assert len(settled.events("steered")) == 1
    assert settled.order.index("steered") > settled.order.index("tool")


async def test_an_empty_answer_and_an_input_are_no_empty_message(worker: Worker) -> None:
    """Two user rows then, one turn in the request."""
    worker.script([turn()])
    claim = await worker.claim(content="go")

    async def send_and_answer() -> None:
        await steer(worker, claim)
        worker.provider.scripts = [says("Done.")]  # the empty turn was not stored, so this is the first one again

    worker.database.before[boundaries.end_turn] = send_and_answer
    settled = (await worker.execute(claim)).check()
    assert settled.contents == ["go", "wait", [text("Done.")]]
    assert worker.provider.requests[-1].messages == [{"role": "user", "content": [text("go"), text("wait")]}]


async def test_input_for_a_queued_run_is_told_at_its_claim(worker: Worker) -> None:
    worker.script(says("Hi."))
    run = await states.accepted(worker.database, content="go")
    sent = states.new_turn(continues=run.id, content="wait")
    await worker.database.write(accept_turn, sent)
    settled = (await worker.execute(await worker.claim_queued())).check()
    assert user_turns(settled) == ["go\n\nwait"]
    assert settled.order[:3] == ["status", "message", "steered"]
    assert settled.events("steered") == [{"inputIds": [sent.input_id]}]


async def test_steering_counts_as_steps_like_any_other(worker: Worker) -> None:
    worker.script(says("First."), says("Never said."), max_steps=1)
    claim = await worker.claim(content="go")
    worker.database.before[boundaries.end_turn] = steering(worker, claim, "wait")
    settled = (await worker.execute(claim)).check()
    assert (settled.run.status, settled.run.error and settled.run.error["code"]) == (
        RunStatus.FAILED,
        "AGENT_MAX_STEPS",
    )
    assert settled.result["steps"] == 1


async def test_a_failed_run_lists_what_it_left_and_the_next_turn_begins_with_it(worker: Worker) -> None:
    worker.script([*says("Half")[:1], ProviderError("the provider answered 400: no", status=400)])
    claim = await worker.claim(content="go")
    ids: list[str] = []
    worker.database.before[boundaries.fail_turn] = steering(worker, claim, "wait", "and that", ids=ids)
    failed = (await worker.execute(claim)).check()
    assert failed.result["unanswered"] == [{"id": ids[0], "text": "wait"}, {"id": ids[1], "text": "and that"}]
    assert failed.contents == ["go"]

    worker.script(says("Here."))
    settled = (await worker.run(continues=claim.run.id, content="try again")).check()
    assert user_turns(settled) == ["go", "wait\n\nand that\n\ntry again"]
    assert settled.events("steered") == [{"inputIds": ids}]
    assert "unanswered" not in settled.result


# Commits that fail -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("faults", ORDERS, ids="+".join)
async def test_a_terminal_boundary_that_fails_folds_once(worker: Worker, faults: list[Fault]) -> None:
    worker.script(says("First."), says("Second."))
    claim = await worker.claim(content="go")
    ids: list[str] = []
    worker.database.before[boundaries.end_turn] = steering(worker, claim, "wait", ids=ids)
    worker.database.faults[boundaries.end_turn] = list(faults)
    settled = (await worker.execute(claim)).check()
    assert user_turns(settled) == ["go", "wait"]
    assert settled.result["text"] == "Second."
    turns_paid = 3 if LOST_REQUEST in faults else 2
    assert len(worker.provider.requests) == turns_paid
    assert (settled.result["steps"], settled.run.usage["input_tokens"]) == (2, 20 * turns_paid)
    assert settled.events("steered") == [{"inputIds": ids}]


@pytest.mark.parametrize("faults", ORDERS, ids="+".join)
async def test_a_tool_boundary_that_fails_folds_once(worker: Worker, faults: list[Fault]) -> None:
    runs: list[str] = []

    @tool
    async def pay(ctx: RunContext) -> str:
        runs.append("pay")
        return "paid"

    worker.script(asks(tool_use("toolu_1", "pay"), saying="Let me pay."), says("Paid."), tools=[pay])
    claim = await worker.claim(content="go")
    ids: list[str] = []
    worker.database.before[boundaries.append_results] = steering(worker, claim, "wait", ids=ids)
    worker.database.faults[boundaries.append_results] = list(faults)
    settled = (await worker.execute(claim)).check()
    assert [block["type"] for block in user_turns(settled)[1]] == ["tool_result", "text"]
    assert (runs, len(worker.provider.requests)) == (["pay"], 2)
    assert settled.events("steered") == [{"inputIds": ids}]


# Runs that change hands --------------------------------------------------------------------------------------------


async def test_a_batch_that_is_taken_over_keeps_its_results_together(worker: Worker) -> None:
    """Steering that waits when a worker dies must not come between the calls and their results."""
    runs: list[str] = []

    @tool(idempotent=True)
    async def lookup() -> str:
        runs.append("lookup")
        return "found"

    worker.script(says("Never."), says("Done."), tools=[lookup])
    claim = await worker.claim(content="go")
    holder = await Holder.of(worker.database, claim)
    await holder.asks("a", "b", idempotent=True)
    await holder.starts("a", "b")
    await holder.finishes("a")
    await steer(worker, claim)
    await worker.database.write(claims.give_back, claim.run.id, claim.run.generation)
    settled = (await worker.execute(await worker.claim_queued())).check()
    assert [result["content"] for result in settled.results] == ["of a", "found"]
    assert user_turns(settled)[1][-1] == text("wait")
    assert (runs, settled.result["text"]) == (["lookup"], "Done.")
    assert len(settled.events("steered")) == 1


async def test_whoever_takes_a_run_tells_of_steering_that_may_not_have_been_told(worker: Worker) -> None:
    """The worker died between the boundary's commit and its frames."""
    worker.script(says("Never."), says("Second."))
    claim = await worker.claim(content="go")
    sent = states.new_turn(continues=claim.run.id, content="wait")
    await worker.database.write(accept_turn, sent)
    await (await Holder.of(worker.database, claim)).says("First. ")
    await worker.database.write(claims.give_back, claim.run.id, claim.run.generation)
    settled = (await worker.execute(await worker.claim_queued())).check()
    assert settled.events("steered") == [{"inputIds": [sent.input_id]}]
    assert settled.contents == ["go", [text("First. ")], "wait", [text("Second.")]]
    assert settled.run.steps == 4


# The end and the input at the same moment --------------------------------------------------------------------------


def interleaved(worker: Worker, claim: Claim, sending: list[Any], *, turns_of_the_loop: int) -> Any:
    """A hook that begins to send, and lets the boundary begin so many turns of the event loop later."""

    async def send() -> None:
        sending.append(asyncio.create_task(steer(worker, claim)))
        for _ in range(turns_of_the_loop):
            await asyncio.sleep(0)

    return send


@pytest.mark.parametrize(
    ("work", "races"), [(boundaries.end_turn, 100), (boundaries.append_results, 20)], ids=["terminal", "tool"]
)
async def test_input_that_races_with_a_boundary_is_answered_once(worker: Worker, work: Any, races: int) -> None:
    """Whichever transaction is first, at every distance between the two."""

    @tool(idempotent=True)
    async def lookup() -> str:
        return "found"

    first: Script = says("One.") if work is boundaries.end_turn else asks(tool_use("toolu_1", "lookup"))
    kinds = set()
    for at in range(races):
        worker.script(first, *[says(f"Answer {number}.") for number in range(3)], tools=[lookup])
        claim = await worker.claim(content="go")
        sending: list[asyncio.Task[Accepted]] = []
        worker.database.before[work] = interleaved(worker, claim, sending, turns_of_the_loop=at % 20)
        async with asyncio.timeout(GUARD_S):
            await worker.execution(claim).run()
            accepted = await sending[0]
        if not accepted.is_steering:
            await worker.execution(await worker.claim_queued()).run()
        kinds.add(accepted.is_steering)
        await check_answered(worker, claim, accepted)
    assert True in kinds, "the race was no race"


async def check_answered(worker: Worker, claim: Claim, accepted: Accepted) -> None:
    async with asyncio.timeout(GUARD_S):
        await worker.closer.drained()
    settled = await look(worker.database, worker.store, claim.run.id)
    assert settled.run.status is RunStatus.COMPLETED
    where = [row.seq for row in settled.rows if holds(row.content, "wait")]
    assert len(where) == 1
    assert settled.rows[-1].role == "assistant"
    assert settled.rows[-1].seq > where[0]
    assert settled.rows[where[0] - 1].invocation_id == accepted.invocation_id
    assert (accepted.invocation_id == claim.invocation.id) is accepted.is_steering


def holds(content: Any, words: str) -> bool:
    texts: Sequence[str] = [content] if isinstance(content, str) else [block.get("text", "") for block in content]
    return words in texts


async def test_many_inputs_at_once_are_all_answered(worker: Worker) -> None:
    """From the model's first word to the end of the run, from everywhere."""
    count = 20
    begun = asyncio.Event()
    worker.script(*[[begun.set, *says(f"Answer {number}.")] for number in range(count + 1)])
    claim, crew = await worker.claim(content="go"), Crew(worker=worker)
    crew.start(claim)
    await reached(begun)
    sent = await asyncio.gather(*(steer(worker, claim, f"input {number}") for number in range(count)))
    await crew.left()
    while (found := await states.claim(worker.database, worker.worker_id)) is not None:
        crew.start(found)
        await crew.left()
    async with asyncio.timeout(GUARD_S):
        await worker.closer.drained()
    settled = await look(worker.database, worker.store, claim.run.id)
    told = [words for row in settled.rows if row.role == "user" for words in str(row.content).split("\n\n")]
    assert sorted(told) == sorted(["go", *(f"input {number}" for number in range(count))])
    assert settled.rows[-1].role == "assistant"
    assert len({accepted.run_id for accepted in sent}) == 1
