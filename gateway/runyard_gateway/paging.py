"""Cursors of lists: the place where the next page begins, with a checksum over its list, so that a damaged cursor or
one of another list is refused.

A cursor is no secret and grants nothing: the query itself restricts whose rows are listed.
"""

import base64
import zlib
from collections.abc import Sequence

import orjson

from runyard.errors import InvalidArgs
from runyard.text import clean_text

Listing = Sequence[str | None]
"""What identifies a list: its name, whose it is, its filters, its order. A cursor fits no other list."""


def seal(listing: Listing, *position: int | str) -> str:
    body = orjson.dumps(position)
    return base64.urlsafe_b64encode(_checksum(listing, body) + body).decode().rstrip("=")


def unseal(listing: Listing, cursor: str) -> list[int | str]:
    """The position in a cursor of this list: numbers and text that a database accepts, even in an invented one.

    Raises:
        InvalidArgs: it was changed, or belongs to another list.
    """
    try:
        raw = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        checksum, body = raw[:4], raw[4:]
        position = orjson.loads(body)
    except ValueError:
        raise _not_of_this_list() from None
    if checksum != _checksum(listing, body) or not isinstance(position, list) or not all(map(_is_storable, position)):
        raise _not_of_this_list()
    return position


def time_position(listing: Listing, cursor: str | None) -> tuple[int, str] | None:
    """The place in a list ordered by time and id; None: its beginning. Raises `InvalidArgs`."""
    if cursor is None:
        return None
    match unseal(listing, cursor):
        case [int(at), str(row_id)]:
            return at, row_id
        case _:
            raise _not_of_this_list()


def seq_position(listing: Listing, cursor: str | None) -> int | None:
    """The place in a transcript; None: its beginning. Raises `InvalidArgs`."""
    if cursor is None:
        return None
    match unseal(listing, cursor):
        case [int(seq)]:
            return seq
        case _:
            raise _not_of_this_list()


def _is_storable(part: object) -> bool:
    if isinstance(part, str):
        return part == clean_text(part)
    return type(part) is int and abs(part) < 2**63


def _not_of_this_list() -> InvalidArgs:
    return InvalidArgs("cursor is not one that this list gave", fields=["cursor"])


def _checksum(listing: Listing, body: bytes) -> bytes:
    return zlib.crc32(orjson.dumps(listing) + body).to_bytes(4, "big")
