"""Rooms: a message reaches everybody who is in the room now. It is not stored for those who come later."""

import re
from collections.abc import Iterable

ROOM = re.compile(r"[!-.0-~]{1,200}")
ROOM_RULE = "1 to 200 printable ASCII characters without spaces and slashes"
ANY = "*"
DATA_MAX_BYTES = 65_536
MISSED = "missed"
"""The event with which a gateway tells a reader how many messages it was too slow for."""


def covers(grants: Iterable[str], room: str) -> bool:
    """Whether one of the grants names the room, or how its name begins: `project:*`."""
    return any(room.startswith(grant[:-1]) if grant.endswith(ANY) else room == grant for grant in grants)


def room_channel(prefix: str, tenant_id: str, room: str) -> str:
    """The channel on which each message is published, as JSON: `[event, data]`. Neither name can contain a NUL, so no
    two pairs share a channel.
    """
    return f"{prefix}:room:{tenant_id}\0{room}"


def members_key(prefix: str, tenant_id: str, room: str) -> str:
    """A sorted set: `<user> NUL <gateway>` by the time until which they count, in Redis' milliseconds. It has a TTL."""
    return f"{prefix}:members:{tenant_id}\0{room}"
