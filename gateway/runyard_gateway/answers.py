"""JSON answers."""

from typing import Any

import orjson
from starlette.responses import Response


def json_answer(body: Any, *, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(orjson.dumps(body), status_code=status, headers=headers, media_type="application/json")
