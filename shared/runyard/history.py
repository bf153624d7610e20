"""Transcripts that callers bring along, checked as strictly as a model's API would before any row is stored."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from runyard.authoring.content import find_block_issues, find_turn_issues
from runyard.blocks import CALL_ID, TOOL_NAME, Block, Content, as_blocks, call_ids, text_of
from runyard.errors import InvalidArgs

_MODEL_BLOCKS = frozenset({"text", "thinking", "redacted_thinking", "tool_use"})
_USER_BLOCKS = frozenset({"text", "image", "document"})
_SOURCED = frozenset({"image", "document"})


@dataclass(frozen=True, kw_only=True, slots=True)
class HistoryMessage:
    role: Literal["user", "assistant"]
    content: Content


def check_user_blocks(blocks: Sequence[Block], where: str) -> None:
    """Check what a person may send: text, images, documents.

    Raises:
        InvalidArgs: names the block, `where[0].type`.
    """
    for index, block in enumerate(blocks):
        _check_user_block(block, f"{where}[{index}]")


def check_history(messages: Sequence[HistoryMessage], *, behind: Sequence[HistoryMessage] = ()) -> None:
    """Check that these messages can follow those that are `behind` them.

    The user begins. Every call is answered in the very next user message, results belong to calls that were made, ids
    are unique, and no call is left open at the end.

    Raises:
        InvalidArgs: names the message and the block, `messages[2].content[0].tool_use_id`.
    """
    if messages and not behind and messages[0].role != "user":
        raise InvalidArgs("messages[0].role must be user: a conversation begins with the user", fields=["messages"])
    earlier = [call_ids(message.content) for message in behind]
    open_calls = list(earlier[-1]) if earlier else []
    seen = {call_id for calls in earlier for call_id in calls}
    for index, message in enumerate(messages):
        where = f"messages[{index}].content"
        if not message.content or (isinstance(message.content, str) and not message.content.strip()):
            raise InvalidArgs(f"{where} is empty", fields=["messages"], field=where)
        blocks = as_blocks(message.content)
        if message.role == "assistant":
            if open_calls:
                raise _unanswered(where, open_calls)
            open_calls = _check_assistant(blocks, where, seen)
        else:
            _check_user(blocks, where, open_calls)
            open_calls = []
    if open_calls:
        raise _unanswered("messages", open_calls)


def _check_assistant(blocks: Sequence[Block], where: str, seen: set[str]) -> list[str]:
    for index, block in enumerate(blocks):
        place = f"{where}[{index}]"
        if block.get("type") not in _MODEL_BLOCKS:
            raise _wrong(place, "type", "must be text, thinking, redacted_thinking or tool_use")
        _refuse(find_turn_issues(block), place)
        if block["type"] == "text":
            _check_text(block, place)
        elif block["type"] == "tool_use":
            for name, rule in (("id", CALL_ID), ("name", TOOL_NAME)):
                if rule.fullmatch(block[name]) is None:
                    raise _wrong(place, name, f"must be of the form {rule.pattern}")
            if block["id"] in seen:
                raise _wrong(place, "id", "is the id of an earlier call")
            seen.add(block["id"])
    if blocks[-1]["type"] in {"thinking", "redacted_thinking"}:
        raise _wrong(f"{where}[{len(blocks) - 1}]", "type", "a turn cannot end with thinking")
    return call_ids(list(blocks))


def _check_user(blocks: Sequence[Block], where: str, open_calls: list[str]) -> None:
    answered: list[str] = []
    for index, block in enumerate(blocks):
        place = f"{where}[{index}]"
        if block.get("type") != "tool_result":
            _check_user_block(block, place)
            continue
        call_id = block.get("tool_use_id")
        if call_id not in open_calls or call_id in answered:
            raise _wrong(place, "tool_use_id", "answers no open call of the message before")
        content = block.get("content", "")
        if isinstance(content, list) and all(isinstance(item, dict) for item in content):
            check_user_blocks(content, f"{place}.content")
        elif not isinstance(content, str):
            raise _wrong(place, "content", "must be a string or content blocks")
        if block.get("is_error") and not text_of(content).strip():
            raise _wrong(place, "content", "of an error must have words")
        _refuse(find_turn_issues(block), place)
        answered.append(call_id)
    if missing := [call_id for call_id in open_calls if call_id not in answered]:
        raise _unanswered(where, missing)


def _check_user_block(block: Block, place: str) -> None:
    if block.get("type") not in _USER_BLOCKS:
        raise _wrong(place, "type", "must be text, image or document")
    if block["type"] in _SOURCED:
        _need(block, place, "source", dict)
    else:
        _check_text(block, place)
    _refuse(find_block_issues(block), place)


def _refuse(issues: Mapping[str, str], place: str) -> None:
    for path, issue in issues.items():
        raise InvalidArgs(f"{place}: {issue}", fields=[place.partition("[")[0]], field=f"{place}.{path}")


def _check_text(block: Block, place: str) -> None:
    _need(block, place, "text", str)
    if not block["text"].strip():
        raise _wrong(place, "text", "is blank")


def _need(block: Block, place: str, name: str, kind: type[Any]) -> None:
    if not isinstance(block.get(name), kind):
        raise _wrong(place, name, "is missing or of the wrong type")


def _wrong(place: str, name: str, reason: str) -> InvalidArgs:
    field = f"{place}.{name}"
    return InvalidArgs(f"{field} {reason}", fields=[place.partition("[")[0]], field=field)


def _unanswered(where: str, calls: Sequence[str]) -> InvalidArgs:
    return InvalidArgs(
        f"{where}: the calls {', '.join(calls)} are not answered by a tool_result each", fields=["messages"]
    )
