"""Agents and functions in the authors' harness: the worker's own loop, without a service."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.contract.harness.desk import Desk
from tests.standin import validate_transcript

from runyard import Refused, RunContext, agent, function, lifespan, tool
from runyard.errors import InputRequired, InvalidArgs, RunBusy, RunNotFound, StartError
from runyard.testing import ScriptError, StartedRun, harness

pytestmark = pytest.mark.anyio


async def test_a_run_goes_through_the_workers_own_loop() -> None:
    desk = Desk()
    async with harness(desk.agent(model="claude-sonnet-4-5")) as h:
        h.model.thinks("They want their money.").says("I look ", "it up.").calls("look_up", order="A-1")
        h.model.calls("refund", {"order": "A-1"}).says("It is paid back.")
        result = await h.run("Refund A-1")
    assert (result.status, result.finish_reason, result.steps) == ("completed", "end_turn", 3)
    assert (result.text, result.model) == ("It is paid back.", "claude-sonnet-4-5")
    assert [(call.name, call.input, call.result, call.is_error) for call in result.calls] == [
        ("look_up", {"order": "A-1"}, '{"order":"A-1","state":"packed"}', False),
        ("refund", {"order": "A-1"}, "order A-1 is paid back", False),
    ]
    assert [message["role"] for message in result.messages] == ["user", "assistant"] * 3
    assert result.messages[1]["content"][0]["thinking"] == "They want their money."
    validate_transcript(result.messages)
    assert result.shown == "I look it up.It is paid back."
    assert [frame.data for frame in result.frames if frame.event == ""] == ["I look ", "it up.", "It is paid back."]
    assert result.events("refunding") == [{"order": "A-1"}]
    assert result.events("thinking") == ["They want their money."]
    assert [frame.seq for frame in result.frames] == list(range(1, len(result.frames) + 1))
    assert result.frames[-1].event == "result"
    assert result.frames[-1].data == result.result
    assert [(ran.tool, ran.arguments) for ran in h.executions] == [
        ("look_up", {"order": "A-1"}),
        ("refund", {"order": "A-1"}),
    ]


async def test_what_the_model_was_asked_can_be_looked_at() -> None:
    async def greeting(ctx: RunContext) -> str:
        return f"You serve {ctx.user_id}."

    async with harness(Desk().agent(system=greeting, max_tokens=200, provider_options={"top_k": 5})) as h:
        h.model.calls("look_up", order="A-1").says("Packed.")
        await h.run("Where is A-1?", user_id="ada")
    first, second = h.model.requests
    assert (first.system, first.max_tokens, dict(first.options)) == ("You serve ada.", 200, {"top_k": 5})
    assert [tool["name"] for tool in first.tools] == ["refund", "look_up"]
    assert first.messages == [{"role": "user", "content": "Where is A-1?"}]
    assert second.messages[-1]["content"][0]["content"] == '{"order":"A-1","state":"packed"}'


async def test_what_one_call_changes_in_its_context_no_other_sees() -> None:
    @tool
    async def mark(ctx: RunContext) -> list[object]:
        assert isinstance(ctx.metadata, dict)
        assert isinstance(ctx.context, dict)
        before = [dict(ctx.metadata), list(ctx.context["plans"])]
        ctx.metadata["marked"] = True
        ctx.context["plans"].append("gold")
        return before

    async with harness(agent(tools=[mark])) as h:
        h.model.calls(mark).calls(mark).says("Done.")
        result = await h.run("go", metadata={"ticket": 7}, context={"plans": []})
    assert [call.result for call in result.calls] == ['[{"ticket":7},[]]'] * 2


async def test_a_run_is_continued_by_its_result_by_its_id_or_by_its_session() -> None:
    async with harness(Desk().agent()) as h:
        for answer in ("one", "two", "three", "four", "five"):
            h.model.says(answer)
        first = await h.run("1", user_id="ada", tenant_id="acme", session_id="s")
        second = await h.run("2", continues=first)
        third = await h.run("3", continues=first.run_id, user_id="ada", tenant_id="acme")
        fourth = await h.run("4", session_id="s", user_id="ada", tenant_id="acme")
        other = await h.run("5", session_id="s")
        with pytest.raises(RunNotFound):
            await h.run("6", continues=first.run_id)
    assert {it.run_id for it in (first, second, third, fourth)} == {first.run_id} != {other.run_id}
    assert (first.session_id, second.run.tenant_id, second.run.user_id) == ("s", "acme", "ada")
    assert [message["content"] for message in fourth.messages[::2]] == ["1", "2", "3", "4"]
    assert [it.shown for it in (first, second, third, fourth)] == ["one", "two", "three", "four"]


async def test_tools_find_what_the_call_brought_along() -> None:
    seen: list[RunContext] = []

    @tool
    async def who(ctx: RunContext) -> None:
        seen.append(ctx)
        await ctx.rooms.broadcast("desk", "asked", {"by": ctx.user_id})

    async with harness(agent(tools=[who]), name="desk", resources={"books": 3}) as h:
        h.model.calls(who).says("ok")
        result = await h.run(
            "hi",
            user_id="ada",
            tenant_id="acme",
            roles=["admin"],
            context={"plan": "gold"},
            metadata={"ticket": 7},
            session_id="s",
            title="Who?",
        )
    (ctx,) = seen
    assert (ctx.user_id, ctx.tenant_id, ctx.roles, ctx.session_id) == ("ada", "acme", {"admin"}, "s")
    assert (ctx.context, ctx.metadata, ctx.agent) == ({"plan": "gold"}, {"ticket": 7}, "desk")
    assert ctx.resources == h.resources == {"books": 3}
    assert (ctx.run_id, ctx.invocation_id, ctx.call_id) == (result.run_id, result.invocation_id, "toolu_1")
    assert result.run.title == "Who?"
    assert [(said.tenant_id, said.room, said.event, said.data) for said in h.broadcasts] == [
        ("acme", "desk", "asked", {"by": "ada"})
    ]


async def test_a_history_from_elsewhere_stands_before_the_input() -> None:
    async with harness(Desk().agent()) as h:
        h.model.says("You said red.")
        history = [{"role": "user", "content": "Red."}, {"role": "assistant", "content": "Noted."}]
        await h.run("What did I say?", history=history)
    (request,) = h.model.requests
    assert [message["role"] for message in request.messages] == ["user", "assistant", "user"]


async def test_the_options_of_a_call() -> None:
    async with harness(Desk().agent(model="claude-sonnet-4-5")) as h:
        h.model.calls("look_up", order="A-1")
        result = await h.run("go", model="claude-haiku-4-5", max_steps=1, max_tokens=10)
    assert result.error is not None
    assert (result.status, result.error["code"], result.finish_reason) == ("failed", "AGENT_MAX_STEPS", "max_steps")
    assert [(request.model, request.max_tokens) for request in h.model.requests] == [("claude-haiku-4-5", 10)]
    assert result.frames[-1].event == "error"


@pytest.mark.parametrize(
    ("said", "refusal"), [("", InputRequired), ("  ", InputRequired), ([{"type": "x"}], InvalidArgs)]
)
async def test_what_no_caller_may_say(said: Any, refusal: type[Exception]) -> None:
    async with harness(Desk().agent()) as h:
        with pytest.raises(refusal):
            await h.run(said)


# Beside the test ---------------------------------------------------------------------------------------------------


async def test_a_run_that_goes_on_is_watched_steered_and_has_its_result() -> None:
    begun, may_end = asyncio.Event(), asyncio.Event()

    @tool
    async def search() -> str:
        begun.set()
        await may_end.wait()
        return "found"

    async with harness(agent(tools=[search])) as h:
        h.model.calls("search").says("Hier.")
        run = await h.start("Find it")
        start = await run.until("tool_start")
        assert start.data["name"] == "search"
        await begun.wait()
        await run.steer("in German")
        with pytest.raises(RunBusy):
            await h.run("now", continues=run.run_id, if_busy="reject")
        may_end.set()
        result = await run.result()
        with pytest.raises(ScriptError, match="without a frame 'progress'"):
            await run.until("progress")
        h.model.says("Once more.")
        with pytest.raises(ScriptError, match="had ended before it was steered by 'too late'"):
            await run.steer("too late")
        assert [frame async for frame in run.frames()] == result.frames
        again = await h.run("thanks", continues=result, if_busy="cancel")
        assert again.status == "completed"
    assert h.model.requests[1].messages[-1]["content"][-1] == {"type": "text", "text": "in German"}
    assert len(result.events("steered")) == 1


async def test_a_run_that_goes_on_is_cancelled() -> None:
    told: list[bool] = []

    @tool
    async def wait(ctx: RunContext) -> str:
        await ctx.cancelled.wait()
        told.append(ctx.cancelled.is_set())
        return "stopped"

    async with harness(agent(tools=[wait])) as h:
        h.model.says("I wait.").calls("wait")
        run = await h.start("go")
        await run.until("tool_start")
        await run.cancel()
        result = await run.result()
    assert (result.status, result.finish_reason, told) == ("cancelled", "cancelled", [True])
    assert result.calls[0].result == "stopped"


async def test_a_call_may_take_the_place_of_what_runs() -> None:
    async with harness(Desk().agent()) as h:
        h.model.says("one").says("two")
        next_ones: list[StartedRun] = []

        async def call_again() -> None:
            next_ones.append(await h.start("2", continues=run.run_id, if_busy="cancel"))

        h.before(step=1).does(call_again)
        run = await h.start("1")
        stopped = await run.result()
        result = await next_ones[0].result()
    assert (stopped.status, result.status, result.text) == ("cancelled", "completed", "two")


async def test_a_run_that_does_not_end_is_given_up() -> None:
    @tool
    async def sleep() -> None:
        await asyncio.Event().wait()

    async def failing_test() -> None:
        async with harness(agent(tools=[sleep]), timeout_s=1) as h:
            h.model.calls("sleep")
            run = await h.start("go")
            await run.until("tool_start")
            await run.result()

    with pytest.raises(TimeoutError, match="not ended within 1 s") as caught:
        await failing_test()
    assert "calls sleep" in caught.value.__notes__[0]


# Functions ---------------------------------------------------------------------------------------------------------


@function
def order_status(ctx: RunContext, order: str) -> dict[str, str]:
    """What has become of an order."""
    if order == "X":
        raise Refused("ORDER_UNKNOWN", "There is no such order", status=404, order=order)
    ctx.stream.write(f"looking for {order}\n")
    return {"state": "packed", "for": ctx.user_id}


async def test_a_function_is_called() -> None:
    async with harness(order_status) as h:
        packed = await h.call(order_status, {"order": "A-1"}, user_id="ada")
        unknown = await h.call("order_status", {"order": "X"})
        wrong = await h.call("order_status")
        with pytest.raises(LookupError, match="no function is named 'order': there are order_status"):
            await h.call("order")
        with pytest.raises(LookupError, match="there are none"):
            await h.run("hi")
    assert (packed.status, packed.output, packed.text) == (
        "completed",
        {"state": "packed", "for": "ada"},
        "looking for A-1\n",
    )
    assert packed.shown == packed.text
    assert unknown.error is not None
    assert (unknown.error["code"], unknown.error["status"]) == ("ORDER_UNKNOWN", 404)
    assert wrong.error is not None
    assert wrong.error["code"] == "INVALID_ARGS"


async def test_a_function_among_an_agents_tools_may_be_called_by_itself() -> None:
    async with harness(agent(tools=[order_status])) as h:
        h.model.calls(order_status, order="A-1").says("Packed.")
        assert (await h.run("Where is A-1?")).calls[0].result == '{"state":"packed","for":"dev"}'
        assert (await h.call(order_status, {"order": "A-1"})).output == {"state": "packed", "for": "dev"}
    assert [ran.tool for ran in h.executions] == ["order_status", "order_status"]


# Resources ---------------------------------------------------------------------------------------------------------


async def test_lifespans_are_opened_and_closed_in_one_task() -> None:
    tasks: list[Any] = []

    @lifespan
    async def books() -> AsyncIterator[dict[str, Any]]:
        tasks.append(asyncio.current_task())
        async with asyncio.timeout(None):  # as everything built on cancel scopes, it must be left where it was entered
            yield {"books": 3, "shelf": "A"}
        tasks.append(asyncio.current_task())

    async with harness(Desk().agent(), lifespans=[books], resources={"shelf": "B"}) as h:
        assert h.resources == {"books": 3, "shelf": "B"}
    assert tasks[0] is tasks[1] is not asyncio.current_task()


async def test_a_lifespan_that_fails_is_told() -> None:
    @lifespan
    async def broken() -> AsyncIterator[dict[str, Any]]:
        raise OSError("no books")
        yield {}

    with pytest.raises(StartError, match="no books"):
        async with harness(Desk().agent(), lifespans=[broken]):
            raise AssertionError("it was opened")


async def test_a_harness_is_opened_once() -> None:
    opening = harness(Desk().agent())
    async with opening:
        pass
    with pytest.raises(RuntimeError, match="opened once"):
        async with opening:
            raise AssertionError("it was opened again")


async def test_runs_at_the_same_time_and_harnesses_at_the_same_time() -> None:
    async with harness(Desk().agent()) as one, harness(Desk().agent()) as other:
        for number in range(20):
            one.model.says(f"one {number}")
            other.model.says(f"other {number}")
        results = await asyncio.gather(*(h.run(f"go {number}") for number in range(20) for h in (one, other)))
    assert len({result.text for result in results}) == 40


async def test_an_exit_of_a_tools_own_task_stays_its_own() -> None:
    @tool
    async def leave() -> str:
        async def work() -> None:
            raise SystemExit(3)

        done = asyncio.create_task(work())
        await asyncio.wait([done])
        return repr(done.exception())

    async with harness(agent(tools=[leave])) as h:
        h.model.calls("leave").says("ok")
        result = await h.run("go")
    assert "a task ended by SystemExit" in str(result.calls[0].result)
    assert asyncio.get_running_loop().get_task_factory() is None
