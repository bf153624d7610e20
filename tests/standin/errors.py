"""The API's error bodies: https://docs.claude.com/en/api/errors."""

from typing import Any

import orjson

TYPE_OF_STATUS = {
    400: ("invalid_request_error", "Invalid request"),
    401: ("authentication_error", "invalid x-api-key"),
    402: ("billing_error", "There is an issue with your billing"),
    403: ("permission_error", "Your API key does not have permission to use the specified resource"),
    404: ("not_found_error", "Not found"),
    405: ("invalid_request_error", "Method Not Allowed"),
    408: ("timeout_error", "Request timed out"),
    409: ("conflict_error", "Conflict"),
    413: ("request_too_large", "Request exceeds the maximum size"),
    429: ("rate_limit_error", "This request would exceed your account's rate limit. Please try again later."),
    500: ("api_error", "Internal server error"),
    504: ("timeout_error", "Request timed out"),
    529: ("overloaded_error", "Overloaded"),
}
STATUS_OF_TYPE = {kind: status for status, (kind, _) in reversed(TYPE_OF_STATUS.items())}


def error_body(status: int, *, request_id: str, error_type: str | None = None, message: str | None = None) -> bytes:
    usual_type, usual_message = TYPE_OF_STATUS.get(status, ("api_error", "Error"))
    return orjson.dumps(error_event(error_type or usual_type, message or usual_message, request_id))


def error_event(error_type: str, message: str, request_id: str) -> dict[str, Any]:
    return {"type": "error", "error": {"type": error_type, "message": message}, "request_id": request_id}
