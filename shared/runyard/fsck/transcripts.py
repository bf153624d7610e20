"""A stored transcript is whole: its rows are in order, its calls answered, and a request built from it is taken."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from runyard.blocks import Block, as_blocks, call_ids, tool_uses
from runyard.fsck.findings import Code, Finding
from runyard.fsck.snapshots import Snapshot
from runyard.transcript import request_messages


def check_transcript(snapshot: Snapshot) -> Iterator[Finding]:
    yield from _check_order(snapshot)
    yield from _check_calls(snapshot)
    if reason := _why_refused(request_messages(snapshot.messages)):
        yield snapshot.finding(Code.TRANSCRIPT_REQUEST, f"a request built from it would be refused: {reason}")


def _check_order(snapshot: Snapshot) -> Iterator[Finding]:
    rows = snapshot.messages
    hole = next((seq for seq, row in enumerate(rows, start=1) if row.seq != seq), None)
    if hole is not None:
        yield snapshot.finding(Code.TRANSCRIPT_ORDER, f"its row {hole} is not there")
    elif snapshot.run.last_seq != len(rows):
        detail = f"it has {len(rows)} rows, and the run's last is {snapshot.run.last_seq}"
        yield snapshot.finding(Code.TRANSCRIPT_ORDER, detail)
    if strange := [row.seq for row in rows if row.invocation_id is not None and snapshot.invocation_of(row) is None]:
        yield snapshot.finding(Code.TRANSCRIPT_ORDER, f"the invocation of row {strange[0]} is not there")


def _check_calls(snapshot: Snapshot) -> Iterator[Finding]:
    """Each call has one result, in the row straight after it, and each result its call."""
    asked: list[str] = []
    for row in snapshot.messages:
        given = Counter(_answered(row.content) if row.role == "user" else ())
        invocation = snapshot.invocation_of(row)
        if wrong := [call_id for call_id in asked if given[call_id] != 1]:
            detail = f"row {row.seq} has not one result for each of {', '.join(wrong)}"
            yield snapshot.finding(Code.TRANSCRIPT_CALLS, detail, invocation)
        if strange := sorted(given.keys() - set(asked)):
            detail = f"row {row.seq} has results of calls that the row before does not ask for: {', '.join(strange)}"
            yield snapshot.finding(Code.TRANSCRIPT_CALLS, detail, invocation)
        asked = call_ids(row.content) if row.role == "assistant" else []
    if asked and not snapshot.may_be_open(last := snapshot.messages[-1]):
        invocation = snapshot.invocation_of(last)
        yield snapshot.finding(Code.TRANSCRIPT_CALLS, f"nothing answers {', '.join(asked)} of the last row", invocation)


def _answered(content: str | list[Block]) -> list[str]:
    return [block["tool_use_id"] for block in as_blocks(content) if block["type"] == "tool_result"]


def _why_refused(messages: Sequence[dict[str, Any]]) -> str | None:
    """The first rule of the Messages API that these messages break. Either role may come last.

    https://docs.claude.com/en/api/messages
    """
    seen: set[str] = set()
    asked: list[str] = []
    for number, message in enumerate(messages):
        role, content = message["role"], as_blocks(message["content"])
        if role != ("user", "assistant")[number % 2]:
            return f"message {number} is of the {role}"
        if not content or any(block["type"] == "text" and not block["text"].strip() for block in content):
            return f"message {number} has a block without text, or none"
        if (reason := _results_refused(content, asked)) is not None:
            return f"message {number} {reason}"
        asked = [block["id"] for block in tool_uses(content)] if role == "assistant" else []
        if len(set(asked)) != len(asked) or seen & set(asked):
            return f"message {number} repeats the id of a call"
        seen.update(asked)
    return None


def _results_refused(content: Sequence[Block], asked: Sequence[str]) -> str | None:
    results = [block for block in content if block["type"] == "tool_result"]
    if results != list(content[: len(results)]):
        return "has results that do not lead"
    if sorted(block["tool_use_id"] for block in results) != sorted(asked):
        return "does not answer each call of the message before once"
    if any(block.get("is_error") and not block.get("content") for block in results):
        return "has an error without words"
    return None
