import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runyard.frames import (
    FRAME_OVERHEAD_BYTES,
    RESERVED_EVENTS,
    ROW_ANNOUNCED,
    TERMINAL_EVENTS,
    Frame,
    FrameEvent,
    answer_text,
    cost_bytes,
    event_payload,
    text_payload,
    thinking_payload,
)

clean = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), min_size=1)


@given(clean | clean.map(lambda text: ROW_ANNOUNCED + text))
def test_answer_text_comes_back_to_the_byte(text: str) -> None:
    payload = text_payload(text)
    assert answer_text(*payload) == text
    assert b"\r" not in payload.data, "SSE would end the line there"
    assert payload.event or not payload.data.startswith(b'{"seq":'), "an EventSource would take it for a row"


@pytest.mark.parametrize("text", ["a\r", "\r\n", "a\rb\nc\r\n", '{"seq":', '{"seq":1,"role":"user"}'])
def test_text_that_would_be_taken_for_something_else_goes_as_json(text: str) -> None:
    payload = text_payload(text)
    assert (payload.event, orjson.loads(payload.data)) == ("text", text)


@pytest.mark.parametrize(
    "text",
    [
        "\n",
        "a\n\nb",
        "x\u2028y",
        "z\u0085",
        "\x0b",
        " a",
        "event: result",
        "data:",
        "{",
        '{"seq',
        ' {"seq":1}',
        '{"a":1}',
    ],
)
def test_other_text_goes_as_it_is(text: str) -> None:
    assert text_payload(text) == (None, text.encode())


@given(clean)
def test_thinking_has_no_carriage_return(text: str) -> None:
    payload = thinking_payload(text)
    assert payload.event == "thinking"
    assert payload.data.decode().split("\n") == text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    assert answer_text(*payload) is None


def test_an_event_carries_json_on_one_line() -> None:
    payload = event_payload("progress", {"query": "swifts\r\n", "n": 1})
    assert payload == ("progress", b'{"query":"swifts\\r\\n","n":1}')
    assert answer_text(*payload) is None


def test_an_announced_row_is_known_by_its_beginning() -> None:
    assert event_payload("message", {"seq": 1, "role": "user"}).data.startswith(ROW_ANNOUNCED.encode())


def test_only_results_and_errors_end_a_stream() -> None:
    ends = {event for event in FrameEvent if Frame(1, event, b"{}").is_terminal}
    assert ends == {"result", "error"} == TERMINAL_EVENTS
    assert not Frame(1, None, b"result").is_terminal


def test_an_author_may_use_no_name_of_ours() -> None:
    assert "tool" in RESERVED_EVENTS
    assert "progress" not in RESERVED_EVENTS
    assert set(FrameEvent) == RESERVED_EVENTS


def test_a_frame_counts_more_than_its_bytes() -> None:
    assert cost_bytes(None, b"") == FRAME_OVERHEAD_BYTES
    assert cost_bytes("tool", "é".encode()) == FRAME_OVERHEAD_BYTES + 4 + 2
