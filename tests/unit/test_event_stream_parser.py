"""The tests' own reader of server-sent events, held against the examples of the specification.

https://html.spec.whatwg.org/multipage/server-sent-events.html#event-stream-interpretation
"""

import pytest
from tests.clients.answer import AnswerText
from tests.clients.sse import Event, EventStreamParser

EXAMPLES: dict[str, tuple[bytes, list[tuple[str, str, str]]]] = {
    "lines of data are joined": (b"data: YHOO\ndata: +2\ndata: 10\n\n", [("", "YHOO\n+2\n10", "")]),
    "comments, ids, an empty id": (
        b": test stream\n\ndata: first event\nid: 1\n\ndata:second event\nid\n\ndata:  third event\n\n",
        [("", "first event", "1"), ("", "second event", ""), ("", " third event", "")],
    ),
    "empty data, and an event that never ends": (b"data\n\ndata\ndata\n\ndata:", [("", "", ""), ("", "\n", "")]),
    "one space is dropped": (b"data:test\n\ndata: test\n\n", [("", "test", ""), ("", "test", "")]),
    "types": (b"event: add\ndata: 1\n\ndata: 2\n\n", [("add", "1", ""), ("", "2", "")]),
    "without data there is no event, but its id stays": (b"event: a\nid: 7\n\ndata: x\n\n", [("", "x", "7")]),
    "CR and CRLF end lines": (b"data: a\rdata: b\r\ndata: c\n\r\n", [("", "a\nb\nc", "")]),
    "nothing else does": (
        "data: a\u2028b\u0085c\vd\fe\n\n".encode(),
        [("", "a\u2028b\u0085c\vd\fe", "")],
    ),
    "a byte order mark": (b"\xef\xbb\xbfdata: a\n\ndata: \xef\xbb\xbfb\n\n", [("", "a", ""), ("", "\ufeffb", "")]),
    "an id with NUL is ignored": (b"id: a\nid: b\0\ndata: x\n\n", [("", "x", "a")]),
    "unknown fields": (b"datum: x\ndata: y\nretry: soon\n\n", [("", "y", "")]),
}


@pytest.mark.parametrize(("stream", "expected"), EXAMPLES.values(), ids=EXAMPLES.keys())
def test_the_examples_however_they_are_cut(stream: bytes, expected: list[tuple[str, str, str]]) -> None:
    for size in range(1, len(stream) + 1):
        parser = EventStreamParser()
        events = [event for at in range(0, len(stream), size) for event in parser.feed(stream[at : at + size])]
        assert [(event.type, event.data, event.last_event_id) for event in events] == expected


def test_what_is_no_event_is_kept_aside() -> None:
    parser = EventStreamParser()
    assert parser.feed(b"retry: 1500\n\n: hb\n\nid: 5\ndata: x") == []
    assert (parser.retries_ms, parser.comments, parser.at_rest) == ([1500], [" hb"], False)
    assert parser.feed(b"\n\n") == [Event(type="", data="x", last_event_id="5", id="5")]
    assert parser.at_rest


def frame(seq: int, data: str, kind: str = "") -> Event:
    return Event(type=kind, data=data, last_event_id=str(seq), id=str(seq))


def test_a_rewind_withdraws_what_came_after_its_frame() -> None:
    answer = AnswerText()
    for event in (frame(1, "a\N{FAMILY}"), frame(2, '"b\\r"', "text"), frame(3, "c"), frame(4, "{}", "status")):
        answer.feed(event)
    assert answer.text == "a\N{FAMILY}b\rc"
    answer.feed(frame(5, '{"toSeq": 2, "length": 4}', "rewind"))
    assert answer.text == "a\N{FAMILY}b\r"
    answer.feed(frame(6, '{"toSeq": 0, "length": 0}', "rewind"))
    assert answer.text == ""


def test_a_rewind_whose_halves_disagree_is_found() -> None:
    answer = AnswerText()
    answer.feed(frame(1, "abc"))
    with pytest.raises(AssertionError, match="leaves 3 characters, not 2"):
        answer.feed(frame(2, '{"toSeq": 1, "length": 2}', "rewind"))
