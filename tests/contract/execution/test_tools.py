"""Tools through the loop and the ledger."""

import asyncio
import contextlib
import json
import math
import threading
from datetime import date
from decimal import Decimal
from typing import Any

import pytest
from tests.contract.execution.worker import GUARD_S, Settled, Worker
from tests.fakes.provider import asks, says
from tests.fakes.rows import text, tool_use

from runyard import Content, RunContext, tool
from runyard.authoring.tools import Tool
from runyard.db.turns import finish_call
from runyard.runs import CallState, RunStatus
from runyard_workers.results import RESULT_LIMIT_BYTES

pytestmark = pytest.mark.anyio

RECOVERED = says("Recovered.")
NUL = "\x00"
MARK = "\N{REPLACEMENT CHARACTER}"


@tool
async def lookup(q: str) -> str:
    return f"about {q}"


def returning(value: Any) -> Tool[..., Any]:
    return tool(name="odd")(lambda: value)


async def call(worker: Worker, *tools: Tool[..., Any], **arguments: Any) -> Settled:
    """One turn that calls each of these tools once, and an answer."""
    calls = [tool_use(f"toolu_{number}", item.name, **arguments) for number, item in enumerate(tools)]
    worker.script(asks(*calls), RECOVERED, tools=list({item.name: item for item in tools}.values()))
    settled = (await worker.run()).check()
    assert settled.run.status is RunStatus.COMPLETED
    return settled


async def test_a_bad_argument_and_an_unknown_tool_are_results_and_the_loop_goes_on(worker: Worker) -> None:
    ran = []

    @tool
    async def count(limit: int) -> None:
        ran.append(limit)

    worker.script(
        asks(tool_use("toolu_1", "count", limit="many"), tool_use("toolu_2", "ghost")), RECOVERED, tools=[count]
    )
    settled = (await worker.run()).check()
    bad, unknown = settled.results
    assert bad["is_error"]
    assert "limit" in bad["content"]
    assert unknown == {
        "type": "tool_result",
        "tool_use_id": "toolu_2",
        "content": 'Unknown tool "ghost"',
        "is_error": True,
    }
    assert (ran, settled.result["text"]) == ([], "Recovered.")
    assert [event["isError"] for event in settled.events("tool")] == [True, True]
    assert [call.state for call in settled.calls] == [CallState.FINISHED] * 2
    assert worker.database.written[:3] == ["append_turn", "append_results", "end_turn"]


async def test_a_call_with_broken_input_never_runs_and_its_sibling_does(worker: Worker) -> None:
    worker.script(
        asks(
            tool_use("toolu_1", "lookup"),
            tool_use("toolu_2", "lookup", q="pylon"),
            broken_inputs={"toolu_1": "The tool was not called: its input is not valid JSON."},
        ),
        RECOVERED,
        tools=[lookup],
    )
    settled = (await worker.run()).check()
    assert [result["content"] for result in settled.results] == [
        "The tool was not called: its input is not valid JSON.",
        "about pylon",
    ]
    assert [(event["id"], event["isError"]) for event in settled.events("tool")] == [
        ("toolu_1", True),
        ("toolu_2", False),
    ]
    assert [event["id"] for event in settled.events("tool_start")] == ["toolu_2"]


async def test_results_go_back_in_the_order_of_the_calls_whatever_ends_first(worker: Worker) -> None:
    ended = [asyncio.Event() for _ in range(4)]
    ended[3].set()

    @tool
    async def nth(number: int) -> int:
        await ended[number + 1].wait()
        ended[number].set()
        return number

    calls = [tool_use(f"toolu_{number}", "nth", number=number) for number in range(3)]
    worker.script(asks(*calls), RECOVERED, tools=[nth])
    settled = (await worker.run()).check()
    assert settled.contents[2] == [
        {"type": "tool_result", "tool_use_id": f"toolu_{number}", "content": str(number)} for number in range(3)
    ]


async def test_a_result_is_stored_while_its_siblings_still_run(worker: Worker) -> None:
    let_go = asyncio.Event()

    @tool
    async def slow() -> str:
        await let_go.wait()
        return "slow"

    worker.script(
        asks(tool_use("toolu_1", "slow"), tool_use("toolu_2", "lookup", q="x")), RECOVERED, tools=[slow, lookup]
    )
    claim = await worker.claim()
    running = asyncio.create_task(worker.execute(claim))
    await worker.database.wrote(finish_call)
    let_go.set()
    settled = (await running).check()
    assert worker.database.written[:4] == ["append_turn", "start_calls", "finish_call", "append_results"]
    assert [call.content for call in settled.calls] == ["slow", "about x"]


async def test_an_exclusive_tool_runs_alone(worker: Worker) -> None:
    running: list[str] = []

    def exclusively() -> str:
        running.append("alone")
        assert running == ["alone"]
        running.remove("alone")
        return "alone"

    async def together(wait: int) -> str:
        running.append("together")
        for _ in range(wait):
            await asyncio.sleep(0)
        running.remove("together")
        return "together"

    tools = [tool(name="exclusively", exclusive=True)(exclusively), tool(together)]
    calls = [
        tool_use("toolu_1", "exclusively"),
        tool_use("toolu_2", "together", wait=50),
        tool_use("toolu_3", "exclusively"),
        tool_use("toolu_4", "together", wait=1),
    ]
    worker.script(asks(*calls), RECOVERED, tools=tools)
    settled = (await worker.run()).check()
    assert [result["content"] for result in settled.results] == ["alone", "together", "alone", "together"]


async def test_three_tools_of_which_two_fail_in_the_worst_ways(worker: Worker) -> None:
    @tool
    async def gives_up() -> None:
        raise asyncio.CancelledError

    @tool
    def leaves() -> None:
        raise SystemExit(1)

    settled = await call(worker, returning("good work"), gives_up, leaves)
    assert [result.get("is_error", False) for result in settled.results] == [False, True, True]
    assert settled.results[0]["content"] == "good work"


@pytest.mark.parametrize(
    ("value", "content"),
    [
        (None, "null"),
        ("", None),
        ("5", "5"),
        ({"a": math.nan, "b": [math.inf]}, '{"a":null,"b":[null]}'),
        ({1: Decimal("1.50"), "at": date(2026, 1, 2)}, '{"1":"1.50","at":"2026-01-02"}'),
        (Content([text("a"), text(" ")]), [text("a")]),
        (Content([text("")]), None),
        (2**70, '"1180591620717411303424"'),
    ],
    ids=["none", "empty", "string", "nan", "known types", "blocks", "empty blocks", "long integer"],
)
async def test_what_a_tool_returns_reaches_ledger_and_model_alike(worker: Worker, value: Any, content: Any) -> None:
    settled = await call(worker, returning(value))
    (result,) = settled.results
    assert result.get("content") == content
    assert "is_error" not in result
    assert settled.calls[0].content == (content or "")
    assert worker.provider.requests[1].messages[-1]["content"] == [result]


@pytest.mark.parametrize("value", [object, {1, object()}, (number for number in range(3))], ids=["class", "set", "gen"])
async def test_what_has_no_json_form_is_an_error_of_the_tool_that_is_named(worker: Worker, value: Any) -> None:
    (result,) = (await call(worker, returning(value))).results
    assert result["is_error"]
    assert "'odd'" in result["content"]


@pytest.mark.parametrize("character", ["x", "\u00e9", "\u20ac", "\U0001f1e9\U0001f1ea"])
async def test_a_long_result_is_cut_between_characters(worker: Worker, character: str) -> None:
    (result,) = (await call(worker, returning(character * 80_000))).results
    assert len(result["content"].encode()) <= RESULT_LIMIT_BYTES
    assert result["content"].endswith(character + "[truncated]") or character == "\U0001f1e9\U0001f1ea"
    assert result["content"].endswith("[truncated]")


async def test_a_long_error_is_cut_too(worker: Worker) -> None:
    @tool
    def fails() -> None:
        raise ValueError("\u20ac" * 80_000)

    (result,) = (await call(worker, fails)).results
    assert len(result["content"].encode()) <= RESULT_LIMIT_BYTES
    assert result["content"].endswith("\u20ac[truncated]")


async def test_nul_goes_nowhere_and_words_that_look_like_it_stay(worker: Worker) -> None:
    literal = "\\u0000"

    @tool
    async def echo(ctx: RunContext, q: str) -> dict[str, Any]:
        ctx.stream.write(f"w{NUL}")
        ctx.stream.event("progress", {f"k{NUL}": [f"v{NUL}", math.nan]})
        return {"deep": [{f"k{NUL}": f"a{NUL}b\ud800{literal}"}]}

    @tool
    async def fails(q: str) -> None:
        raise ValueError(f"a{NUL}b")

    settled = await call(worker, echo, fails, q=literal)
    echoed, failed = settled.results
    assert json.loads(echoed["content"]) == {"deep": [{f"k{MARK}": f"a{MARK}b{MARK}{literal}"}]}
    assert failed["content"] == f"ValueError: a{MARK}b"
    assert settled.events("output") == [{"id": "toolu_0", "text": f"w{MARK}"}]
    assert settled.events("progress") == [{f"k{MARK}": [f"v{MARK}", None]}]
    assert settled.events("tool_start")[0]["input"] == {"q": literal}
    assert NUL.encode() not in b"".join(frame.data for frame in settled.frames)


async def test_an_argument_that_looks_like_json_stays_a_string(worker: Worker) -> None:
    settled = await call(worker, lookup, q='{"a":1}')
    assert settled.results[0]["content"] == 'about {"a":1}'


async def test_a_tool_knows_its_run(worker: Worker) -> None:
    seen: list[RunContext] = []

    @tool
    def look(ctx: RunContext) -> None:
        seen.append(ctx)

    worker.script(asks(tool_use("toolu_1", "look"), tool_use("toolu_2", "look")), RECOVERED, tools=[look])
    settled = await worker.run(session_id="s-1", metadata={"page": 7}, roles=("admin",))
    one, two = sorted(seen, key=lambda ctx: ctx.call_id or "")
    assert (one.run_id, one.invocation_id, one.agent) == (settled.run.id, settled.invocation.id, "researcher")
    assert (one.tenant_id, one.user_id, one.session_id, one.roles) == ("acme", "ada", "s-1", frozenset({"admin"}))
    assert (one.metadata, one.resources) == ({"page": 7}, {"library": "books"})
    assert (one.call_id, two.call_id) == ("toolu_1", "toolu_2")
    assert one.idempotency_key != two.idempotency_key
    assert not one.cancelled.is_set()


@pytest.mark.parametrize("is_async", [True, False])
async def test_what_a_tool_writes_is_between_its_start_and_its_end(worker: Worker, is_async: bool) -> None:
    def write(ctx: RunContext) -> str:
        for number in range(20):
            ctx.stream.write(f"{number} ")
        ctx.stream.event("progress", {"done": True})
        return "written"

    async def write_async(ctx: RunContext) -> str:
        await ctx.stream.write("from the loop ")
        return write(ctx)

    settled = await call(worker, tool(name="write")(write_async if is_async else write))
    shown = settled.order[settled.order.index("tool_start") : settled.order.index("tool") + 1]
    assert shown == ["tool_start", *["output"] * (20 + is_async), "progress", "tool"]
    texts = [event["text"] for event in settled.events("output")]
    assert "".join(texts).endswith("17 18 19 ")
    assert {event["id"] for event in settled.events("output")} == {"toolu_0"}


async def test_what_an_abandoned_tool_still_writes_is_dropped(worker: Worker, block: threading.Event) -> None:
    wrote = threading.Event()

    @tool(timeout_s=0.02)
    def stuck(ctx: RunContext) -> None:
        block.wait(GUARD_S)
        ctx.stream.write("too late")
        wrote.set()

    @tool
    async def outlives() -> None:
        block.set()
        await asyncio.to_thread(wrote.wait, GUARD_S)

    worker.script(
        asks(tool_use("toolu_1", "stuck")), asks(tool_use("toolu_2", "outlives")), RECOVERED, tools=[stuck, outlives]
    )
    settled = (await worker.run()).check()
    assert settled.events("output") == []
    assert settled.results[0]["content"] == 'Tool "stuck" timed out after 0.02 s'


async def test_a_tool_that_swallows_its_cancellation_holds_up_nothing(worker: Worker) -> None:
    let_go = asyncio.Event()

    @tool(timeout_s=0.02)
    async def stubborn(ctx: RunContext) -> None:
        while not let_go.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await let_go.wait()
        ctx.stream.write("too late")

    settled = await call(worker, stubborn)
    let_go.set()
    assert settled.results[0]["is_error"]
    assert settled.events("output") == []
