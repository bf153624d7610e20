"""A report of what happened, which pytest shows with a test that failed."""

from collections.abc import Iterator, Sequence
from typing import Any

import orjson

from runyard.blocks import as_blocks
from runyard_workers.testing.results import RunResult

LINE_MAX = 240


def report(results: Sequence[RunResult]) -> str:
    """The transcript of each invocation, one line a block."""
    return "\n".join(line for result in results for line in _lines(result))


def _lines(result: RunResult) -> Iterator[str]:
    error = "" if result.error is None else f": {result.error['code']}: {result.error['message']}"
    yield f"{result.run.agent} {result.invocation_id}: {result.status}{error}"[:LINE_MAX]
    for row in result.rows:
        if row.invocation_id == result.invocation_id:
            for block in as_blocks(row.content):
                yield f"  {row.role:9} {_described(block)}"[:LINE_MAX]


def _described(block: dict[str, Any]) -> str:
    match block:
        case {"type": "text", "text": text}:
            return repr(text)
        case {"type": "thinking", "thinking": thought}:
            return f"(thinks) {thought!r}"
        case {"type": "tool_use", "name": name, "input": given}:
            return f"calls {name} {orjson.dumps(given).decode()}"
        case {"type": "tool_result"}:
            return f"{'error' if block.get('is_error') else 'result'} {block.get('content', '')!r}"
        case _:
            return f"({block.get('type')})"
