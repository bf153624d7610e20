"""A run from claim to end: rows, frames, result, usage, steps."""

import pytest
from tests.contract.execution.worker import Worker
from tests.fakes.provider import MODEL, asks, says, turn
from tests.fakes.rows import text, thinking, tool_use

from runyard import tool
from runyard.runs import RunStatus
from runyard_workers.prices import cost
from runyard_workers.providers.model import TextDelta, ThinkingDelta, Usage

pytestmark = pytest.mark.anyio

CHECKS = asks(tool_use("toolu_1", "lookup", q="pylon"), saying="Let me check.")
FOUND = says("Found ", "3 hits.", usage=Usage(input_tokens=10, output_tokens=5))
CALL = tool_use("toolu_1", "lookup", q="pylon")
RESULT = {"type": "tool_result", "tool_use_id": "toolu_1", "content": '{"hits":3}'}


@tool
async def lookup(q: str) -> dict[str, int]:
    return {"hits": len(q) - 2}


async def test_two_steps_and_a_tool(worker: Worker) -> None:
    worker.script(CHECKS, FOUND, tools=[lookup])
    settled = (await worker.run(content="hi")).check()
    assert settled.contents == ["hi", [text("Let me check."), CALL], [RESULT], [text("Found 3 hits.")]]
    assert settled.run.status == settled.invocation.status == RunStatus.COMPLETED
    assert settled.run.worker_id is None
    assert settled.result["text"] == "Found 3 hits."
    assert settled.result["finishReason"] == "end_turn"
    assert settled.result["model"] == MODEL


async def test_each_step_is_one_transaction_and_one_for_its_tools(worker: Worker) -> None:
    worker.script(CHECKS, FOUND, tools=[lookup])
    await worker.run()
    assert worker.database.written[:4] == ["append_turn", "start_calls", "append_results", "end_turn"]


async def test_readers_see_the_run_in_the_order_in_which_it_happened(worker: Worker) -> None:
    worker.script(CHECKS, FOUND, tools=[lookup])
    settled = await worker.run()
    assert settled.order == [
        *("status", "message"),
        *("", "message", "tool_start", "tool", "message"),
        *("", "", "message", "result"),
    ]
    assert settled.events("message") == [
        {"seq": 1, "role": "user"},
        {"seq": 2, "role": "assistant"},
        {"seq": 3, "role": "user"},
        {"seq": 4, "role": "assistant"},
    ]
    (started,), (ended,) = settled.events("tool_start"), settled.events("tool")
    assert started == {"id": "toolu_1", "name": "lookup", "input": {"q": "pylon"}}
    assert ended == {**started, "isError": False, "durationMs": ended["durationMs"]}
    assert settled.events("result") == [settled.result]


async def test_usage_cost_and_steps_are_summed(worker: Worker) -> None:
    worker.script(CHECKS, FOUND, tools=[lookup])
    settled = await worker.run()
    assert settled.result["steps"] == settled.invocation.steps == settled.run.steps == 2
    total = Usage(input_tokens=30, output_tokens=13)
    assert settled.result["usage"] == settled.invocation.usage == settled.run.usage == total.to_dict()
    assert settled.result["cost"] == settled.run.cost == cost(MODEL, total).to_dict()
    assert settled.rows[1].usage == Usage(input_tokens=20, output_tokens=8).to_dict()


async def test_a_run_goes_on_with_its_history_and_its_sums(worker: Worker) -> None:
    worker.script(CHECKS, FOUND, says("You are welcome."), tools=[lookup])
    first = await worker.run(content="hi")
    second = (await worker.run(content="thanks", continues=first.run.id)).check()
    assert worker.provider.requests[-1].messages == [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": [text("Let me check."), CALL]},
        {"role": "user", "content": [RESULT]},
        {"role": "assistant", "content": [text("Found 3 hits.")]},
        {"role": "user", "content": "thanks"},
    ]
    assert (second.invocation.steps, second.run.steps) == (1, 3)
    assert second.invocation.usage == Usage(input_tokens=20, output_tokens=8).to_dict()
    assert second.run.usage == Usage(input_tokens=50, output_tokens=21).to_dict()
    assert second.result["text"] == "You are welcome."


async def test_forty_tool_turns_fit_into_the_default_budget(worker: Worker) -> None:
    steps = [asks(tool_use(f"toolu_{number}", "lookup", q="pylon")) for number in range(40)]
    worker.script(*steps, FOUND, tools=[lookup])
    settled = (await worker.run()).check()
    assert (settled.run.status, settled.run.steps) == (RunStatus.COMPLETED, 41)


@pytest.mark.parametrize(("agents", "callers"), [(1, {}), (5, {"maxSteps": 1}), (1, {"maxSteps": 5})])
async def test_the_steps_cap_ends_the_run_after_the_last_tools(worker: Worker, agents: int, callers: object) -> None:
    worker.script(CHECKS, FOUND, tools=[lookup], max_steps=agents)
    settled = (await worker.run(options=callers)).check()
    assert settled.run.status is RunStatus.FAILED
    assert settled.run.error == {
        "code": "AGENT_MAX_STEPS",
        "message": "Agent exceeded 1 tool round-trips",
        "retryable": False,
    }
    assert settled.contents[-1] == [RESULT]
    assert settled.result["finishReason"] == "max_steps"
    assert settled.result["steps"] == settled.run.steps == 1
    assert settled.order[-1] == "error"


async def test_the_cap_counts_each_invocation_anew(worker: Worker) -> None:
    worker.script(CHECKS, FOUND, tools=[lookup], max_steps=1)
    failed = await worker.run()
    settled = (await worker.run(content="again", continues=failed.run.id)).check()
    assert (settled.run.status, settled.run.error, settled.run.steps) == (RunStatus.COMPLETED, None, 2)


@pytest.mark.parametrize(
    "reason",
    [
        "end_turn",
        "stop_sequence",
        "max_tokens",
        "refusal",
        "model_context_window_exceeded",
        "one_of_next_year",
        "tool_use",
    ],
)
async def test_every_stop_reason_is_stored_and_ended_on(worker: Worker, reason: str) -> None:
    worker.script(says("So far.", stop_reason=reason))
    settled = (await worker.run()).check()
    assert settled.run.status is RunStatus.COMPLETED
    assert settled.rows[-1].stop_reason == settled.result["finishReason"] == reason
    assert settled.result["text"] == "So far."


@pytest.mark.parametrize("reason", ["refusal", "model_context_window_exceeded", "end_turn"])
async def test_calls_of_a_turn_that_asks_for_nothing_are_answered_and_never_run(worker: Worker, reason: str) -> None:
    ran = []

    @tool
    async def write_file(path: str) -> None:
        ran.append(path)

    calls = [tool_use(f"toolu_{number}", "write_file", path="a.txt") for number in range(2)]
    worker.script(asks(*calls, saying="I write.", stop_reason=reason), FOUND, tools=[write_file])
    settled = (await worker.run()).check()
    assert [(result["tool_use_id"], result["is_error"]) for result in settled.results] == [
        ("toolu_0", True),
        ("toolu_1", True),
    ]
    assert settled.result["finishReason"] == reason
    assert ran == []
    (await worker.run(content="go on", continues=settled.run.id)).check()


async def test_an_empty_turn_is_no_row(worker: Worker) -> None:
    worker.script([turn()], says("Now I do."))
    settled = (await worker.run(content="hi")).check()
    assert settled.contents == ["hi"]
    assert (settled.result["text"], settled.result["steps"]) == ("", 1)
    assert settled.run.usage == Usage(input_tokens=20, output_tokens=8).to_dict()
    worker.script(says("Now I do."))
    again = (await worker.run(content="say something", continues=settled.run.id)).check()
    assert again.result["text"] == "Now I do."


async def test_blank_text_beside_a_call_is_stored_and_not_sent(worker: Worker) -> None:
    worker.script([turn(text(""), CALL)], FOUND, tools=[lookup])
    settled = await worker.run()
    assert settled.contents[1] == [text(""), CALL]
    assert worker.provider.requests[1].messages[1]["content"] == [CALL]


async def test_thinking_and_signatures_survive_the_database(worker: Worker) -> None:
    blocks = [
        thinking("Hm.", "sig/+="),
        thinking("", "only signed"),
        {"type": "redacted_thinking", "data": "opaque=="},
        {"type": "tool_use", "id": "toolu_1", "name": "lookup", "input": {"q": "z\u00e9", "a": {"z": 1, "b": [None]}}},
    ]
    worker.script([ThinkingDelta("Hm\r."), turn(*blocks)], FOUND, tools=[lookup])
    settled = await worker.run()
    assert settled.contents[1] == blocks
    assert list(settled.contents[1][3]["input"]["a"]) == ["z", "b"]
    assert worker.provider.requests[1].messages[1]["content"] == blocks
    assert [frame.data for frame in settled.frames if frame.event == "thinking"] == [b"Hm\n."]


async def test_thinking_is_not_shown_where_the_agent_says_so(worker: Worker) -> None:
    worker.script([ThinkingDelta("Hm."), *says("Yes.")], stream_thinking=False)
    settled = (await worker.run()).check()
    assert "thinking" not in settled.order


async def test_text_that_sse_could_not_carry_is_the_same_text(worker: Worker) -> None:
    worker.script(says("a\r", "\nb", "\u2028\U0001f1e9", "\n\n"))
    settled = (await worker.run()).check()
    assert settled.events("text") == ["a\r"]
    assert settled.result["text"] == "a\r\nb\u2028\U0001f1e9\n\n"


async def test_the_model_is_told_what_the_agent_is(worker: Worker) -> None:
    worker.script(says("Hi."), tools=[lookup], system="Be brief.", max_tokens=100, provider_options={"top_k": 5})
    await worker.run(options={"maxTokens": 500, "model": "claude-haiku-4-5"})
    (request,) = worker.provider.requests
    assert (request.model, request.system, request.max_tokens) == ("claude-haiku-4-5", "Be brief.", 100)
    assert dict(request.options) == {"top_k": 5}
    assert [tool["name"] for tool in request.tools] == ["lookup"]
    assert request.tools[0]["input_schema"] == lookup.schema


async def test_a_caller_may_ask_for_less_output(worker: Worker) -> None:
    worker.script(says("Hi."), max_tokens=100)
    await worker.run(options={"maxTokens": 7})
    assert worker.provider.requests[0].max_tokens == 7


async def test_every_delta_is_a_frame_of_its_own(worker: Worker) -> None:
    deltas = [f"{number} " for number in range(500)]
    worker.script([*map(TextDelta, deltas), turn(text("".join(deltas)))])
    settled = (await worker.run()).check()
    assert [frame.data.decode() for frame in settled.frames if frame.event is None] == deltas
    assert settled.rows[1].first_frame == 3
    assert settled.rows[1].last_frame == 502
