"""What a test lets happen to a run: deaths, hand-overs, cancels, steering, each at a moment that it names."""

import asyncio
import re
from typing import Any, Literal

import pytest
from tests.contract.harness.desk import Desk
from tests.standin import validate_transcript

from runyard import RunContext, agent, function, tool
from runyard.blocks import CANCELLED, INTERRUPTED
from runyard.testing import RunResult, ScriptError, harness
from runyard.transcript import request_messages

pytestmark = pytest.mark.anyio

When = Literal["before", "after"]


def checked(result: RunResult) -> RunResult:
    """What holds of every run, whatever happened to it."""
    validate_transcript(request_messages(result.rows))
    own = [row for row in result.rows if row.role == "assistant" and row.invocation_id == result.invocation_id]
    texts = [block["text"] for row in own for block in row.content if block["type"] == "text"]  # type: ignore[index]
    assert result.shown == "".join(texts)
    assert [frame.event for frame in result.frames if frame.event in ("result", "error")] == [result.frames[-1].event]
    return result


# Deaths ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("when", ["before", "after"])
async def test_an_idempotent_tool_runs_again_with_its_key_when_its_worker_dies(when: When) -> None:
    desk = Desk()
    async with harness(desk.agent()) as h:
        h.model.calls("look_up", order="1").says("Packed.")
        getattr(h, when)(tool="look_up").crash()
        result = checked(await h.run("Where is it?"))
    assert result.status == "completed"
    assert not result.calls[0].is_error
    assert len(desk.looked_up) == (1 if when == "before" else 2)
    assert len(set(desk.looked_up)) == 1
    assert [ran.idempotency_key for ran in h.executions] == desk.looked_up


@pytest.mark.parametrize("when", ["before", "after"])
async def test_another_tool_is_not_repeated_and_the_model_is_told(when: When) -> None:
    desk = Desk()
    async with harness(desk.agent()) as h:
        h.model.says("I pay.").calls("refund", order="1").says("Please check.")
        getattr(h, when)(tool="refund").crash()
        result = checked(await h.run("Refund it"))
    assert (result.status, len(desk.paid)) == ("completed", 0 if when == "before" else 1)
    assert [(call.result, call.is_error) for call in result.calls] == [(INTERRUPTED, True)]


async def test_calls_beside_the_one_that_dies() -> None:
    desk = Desk()
    async with harness(desk.agent()) as h:
        h.model.calls("look_up", order="1").calls("refund", order="2").calls("look_up", order="3").says("ok")
        h.after(tool=next(t for t in desk.agent().tools if t.name == "look_up"), nth=2).crash()
        result = checked(await h.run("go"))
    assert (result.status, len(desk.paid)) == ("completed", 1)
    assert not any(call.is_error for call in result.calls if call.name == "look_up")
    assert 3 <= len(desk.looked_up) <= 4
    assert len(set(desk.looked_up)) == 2


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_worker_dies_while_the_model_answers(when: When) -> None:
    async with harness(Desk().agent()) as h:
        h.model.thinks("Hm.").says("One ", "two.").calls("look_up", order="1").says("Three.")
        getattr(h, when)(step=1).crash()
        getattr(h, when)(step=2).crash()
        result = checked(await h.run("Count"))
    assert (result.status, result.text) == ("completed", "Three.")
    assert result.shown == "One two.Three."
    assert len(h.model.requests) == 4
    assert h.model.requests[0].messages == h.model.requests[1].messages
    assert len(result.run.cost) > 0


async def test_a_worker_dies_while_its_provider_fails() -> None:
    async with harness(Desk().agent()) as h:
        h.model.fails(529, saying="Half").says("Whole.")
        h.after(step=1).crash()
        result = checked(await h.run("go"))
    assert (result.text, len(h.model.requests)) == ("Whole.", 3)


async def test_a_tool_that_kills_its_workers_fails_the_run() -> None:
    async with harness(Desk().agent()) as h:
        h.model.calls("look_up", order="1")
        for nth in (1, 2, 3):
            h.before(tool="look_up", nth=nth).crash()
        result = checked(await h.run("go"))
    assert result.error is not None
    assert (result.status, result.error["code"]) == ("failed", "RUN_CRASHED")


@pytest.mark.parametrize("in_thread", [True, False])
async def test_a_tools_own_code_may_die_in_its_middle(in_thread: bool) -> None:
    acted: list[str] = []

    def act() -> None:
        acted.append("charged")
        if len(acted) == 1:
            h.crash()
        acted.append("told")

    async def charging() -> str:
        act()
        return "charged"

    def charging_in_thread() -> str:
        act()
        return "charged"

    charge = tool(name="charge", idempotent=True)(charging_in_thread if in_thread else charging)
    async with harness(agent(tools=[charge])) as h:
        h.model.calls("charge").says("Charged.")
        result = checked(await h.run("Charge it"))
    assert acted == ["charged", "charged", "told"]
    assert result.calls[0].result == "charged"


async def test_a_test_lets_a_worker_die() -> None:
    running = asyncio.Event()
    stopped: list[BaseException] = []

    @tool(idempotent=True)
    async def search() -> str:
        if running.is_set():
            return "found"
        running.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError as error:
            stopped.append(error)
            raise
        return "never"

    async with harness(agent(tools=[search])) as h:
        h.crash()  # nobody has anything to do: nothing is lost
        h.model.calls("search").says("Found.")
        run = await h.start("go")
        await running.wait()
        h.crash()
        result = checked(await run.result())
    assert (result.text, len(stopped)) == ("Found.", 1)


async def test_a_function_that_may_have_acted_is_not_repeated() -> None:
    ran: list[str] = []

    @function
    def pay(order: str) -> str:
        ran.append(order)
        return "paid"

    @function(idempotent=True)
    async def plan(ctx: RunContext, order: str) -> str:
        ctx.stream.write("planning ")
        ran.append(str(ctx.idempotency_key))
        return "planned"

    async with harness(agent(tools=[pay, plan])) as h:
        h.after(tool="pay").crash()
        h.after(tool="plan").crash()
        crashed = await h.call(pay, {"order": "1"})
        planned = await h.call(plan, {"order": "2"})
    assert crashed.error is not None
    assert (crashed.status, crashed.error["code"]) == ("failed", "RUN_CRASHED")
    assert (planned.status, planned.output, planned.shown) == ("completed", "planned", "planning ")
    assert ran[0] == "1"
    assert ran[1] == ran[2]


async def test_every_run_of_the_worker_that_dies_goes_on() -> None:
    async with harness(Desk().agent()) as h:
        for _ in range(6):
            h.model.calls("look_up", order="1")
        for _ in range(6):
            h.model.says("Packed.")
        h.before(tool="look_up", nth=4).crash()
        results = await asyncio.gather(*(h.run(f"{number}") for number in range(6)))
    assert [checked(result).status for result in results] == ["completed"] * 6


# Hand-overs, cancels, steering --------------------------------------------------------------------------------------


async def test_a_hand_over_waits_for_the_next_boundary() -> None:
    desk = Desk()
    async with harness(desk.agent()) as h:
        h.model.calls("refund", order="1").says("Paid.")
        h.before(tool="refund").hand_over()
        result = checked(await h.run("Refund it"))
        h.model.says("You are welcome.")
        await h.hand_over()
        again = checked(await h.run("Thanks", continues=result))
    assert (result.status, len(desk.paid), result.calls[0].is_error) == ("completed", 1, False)
    assert [status["status"] for status in result.events("status")] == ["running", "running"]
    assert len(h.model.requests) == 3
    assert again.status == "completed"


async def test_a_hand_over_while_the_model_answers() -> None:
    async with harness(Desk().agent()) as h:
        h.model.says("I look.").calls("look_up", order="1").says("Packed.")
        h.before(step=1).hand_over()
        result = checked(await h.run("go"))
    assert result.shown == "I look.Packed."
    assert len(h.model.requests) == 2


@pytest.mark.parametrize(("when", "kept"), [("before", ""), ("after", "It began ")])
async def test_a_cancel_while_the_model_answers_keeps_what_it_said(when: When, kept: str) -> None:
    async with harness(Desk().agent()) as h:
        h.model.says("It began ").calls("refund", order="1")
        getattr(h, when)(step=1).cancel()
        result = checked(await h.run("Tell me"))
    assert (result.status, result.text, result.calls) == ("cancelled", kept, [])


async def test_a_cancel_while_a_tool_works() -> None:
    desk = Desk()
    async with harness(desk.agent()) as h:
        h.model.calls("look_up", order="1").calls("refund", order="2")
        h.after(tool="look_up").cancel()
        result = checked(await h.run("go"))
        assert result.status == "cancelled"
        h.model.calls("look_up", order="1")
        h.before(tool="look_up").cancel()
        assert (await h.run("go")).status == "cancelled"
    assert not result.calls[0].is_error


async def test_calls_that_have_not_begun_are_cancelled() -> None:
    @tool(exclusive=True)
    async def first() -> str:
        return "1"

    @tool(exclusive=True)
    async def second() -> str:
        raise AssertionError("it ran")

    async with harness(agent(tools=[first, second])) as h:
        h.model.calls("first").calls("second")
        h.after(tool="first").cancel()
        result = checked(await h.run("go"))
    assert [call.result for call in result.calls] == ["1", CANCELLED]


@pytest.mark.parametrize("moment", [{"tool": "look_up"}, {"tool": "refund"}, {"step": 1}], ids=str)
async def test_steering_is_read_behind_the_results(moment: dict[str, Any]) -> None:
    async with harness(Desk().agent()) as h:
        h.model.calls("look_up", order="1").calls("refund", order="2").says("Gefunden.")
        h.after(**moment).steer("in German")
        result = checked(await h.run("go"))
    *results, said = h.model.requests[1].messages[-1]["content"]
    assert [block["type"] for block in results] == ["tool_result", "tool_result"]
    assert said == {"type": "text", "text": "in German"}
    assert len(result.events("steered")) == 1


async def test_steering_of_the_last_moment_is_answered_by_the_same_run() -> None:
    async with harness(Desk().agent()) as h:
        h.model.says("Bye.").says("One more thing, then.")
        h.after(step=1).steer("Wait!")
        result = checked(await h.run("go"))
    assert (result.text, result.steps) == ("One more thing, then.", 2)


async def test_a_worker_dies_while_it_leaves() -> None:
    desk = Desk()
    async with harness(desk.agent()) as h:
        h.model.calls("look_up", order="1").calls("refund", order="2").says("ok")
        h.before(tool="look_up").hand_over()
        h.before(tool="look_up").hand_over()
        h.after(tool="look_up").crash()
        result = checked(await h.run("go"))
    assert (result.status, len(desk.looked_up)) == ("completed", 2)


# The moments themselves ---------------------------------------------------------------------------------------------


async def test_what_a_test_does_at_a_moment_may_fail_it() -> None:
    seen: list[int] = []

    async def look() -> None:
        seen.append(len(h.model.requests))

    def refuse() -> None:
        raise AssertionError("the tool must not run")

    async def failing_test() -> None:
        h.model.calls("look_up", order="1").says("ok")
        h.before(step=1).does(look)
        h.before(tool="look_up").does(lambda: seen.append(2))
        h.before(step=2).does(refuse)
        await h.run("go")

    async with harness(Desk().agent()) as h:
        with pytest.raises(AssertionError, match="the tool must not run"):
            await failing_test()
        with pytest.raises(AssertionError, match="the tool must not run"):
            h.check()
        h.check = lambda: None  # type: ignore[method-assign]  # the block's end would say it again
    assert seen == [1, 2]


async def test_a_moment_that_never_comes_fails_the_test() -> None:
    async def failing_test() -> None:
        async with harness(Desk().agent()) as h:
            h.model.says("No.")
            h.before(tool="refund", nth=2).crash()
            h.after(step=9).steer("psst")
            h.before(tool="refund").cancel()
            h.before(tool="refund").does(print)
            h.after(tool="refund").hand_over()
            await h.run("Refund it")

    named = "before(tool='refund', nth=2).crash(), after(step=9).steer('psst'), before(tool='refund').cancel(), "
    named += "before(tool='refund').does(print), after(tool='refund').hand_over()"
    with pytest.raises(ScriptError, match=re.escape(f"these moments never came: {named}")):
        await failing_test()


@pytest.mark.parametrize("moment", [{}, {"tool": "a", "step": 1}, {"step": 0}, {"tool": "a", "nth": 0}], ids=str)
async def test_a_moment_names_one_thing(moment: dict[str, Any]) -> None:
    async with harness(Desk().agent()) as h:
        with pytest.raises(ValueError, match=r"takes tool=\.\.\. or step=\.\.\."):
            h.before(**moment)
