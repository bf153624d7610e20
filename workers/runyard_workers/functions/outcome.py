"""The outcome of a function's call, as the ledger and the transcript store it.

So any worker that takes the run over reports the same.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import orjson

from runyard.authoring.content import Content
from runyard.authoring.errors import Refused
from runyard.authoring.json_values import Unserializable, to_json
from runyard.blocks import Block
from runyard.errors import FunctionFailed, RunCrashed, RunyardError
from runyard_workers.results import ToolResult

OUTPUT_LIMIT_BYTES = 1_048_576
"""Of the value as JSON. Unlike a tool's result for a model it is never cut, since half a value is useless."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """`text`: what it wrote with `ctx.stream.write`. `error`: what the caller gets in place of `output`."""

    text: str
    output: Any = None
    error: Mapping[str, Any] | None = None

    def to_result(self) -> ToolResult:
        """`{"output": {"state": "packed"}, "text": ""}`, or `{"error": {"code": ...}, "text": ""}` as is_error."""
        ended = {"output": self.output} if self.error is None else {"error": self.error}
        content = orjson.dumps({**ended, "text": self.text}).decode()
        return ToolResult(content=content, is_error=self.error is not None)

    @classmethod
    def of(cls, result: Block) -> Self:
        """From the `tool_result` in a row. A result that the loop itself made, for a call that another worker had begun
        or that was cancelled, is an error too.
        """
        content = result.get("content", "")
        try:
            kept = orjson.loads(content)
        except orjson.JSONDecodeError:
            return cls(text="", error=error_dict(RunCrashed(content)))
        return cls(text=kept["text"], output=kept.get("output"), error=kept.get("error"))


def error_dict(error: RunyardError | Refused) -> dict[str, Any]:
    """An error as the function's caller gets it, from which `FunctionEnded` is made."""
    return {
        "code": error.code,
        "message": error.message,
        "retryable": error.retryable,
        "status": error.status,
        "fields": error.fields,
    }


def output_of(value: Any) -> Any:
    """What a function returned as the `output` of its result.

    Raises:
        FunctionFailed: it has no JSON form, or is too large.
    """
    try:
        output = to_json(value.blocks if type(value) is Content else value)  # a lazy proxy's class may raise
    except Unserializable as error:
        raise FunctionFailed(f"the function returned {error}, which has no JSON form") from error
    size_bytes = len(orjson.dumps(output))
    if size_bytes > OUTPUT_LIMIT_BYTES:
        raise FunctionFailed(
            f"the function returned {size_bytes:,} bytes of JSON, and {OUTPUT_LIMIT_BYTES:,} are allowed"
        )
    return output
