"""Cursors of lists: where the next page begins, with a tie-break, sealed to their list so that a broken one is told.

A cursor is no secret and grants nothing: whose rows are listed is part of the query.
"""

import base64
import binascii
import zlib

import orjson

from runyard.errors import InvalidArgs


def seal(kind: str, *position: int | str) -> str:
    """`kind` names the list that the position belongs to."""
    body = orjson.dumps([kind, *position])
    return base64.urlsafe_b64encode(zlib.crc32(body).to_bytes(4, "big") + body).decode().rstrip("=")


def unseal(kind: str, cursor: str) -> list[int | str]:
    """The position in a cursor of this list.

    Raises:
        InvalidArgs: it was changed, or is another list's.
    """
    try:
        raw = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        checksum, body = raw[:4], raw[4:]
        if zlib.crc32(body).to_bytes(4, "big") != checksum:
            raise ValueError("checksum")
        position: list[int | str]
        found, *position = orjson.loads(body)
        if found != kind:
            raise ValueError("kind")
    except (ValueError, binascii.Error) as error:
        raise InvalidArgs("cursor is not one that this list gave", fields=["cursor"]) from error
    return position
