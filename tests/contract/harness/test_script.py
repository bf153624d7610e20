"""The scripted model of the authors' harness: what it plays, and what a test is told when script and run differ."""

import re
from collections.abc import Callable
from typing import Any

import orjson
import pytest
from tests.contract.harness.desk import Desk

from runyard import agent, tool
from runyard.authoring.agents import Agent
from runyard.testing import Harness, RunResult, ScriptError, harness
from runyard_workers.testing.script import Script

pytestmark = pytest.mark.anyio

Write = Callable[[Script], object]


async def played(write: Write, *, of: Agent | None = None) -> tuple[RunResult, Harness]:
    async with harness(of or Desk().agent()) as h:
        write(h.model)
        return await h.run("go"), h


def kinds(result: RunResult) -> list[list[str]]:
    """The blocks of each assistant turn."""
    return [
        [block["type"] for block in message["content"]] for message in result.messages if message["role"] == "assistant"
    ]


# Turns -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("write", "turns"),
    [
        (lambda m: m.says("a"), [["text"]]),
        (lambda m: m.thinks("a").thinks("b").says("c"), [["thinking", "thinking", "text"]]),
        (lambda m: m.says("a").calls("look_up", order="1").says("b"), [["text", "tool_use"], ["text"]]),
        (
            lambda m: m.calls("look_up", order="1").calls("refund", order="2").says("b"),
            [["tool_use", "tool_use"], ["text"]],
        ),
        (
            lambda m: (m.calls("look_up", order="1"), m.calls("refund", order="2"), m.says("b")),
            [["tool_use"], ["tool_use"], ["text"]],
        ),
        (
            lambda m: m.thinks("a").calls("look_up", order="1").thinks("b").says("c"),
            [["thinking", "tool_use"], ["thinking", "text"]],
        ),
        (lambda m: m.says("", "a", ""), [["text"]]),
        (lambda m: m.says("").calls("look_up", order="1").says("ok"), [["tool_use"], ["text"]]),
    ],
)
async def test_what_does_not_fit_behind_begins_the_next_turn(write: Write, turns: list[list[str]]) -> None:
    result, _ = await played(write)
    assert (result.status, kinds(result)) == ("completed", turns)


async def test_a_model_may_say_nothing() -> None:
    result, _ = await played(lambda m: m.says(""))
    assert (result.status, result.text, result.messages[1:]) == ("completed", "", [])


async def test_calls_of_one_turn_run_together() -> None:
    together: list[str] = []

    @tool
    async def one() -> str:
        together.append("one")
        return "1"

    @tool(exclusive=True)
    async def other() -> str:
        together.append("other")
        return "2"

    result, h = await played(
        lambda m: m.calls("other").calls(one).calls("neither", {"input": 1}, self=2).says("ok"),
        of=agent(tools=[one, other]),
    )
    assert [call.result for call in result.calls] == ["2", "1", 'Unknown tool "neither"']
    assert result.calls[2].input == {"input": 1, "self": 2}
    assert together == ["one", "other"]
    assert len(h.model.requests) == 2


@pytest.mark.parametrize("reason", ["refusal", "stop_sequence", "model_context_window_exceeded", "max_tokens"])
async def test_why_a_turn_ends(reason: str) -> None:
    result, _ = await played(lambda m: m.says("That is all.", stop_reason=reason))
    assert (result.status, result.finish_reason, result.text) == ("completed", reason, "That is all.")


async def test_a_turn_that_is_paused_goes_on() -> None:
    result, _ = await played(lambda m: m.says("First ", stop_reason="pause_turn").says("second."))
    assert (result.text, result.finish_reason) == ("First second.", "end_turn")


async def test_a_model_refuses() -> None:
    result, _ = await played(lambda m: m.refuses("I ", "will not."))
    assert (result.status, result.finish_reason, result.text) == ("completed", "refusal", "I will not.")


async def test_the_output_limit_cuts_the_last_call() -> None:
    desk = Desk()
    result, _ = await played(
        lambda m: m.calls("look_up", order="1").calls("refund", order="2").cut().says("Too long."), of=desk.agent()
    )
    assert [call.is_error for call in result.calls] == [False, True]
    assert "max_tokens" in str(result.calls[1].result)
    assert (len(desk.looked_up), desk.paid, result.text) == (1, [], "Too long.")


async def test_the_output_limit_cuts_a_text() -> None:
    result, _ = await played(lambda m: m.says("It all beg").cut())
    assert (result.finish_reason, result.text) == ("max_tokens", "It all beg")


async def test_a_turn_may_be_made_of_the_request() -> None:
    def paying(request: Any, turn: Script) -> None:
        found = orjson.loads(request.messages[-1]["content"][0]["content"])
        turn.says(f"It is {found['state']}.")
        turn.calls("refund", order=found["order"])

    def write(model: Script) -> None:
        model.calls("look_up", order="7").answers(paying).says("Done.")

    result, _ = await played(write)
    assert kinds(result) == [["tool_use"], ["text", "tool_use"], ["text"]]
    assert result.calls[1].input == {"order": "7"}


# Failures ----------------------------------------------------------------------------------------------------------


async def test_a_provider_that_fails_is_asked_again_and_what_it_showed_is_withdrawn() -> None:
    result, h = await played(lambda m: m.fails(529, saying="Half an ans").fails(200).says("A whole answer."))
    assert (result.status, result.text, result.shown) == ("completed", "A whole answer.", "A whole answer.")
    assert [frame.data for frame in result.frames if frame.event == ""] == ["Half an ans", "A whole answer."]
    assert [status["status"] for status in result.events("status")] == ["running", "retrying", "retrying"]
    assert len(h.model.requests) == 3


async def test_a_failure_that_does_not_pass_leads_to_the_fallback() -> None:
    def write(model: Script) -> None:
        model.fails(400, kind="invalid_request_error", message="no such option").says("From the other one.")

    result, h = await played(write, of=Desk().agent(model="claude-sonnet-4-5", fallbacks=["claude-haiku-4-5"]))
    assert (result.status, result.model) == ("completed", "claude-haiku-4-5")
    assert [request.model for request in h.model.requests] == ["claude-sonnet-4-5", "claude-haiku-4-5"]


async def test_a_run_fails_with_its_provider() -> None:
    result, _ = await played(lambda m: m.fails(times=4))
    assert result.error is not None
    assert (result.status, result.error["code"], result.error["retryable"]) == ("failed", "PROVIDER_ERROR", True)
    result, _ = await played(lambda m: m.fails(401))
    assert result.error is not None
    assert "refused the key" in result.error["message"]


# Where script and run differ ---------------------------------------------------------------------------------------


async def failing(write: Write) -> ScriptError:
    with pytest.raises(ScriptError) as caught:
        await played(write)
    return caught.value


async def test_a_script_that_is_too_short() -> None:
    error = await failing(lambda m: m.calls("look_up", order="1"))
    assert re.search(r"asked once more, and its script has 1 turn: the last message is the user's .*packed", str(error))
    assert "calls look_up" in error.__notes__[0]


async def test_no_script() -> None:
    assert "its script has 0 turns: the last message is the user's 'go'" in str(await failing(lambda m: None))


async def test_a_script_that_is_too_long() -> None:
    error = await failing(lambda m: m.says("a").says("b").calls("refund", order="1").fails(429))
    assert str(error) == (
        "1 of 3 turns of the script were asked for; left: "
        "says('b').calls('refund', {'order': '1'}), then fails(status=429)"
    )


async def test_an_assertion_in_the_script_is_what_the_test_fails_with() -> None:
    def check(request: Any, turn: Script) -> None:
        assert request.messages == [], "no message was expected"

    async def failing_test() -> None:
        await played(lambda m: m.answers(check))

    with pytest.raises(AssertionError, match="no message was expected"):
        await failing_test()


async def test_two_turns_where_one_is_expected() -> None:
    def two(request: Any, turn: Script) -> None:
        turn.calls("look_up", order="1").says("Found.")

    assert "answers(two) is one turn, and it made 2" in str(await failing(lambda m: m.answers(two)))


async def test_a_test_that_has_failed_is_not_told_of_its_script() -> None:
    async def failing_test() -> None:
        async with harness(Desk().agent()) as h:
            h.model.says("never asked for")
            h.before(step=1).crash()
            raise ValueError("the test's own")

    with pytest.raises(ValueError, match="the test's own"):
        await failing_test()


async def test_a_script_that_is_too_short_ends_a_run_that_is_watched() -> None:
    async def failing_test() -> None:
        async with harness(Desk().agent()) as h:
            h.model.calls("look_up", order="1")
            run = await h.start("go")
            with pytest.raises(ScriptError, match="asked once more"):
                await run.until("result")
            with pytest.raises(ScriptError, match="asked once more"):
                await h.run("again")

    with pytest.raises(ScriptError, match="asked once more"):
        await failing_test()  # the end of the block says so, too


@pytest.mark.parametrize(
    ("write", "words"),
    [
        (lambda m: m.cut(), "stands behind"),
        (lambda m: m.says("a", stop_reason="tool_use"), "stop_reason must be one of end_turn"),
        (lambda m: m.says(["a", "b"]), r"each an argument of its own: not \['a', 'b'\]"),
        (lambda m: m.thinks(None), "texts, each an argument of its own: not None"),
        (lambda m: m.fails(saying=3), "not 3"),
        (lambda m: m.calls("refund", "A-1"), r"calls\('refund'\): arguments are given by name .*, not as 'A-1'"),
    ],
)
async def test_what_a_script_cannot_say(write: Write, words: str) -> None:
    async with harness(Desk().agent()) as h:
        with pytest.raises((ValueError, TypeError), match=words):
            write(h.model)


async def test_arguments_that_have_no_json_form() -> None:
    async with harness(Desk().agent()) as h:
        with pytest.raises(TypeError):
            h.model.calls("refund", order=object())
