"""`ctx.rooms`: messages to everybody who is in a room."""

from typing import Any, Protocol

import orjson

from runyard.authoring.json_values import to_json
from runyard.authoring.stream import DONE, Done, check_event_name
from runyard.rooms import DATA_MAX_BYTES, MISSED, ROOM, ROOM_RULE


class RoomSink(Protocol):
    """Where the worker takes messages. Called from any thread; returns at once; keeps the order of calls."""

    def broadcast(self, room: str, event: str, data: Any) -> None:
        """A room of the run's tenant; clean JSON values."""


class Rooms:
    """The rooms of the run's tenant. A call takes effect at once, from any thread; awaiting it is allowed but not
    needed.
    """

    def __init__(self, sink: RoomSink) -> None:
        self._sink = sink

    def broadcast(self, room: str, event: str, data: Any = None) -> Done:
        """Send a message to those who are in the room now. It is not kept: nobody hears it later, or while Redis is
        away.

        Raises:
            ValueError: the room or the event has a name that is not allowed, or the data is larger than 64 KiB as JSON.
            Unserializable: `data` has no JSON form.
        """
        if not isinstance(room, str) or ROOM.fullmatch(room) is None:
            raise ValueError(f"a room's name must be {ROOM_RULE}: not {room!r:.80}")
        check_event_name(event)
        if event == MISSED:
            raise ValueError(f"event name {event!r} is reserved: the system writes such events itself")
        value = to_json(data)
        if len(orjson.dumps(value)) > DATA_MAX_BYTES:
            raise ValueError(f"a broadcast's data must not be larger than {DATA_MAX_BYTES} bytes")
        self._sink.broadcast(room, event, value)
        return DONE
