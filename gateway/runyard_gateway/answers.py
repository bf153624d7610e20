"""JSON answers, and the description of answers for the OpenAPI document."""

from dataclasses import dataclass
from typing import Any

import orjson
from starlette.responses import Response

JSON = "application/json"
EVENT_STREAM = "text/event-stream"


@dataclass(frozen=True, kw_only=True, slots=True)
class Header:
    name: str
    description: str
    always: bool = True


REQUEST_ID = Header(name="X-Request-Id", description="Names the request in the gateway's log.")
LOCATION = Header(name="Location", description="Where to find out what becomes of it.")
RUN_ID = Header(name="X-Run-Id", description="The run's id.")
STREAM_ID = Header(name="X-Stream-Id", description="The id of the invocation's stream.")
REPLAYED = Header(
    name="Idempotent-Replayed", description="`true`: the `Idempotency-Key` was used before.", always=False
)
RETRY_AFTER = Header(name="Retry-After", description="Seconds after which the call may be sent again.", always=False)

HEADERS = (REQUEST_ID, LOCATION, RUN_ID, STREAM_ID, REPLAYED, RETRY_AFTER)
"""Headers that a page of another origin may read."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """An answer that a route may give. `shape`: the type of its body; streams and empty answers have none."""

    status: int
    description: str
    shape: Any = None
    media: str | None = JSON
    headers: tuple[Header, ...] = ()


def nothing(description: str, *, headers: tuple[Header, ...] = ()) -> Answer:
    """An answer without a body."""
    return Answer(status=204, description=description, media=None, headers=headers)


def json_answer(body: Any, *, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(orjson.dumps(body), status_code=status, headers=headers, media_type=JSON)
