"""Cursors of lists: where the next page begins, with a tie-break, sealed to their list so that a broken one is told.

A cursor is no secret and grants nothing: whose rows are listed is part of the query.
"""

import base64
import zlib
from collections.abc import Sequence

import orjson

from runyard.errors import InvalidArgs

Listing = Sequence[str | None]
"""What a list is known by: its name, whose it is, its filters, its order. A cursor fits no other list."""


def seal(listing: Listing, *position: int | str) -> str:
    body = orjson.dumps(position)
    return base64.urlsafe_b64encode(_checksum(listing, body) + body).decode().rstrip("=")


def unseal(listing: Listing, cursor: str) -> list[int | str]:
    """The position in a cursor of this list.

    Raises:
        InvalidArgs: it was changed, or is another list's.
    """
    try:
        raw = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
    except ValueError:
        raw = b""
    checksum, body = raw[:4], raw[4:]
    if checksum != _checksum(listing, body):
        raise InvalidArgs("cursor is not one that this list gave", fields=["cursor"])
    position: list[int | str] = orjson.loads(body)
    return position


def _checksum(listing: Listing, body: bytes) -> bytes:
    return zlib.crc32(orjson.dumps(listing) + body).to_bytes(4, "big")
