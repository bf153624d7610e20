"""`ctx.rooms` and the grants of rooms: what is refused is refused where the author sees it."""

import pytest
from tests.fakes.contexts import RecordingSink

from runyard.authoring.agents import agent
from runyard.authoring.errors import AuthoringError
from runyard.authoring.rooms import Rooms
from runyard.rooms import DATA_MAX_BYTES, covers


@pytest.mark.anyio
async def test_a_broadcast_reaches_the_sink_awaited_or_not():
    sink = RecordingSink()
    rooms = Rooms(sink)
    rooms.broadcast("floor:1", "said", {"n": (1, 2)})
    await rooms.broadcast("floor:1", "left")
    assert sink.frames == [("floor:1 said", {"n": [1, 2]}), ("floor:1 left", None)]


@pytest.mark.parametrize(
    ("room", "event", "data"),
    [
        *((room, "said", None) for room in ("", "a b", "a/b", "ä", "x" * 201, None, 1)),
        *(("lobby", event, None) for event in ("", "a b", "a:b", "error", "result", "missed", None)),
        ("lobby", "said", "x" * DATA_MAX_BYTES),
    ],
)
def test_what_cannot_be_said_is_refused(room, event, data):
    sink = RecordingSink()
    with pytest.raises(ValueError, match=r"name|data"):
        Rooms(sink).broadcast(room, event, data)
    assert sink.frames == []


@pytest.mark.parametrize("rooms", ["lobby", None, ["a b"], [1], ["a/b"]])
def test_an_agent_opens_rooms_by_their_names(rooms):
    with pytest.raises(AuthoringError, match="room"):
        agent(rooms=rooms)


@pytest.mark.parametrize(
    ("grants", "room", "granted"),
    [
        (["lobby"], "lobby", True),
        (["lobby"], "lobby2", False),
        (["floor:*"], "floor:7", True),
        (["floor:*"], "floor:", True),
        (["floor:*"], "floor", False),
        (["a", "*"], "anything", True),
        ([], "lobby", False),
    ],
)
def test_a_grant_names_a_room_or_how_it_begins(grants, room, granted):
    assert covers(grants, room) is granted
