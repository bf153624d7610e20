"""The client's reader of server-sent events, held against the tests' own and the examples of the specification."""

import random

import pytest
from tests.clients.sse import EventStreamParser
from tests.unit.test_event_stream_parser import EXAMPLES

from runyard.client.events import EventReader


def read(stream: bytes, size: int) -> list[tuple[str | None, str | None, str]]:
    reader = EventReader()
    events = [event for at in range(0, len(stream), size) for event in reader.feed(stream[at : at + size])]
    return [(event.name, event.id, event.data) for event in events]


def read_by_another(stream: bytes) -> list[tuple[str | None, str | None, str]]:
    return [(event.type or None, event.id, event.data) for event in EventStreamParser().feed(stream)]


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_examples_however_they_are_cut(name: str) -> None:
    stream, expected = EXAMPLES[name]
    for size in range(1, len(stream) + 1):
        events = read(stream, size)
        assert [(kind or "", data) for kind, _, data in events] == [(kind, data) for kind, data, _ in expected]
        assert events == read_by_another(stream)


def test_any_bytes_are_read_as_the_specification_says() -> None:
    """Lines of every kind in any order, cut at any place."""
    chance = random.Random(20261130)
    pieces = [
        b"data: a",
        b"data",
        b"id: 7",
        b"id",
        b"event: x",
        b"event",
        b": c",
        b"retry: 5",
        b"",
        b"",
        b"\xc3\xa9",
        b"data:  b",
    ]
    for _ in range(300):
        ends = (b"\n", b"\r", b"\r\n")
        stream = b"".join(chance.choice(pieces) + chance.choice(ends) for _ in range(chance.randint(1, 30)))
        assert read(stream, chance.randint(1, 9)) == read_by_another(stream)


def test_what_it_ends_in_the_middle_of_is_no_event() -> None:
    whole = "id: 1\ndata: caf\u00e9\n\n".encode()
    for end in range(len(whole)):
        assert list(EventReader().feed(whole[:end])) == []


def test_the_wait_that_the_server_asks_for() -> None:
    reader = EventReader()
    assert reader.retry_ms is None
    assert list(reader.feed(b"retry: 1500\n\nretry: soon\n\nretry: -1\n\n")) == []
    assert reader.retry_ms == 1500
