"""Scripts: the events they become, acts at their places, their JSON form, how plans choose them."""

import itertools
import json
from typing import Any

import pytest
from tests.standin import (
    Answer,
    By,
    Match,
    Plan,
    Request,
    Script,
    calls,
    cut,
    event,
    fail,
    hold,
    pause,
    ping,
    ping_until,
    raw,
    refuses,
    says,
    searches,
    silent,
    thinks,
    workload,
)
from tests.standin.events import Emit, Envelope, Item, message_body
from tests.standin.placement import render
from tests.standin.script import Pause

ENVELOPE = Envelope(message_id="msg_1", model="claude-sonnet-5-5")


def items(script: Script) -> list[Item]:
    return render(script, ENVELOPE)


def body(script: Script) -> bytes:
    return b"".join(item.data for item in items(script) if isinstance(item, Emit))


def events(script: Script) -> list[dict[str, Any]]:
    """The data of each event, after a check that its name is its type."""
    found = []
    for lines in body(script).decode().removesuffix("\n\n").split("\n\n"):
        name, data = lines.split("\n")
        found.append(json.loads(data.removeprefix("data: ")))
        assert name == f"event: {found[-1]['type']}"
    return found


def deltas(script: Script) -> list[dict[str, Any]]:
    return [data["delta"] for data in events(script) if data["type"] == "content_block_delta"]


def block(script: Script) -> dict[str, Any]:
    whole: dict[str, Any] = message_body(script, ENVELOPE, items(script))["content"][0]
    return whole


def test_an_answer_is_the_apis_events_in_its_order() -> None:
    script = says("Let me ", "check.").calls("lookup", {"q": "pylon"}, call_id="toolu_1").costs(20, 8)
    start, *blocks, delta, stop = events(script)
    assert start["message"] == {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-sonnet-5-5",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "stop_details": None,
        "usage": {
            "input_tokens": 20,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 0,
            "output_tokens": 1,
        },
    }
    assert [(data["type"], data["index"]) for data in blocks] == [
        ("content_block_start", 0),
        ("content_block_delta", 0),
        ("content_block_delta", 0),
        ("content_block_stop", 0),
        ("content_block_start", 1),
        *[("content_block_delta", 1)] * 4,
        ("content_block_stop", 1),
    ]
    assert blocks[0]["content_block"] == {"type": "text", "text": ""}
    assert blocks[1]["delta"] == {"type": "text_delta", "text": "Let me "}
    assert blocks[4]["content_block"] == {"type": "tool_use", "id": "toolu_1", "name": "lookup", "input": {}}
    pieces = [data["delta"]["partial_json"] for data in blocks[5:9]]
    assert pieces[0] == ""
    assert json.loads("".join(pieces)) == {"q": "pylon"}
    assert delta == {
        "type": "message_delta",
        "delta": {"stop_reason": "tool_use", "stop_sequence": None, "stop_details": None},
        "usage": {"output_tokens": 8},
    }
    assert stop == {"type": "message_stop"}


def test_thinking_has_its_signature_in_pieces() -> None:
    script = thinks("First", " I look.", signature=("si", "gn"))
    assert [tuple(delta.values()) for delta in deltas(script)] == [
        ("thinking_delta", "First"),
        ("thinking_delta", " I look."),
        ("signature_delta", "si"),
        ("signature_delta", "gn"),
    ]
    assert block(script) == {"type": "thinking", "thinking": "First I look.", "signature": "sign"}


def test_a_signature_of_our_own_is_unique_and_repeatable() -> None:
    def signature(message_id: str) -> str:
        rendered = render(thinks(), Envelope(message_id=message_id, model="m"))
        return next(item.block["signature"] for item in rendered if isinstance(item, Emit) and item.block)

    assert signature("msg_1") == signature("msg_1") != signature("msg_2")


def test_redacted_thinking_stands_in_its_start() -> None:
    script = silent.redacts("abc")
    assert events(script)[1]["content_block"] == {"type": "redacted_thinking", "data": "abc"}
    assert deltas(script) == []


@pytest.mark.parametrize(
    ("script", "pieces", "arguments"),
    [
        (calls("now", deltas=("",)), [""], {}),
        (calls("now", deltas=()), [], {}),
        (calls("find", deltas=('{"q"', ': "a"}')), ['{"q"', ': "a"}'], {"q": "a"}),
        (calls("find", deltas=('{"path": "a.t',)), ['{"path": "a.t'], {}),
    ],
)
def test_a_calls_json_may_come_in_any_pieces(script: Answer, pieces: list[str], arguments: dict[str, Any]) -> None:
    assert [delta["partial_json"] for delta in deltas(script)] == pieces
    assert events(script)[1]["content_block"]["input"] == {}
    assert block(script)["input"] == arguments


def test_a_calls_input_may_stand_whole_in_its_start() -> None:
    script = calls("find", {"q": "a"}, at_start=True)
    assert events(script)[1]["content_block"]["input"] == {"q": "a"}
    assert deltas(script) == []


def test_a_server_tools_result_names_its_call() -> None:
    script = searches("pylon", call_id="srvtoolu_1").finds({"type": "web_search_result", "url": "u"})
    content = message_body(script, ENVELOPE, items(script))["content"]
    assert content[0] == {
        "type": "server_tool_use",
        "id": "srvtoolu_1",
        "name": "web_search",
        "input": {"query": "pylon"},
    }
    assert content[1]["tool_use_id"] == "srvtoolu_1"
    assert content[1]["type"] == "web_search_tool_result"
    assert script.stops_with == "end_turn"


def test_citations_follow_the_text_they_belong_to() -> None:
    script = says("Found.").cites({"type": "char_location", "cited_text": "F"})
    assert deltas(script)[1] == {
        "type": "citations_delta",
        "citation": {"type": "char_location", "cited_text": "F"},
    }
    assert block(script)["citations"] == [{"type": "char_location", "cited_text": "F"}]


def test_citations_need_a_text() -> None:
    with pytest.raises(TypeError, match="follows says"):
        calls("now").cites({})


@pytest.mark.parametrize(
    ("script", "stop"),
    [
        (says("a"), ("end_turn", None, None)),
        (silent, ("end_turn", None, None)),
        (says("a").stops("stop_sequence", sequence="END"), ("stop_sequence", "END", None)),
        (says("a").calls("now").stops("max_tokens"), ("max_tokens", None, None)),
        (
            silent.stops("refusal", details={"type": "refusal", "category": "bio"}),
            ("refusal", None, {"type": "refusal", "category": "bio"}),
        ),
        (says("a").searches().stops("pause_turn"), ("pause_turn", None, None)),
        (says("a").stops("model_context_window_exceeded"), ("model_context_window_exceeded", None, None)),
    ],
)
def test_every_stop_reason(script: Answer, stop: tuple[Any, ...]) -> None:
    assert tuple(events(script)[-2]["delta"].values()) == stop


def test_usage_goes_out_as_given() -> None:
    script = says("a").uses(
        {"input_tokens": None, "output_tokens": 20}, {"output_tokens": 47}, start={"input_tokens": 27}
    )
    *_, first, last, _ = events(script)
    assert first == {
        "type": "message_delta",
        "delta": {},
        "usage": {"input_tokens": None, "output_tokens": 20},
    }
    assert (last["usage"], last["delta"]["stop_reason"]) == ({"output_tokens": 47}, "end_turn")
    assert message_body(script, ENVELOPE, items(script))["usage"] == {"input_tokens": 27, "output_tokens": 47}


def test_usage_may_be_left_out() -> None:
    assert "usage" not in events(says("a").uses(start={"input_tokens": 1}))[-2]


# Acts at their places ----------------------------------------------------------------------------------------------


def names(script: Script) -> list[str]:
    return [item.name if isinstance(item, Emit) else item.kind for item in items(script)]


@pytest.mark.parametrize(
    ("script", "where"),
    [
        (silent.before("message_start", hold("g")), 0),
        (silent.before(0, hold("g")), 0),
        (silent.before(1, hold("g")), 1),
        (silent.before("message_delta", hold("g")), 1),
        (silent.before(-1, hold("g")), 2),
        (silent.before("message_stop", hold("g")), 2),
        (silent.before("end", hold("g")), 3),
        (silent.then(hold("g")), 1),
    ],
)
def test_an_act_stands_before_the_event_it_names(script: Answer, where: int) -> None:
    plain = names(silent)
    assert names(script) == [*plain[:where], "hold", *plain[where:]]


def test_acts_stand_between_the_pieces_of_a_block() -> None:
    script = says("a", ping(), hold("g"), "b", fail())
    assert names(script)[1:-2] == [
        "content_block_start",
        "content_block_delta",
        "event",
        "hold",
        "content_block_delta",
        "fail",
        "content_block_stop",
    ]
    assert block(script) == {"type": "text", "text": "ab"}


def test_acts_of_the_head_are_not_in_the_body() -> None:
    assert names(silent.before("head", hold("g"))) == names(silent)


def test_each_delta_has_its_gate() -> None:
    found = names(says("a", "b").each_delta("g"))
    assert [pair for pair in itertools.pairwise(found) if pair[0] == "hold"] == [("hold", "content_block_delta")] * 2


@pytest.mark.parametrize("byte", [0, 1, 100, 457])
def test_an_act_stands_before_any_byte(byte: int) -> None:
    plain = body(says("\N{FAMILY}" * 3))
    script = says("\N{FAMILY}" * 3).at_byte(byte, cut())
    rendered = items(script)
    position = next(index for index, item in enumerate(rendered) if not isinstance(item, Emit))
    before = b"".join(item.data for item in rendered[:position] if isinstance(item, Emit))
    assert before == plain[:byte]
    assert body(script) == plain


def test_a_byte_must_be_there() -> None:
    with pytest.raises(ValueError, match="there is no byte 100000"):
        items(says("a").at_byte(100_000, cut()))


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
def test_pieces_have_their_size_and_lose_nothing(size: int) -> None:
    script = says("\u00e4\u20ac\U0001f468\u200d\U0001f469").calls("now")
    emits = [item for item in items(script.in_pieces(size)) if isinstance(item, Emit)]
    assert max(len(emit.data) for emit in emits) <= size
    assert sum(emit.complete for emit in emits) == len(names(script))
    assert len([emit for emit in emits if emit.block is not None]) == 2


# One representation -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "script",
    [
        says("a", hold("g"), "b").cites({"type": "x"}).calls("f", {"q": [1, None]}, call_id="t"),
        thinks("a", signature="s").redacts().searches().finds().stops("pause_turn"),
        says(pause(5), "a", ping_until("g", every_ms=2)).then(event("new", {"a": 1}), raw(b"\xff\x00")),
        calls("f", deltas=("{", fail("api_error", "m"))).each_delta("g").in_pieces(3),
        says("a").before("message_stop", cut("reset")).at_byte(7, cut("end")).uses({}, start={"input_tokens": None}),
        refuses(429, headers={"retry-after": "1"}),
    ],
)
def test_a_script_survives_json(script: Answer) -> None:
    again = Script.model_validate_json(script.model_dump_json())
    assert again.model_dump() == script.model_dump()
    assert Script.model_validate(script.model_dump(mode="json")).model_dump() == script.model_dump()


def test_json_may_leave_out_what_has_a_default() -> None:
    assert Script.model_validate_json('{"steps": [{"kind": "text", "deltas": ["a"]}]}') == Script(steps=says("a").steps)


def asked(text: str = "hello", *, turns: int = 0, model: str = "m", system: str = "", **more: Any) -> Request:
    messages: list[dict[str, Any]] = [{"role": "user", "content": [{"type": "text", "text": text}]}]
    for _ in range(turns):
        messages.append({"role": "assistant", "content": "a"})
        messages.append({"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": text}]})
    body = {"model": model, "system": system, "messages": messages, **more}
    return Request(path="", headers={}, key_digest=None, request_id="", received_at=0, body=body)


ONE, TWO = says("1"), says("2")


def test_a_queue_gives_each_script_once() -> None:
    choose = Plan(scripts=(ONE, TWO)).choice()
    assert [choose(asked()), choose(asked()), choose(asked())] == [ONE, TWO, None]


def test_turns_serve_any_number_of_conversations() -> None:
    choose = Plan(scripts=(ONE, TWO), by=By.TURN).choice()
    assert [choose(asked(turns=turns)) for turns in (0, 0, 1, 0, 1, 2)] == [ONE, ONE, TWO, ONE, TWO, None]


@pytest.mark.parametrize(
    ("match", "holds"),
    [
        (Match(), True),
        (Match(contains="ell"), True),
        (Match(contains="other"), False),
        (Match(system="help"), True),
        (Match(system="other"), False),
        (Match(model="m"), True),
        (Match(model="n"), False),
        (Match(contains="ell", model="n"), False),
    ],
)
def test_a_plan_is_for_the_requests_it_matches(match: Match, *, holds: bool) -> None:
    choose = Plan(scripts=(ONE,), match=match).choice()
    assert (choose(asked(system="You help.")) is ONE) == holds


def test_what_a_tool_answered_is_not_what_the_user_said() -> None:
    assert Match(contains="hello")(asked("hello", turns=1))
    assert asked("hello", turns=1).user_text == "hello"


# The workload ---------------------------------------------------------------------------------------------------------

SCHEMA = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "days": {"type": "integer", "minimum": 3},
        "unit": {"enum": ["c", "f"]},
        "place": {"$ref": "#/$defs/Place"},
        "tags": {"type": "array"},
        "near": {"anyOf": [{"type": "boolean"}, {"type": "null"}]},
        "extra": {"type": "string"},
    },
    "required": ["city", "days", "unit", "place", "tags", "near"],
    "$defs": {"Place": {"type": "object", "properties": {"x": {"type": "number"}}, "required": ["x"]}},
}
TOOLS = [{"name": "weather", "input_schema": SCHEMA}, {"name": "now", "input_schema": {"type": "object"}}]


def test_a_workload_has_the_deltas_asked_for() -> None:
    pieces = deltas(workload(asked("go standin[deltas=7,chars=5]")))
    assert [len(delta["text"]) for delta in pieces] == [5] * 7


def test_a_workload_may_be_named_by_the_model() -> None:
    assert len(deltas(workload(asked(model="standin[deltas=3]")))) == 3


def test_without_a_directive_it_is_twenty_deltas() -> None:
    assert len(deltas(workload(asked()))) == 20


def test_a_workload_takes_its_time() -> None:
    acts = [
        item for item in items(workload(asked("standin[deltas=2,delay_ms=4,first_ms=9]"))) if isinstance(item, Pause)
    ]
    assert [act.ms for act in acts] == [9, 4, 4]


def test_a_workload_calls_tools_before_it_answers() -> None:
    script = "standin[steps=2,calls=3,deltas=1]"
    first, second, last = (workload(asked(script, turns=turns, tools=TOOLS)) for turns in range(3))
    assert [step.name for step in first.steps if step.kind == "tool_use"] == ["weather", "now", "weather"]
    assert (second.stops_with, last.stops_with) == ("tool_use", "end_turn")


def test_a_workloads_arguments_fit_the_schema() -> None:
    script = workload(asked("standin[steps=1,tool=weather]", tools=TOOLS))
    assert block(script)["input"] == {
        "city": "pylon",
        "days": 3,
        "unit": "c",
        "place": {"x": 1},
        "tags": [],
        "near": True,
    }


def test_a_workload_knows_its_parameters() -> None:
    with pytest.raises(ValueError, match="speed"):
        workload(asked("standin[speed=3]"))
