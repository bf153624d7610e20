"""Every call has its one result, in the right place; every result has its call."""

from collections.abc import Sequence

from tests.standin.rules.blocks import RESULT_OF_SERVER_TOOL, ServerToolResult, ServerToolUse, ToolResult, ToolUse
from tests.standin.rules.refusal import InvalidTranscript
from tests.standin.rules.request import Message


def check_calls(turns: Sequence[Message]) -> None:
    """Client tools: the next user message begins with the results, each call answered once, nothing else answered."""
    seen: set[str] = set()
    asked: list[str] = []
    for index, turn in enumerate(turns):
        if turn.role == "user":
            _check_results(turn, index, asked)
            asked = []
            continue
        asked = _calls(turn, index, seen)
        if asked and index == len(turns) - 1:
            raise _unanswered(index, asked)


def _calls(turn: Message, index: int, seen: set[str]) -> list[str]:
    calls = []
    for position, block in enumerate(turn.content):
        if not isinstance(block, ToolUse | ServerToolUse):
            continue
        if block.id in seen:
            raise InvalidTranscript(f"messages.{index}.content.{position}: `{block.type}` ids must be unique")
        seen.add(block.id)
        if isinstance(block, ToolUse):
            calls.append(block.id)
    return calls


def _check_results(turn: Message, index: int, asked: list[str]) -> None:
    answered: set[str] = set()
    leading = True
    for position, block in enumerate(turn.content):
        path = f"messages.{index}.content.{position}"
        if not isinstance(block, ToolResult):
            leading = False
            continue
        if block.tool_use_id not in asked:
            raise InvalidTranscript(
                f"{path}: unexpected `tool_use_id` found in `tool_result` blocks: {block.tool_use_id}. "
                "Each `tool_result` block must have a corresponding `tool_use` block in the previous message."
            )
        if block.tool_use_id in answered:
            raise InvalidTranscript(
                f"{path}: each tool_use must have a single result. "
                f"Found multiple `tool_result` blocks with id: {block.tool_use_id}"
            )
        if not leading:
            # The API says no more than that it found no result; the documentation says why: results come first.
            raise _unanswered(index - 1, [block.tool_use_id])
        if block.is_error and not block.content:
            raise InvalidTranscript(f"{path}.tool_result: content cannot be empty if `is_error` is true")
        answered.add(block.tool_use_id)
    if missing := [call for call in asked if call not in answered]:
        raise _unanswered(index - 1, missing)


def _unanswered(index: int, calls: list[str]) -> InvalidTranscript:
    return InvalidTranscript(
        f"messages.{index}: `tool_use` ids were found without `tool_result` blocks immediately after: "
        f"{', '.join(calls)}. Each `tool_use` block must have a corresponding `tool_result` block in the next message."
    )


def check_server_calls(turns: Sequence[Message], *, last_is_paused: bool) -> None:
    """Server tools: the result follows in the same turn.

    Two turns may leave a call open: one that was paused and is sent back to go on; and one that also calls a client's
    tool, whose server call "completes in a later response" (handling-stop-reasons, `tool_use`).
    """
    open_calls: dict[str, ServerToolUse] = {}
    for index, turn in enumerate(turns):
        if turn.role == "user":
            continue
        for position, block in enumerate(turn.content):
            if isinstance(block, ServerToolUse):
                open_calls[block.id] = block
            elif isinstance(block, ServerToolResult):
                call = open_calls.pop(block.tool_use_id, None)
                if call is None or RESULT_OF_SERVER_TOOL[call.name] != block.type:
                    raise InvalidTranscript(
                        f"messages.{index}.content.{position}: unexpected `tool_use_id` found in `{block.type}` "
                        f"blocks: {block.tool_use_id}. Each `{block.type}` block must have a corresponding "
                        "`server_tool_use` block before it."
                    )
        may_stay_open = (last_is_paused and index == len(turns) - 1) or any(
            isinstance(block, ToolUse) for block in turn.content
        )
        if open_calls and not may_stay_open:
            call = next(iter(open_calls.values()))
            raise InvalidTranscript(
                f"messages.{index}: `{call.name}` tool use with id `{call.id}` was found without a corresponding "
                f"`{RESULT_OF_SERVER_TOOL[call.name]}` block"
            )
