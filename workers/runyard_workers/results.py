"""What a tool returned or raised -> the `content` of its tool_result, clean and within the size limit."""

from dataclasses import dataclass
from typing import Any

import orjson

from runyard.authoring.content import Content
from runyard.authoring.errors import Refused
from runyard.authoring.json_values import Unserializable, to_json
from runyard.blocks import Block
from runyard.text import TRUNCATED, clean_text, truncate_bytes

RESULT_LIMIT_BYTES = 65_536
"""UTF-8 bytes of a text, or of a block list's JSON; the truncation marker is inside."""


class UnserializableResult(Exception):
    """A tool returned what has no JSON form. The message names the tool and the type, for the model to read."""


@dataclass(frozen=True, kw_only=True)
class ToolResult:
    content: str | list[Block]
    """Stored as it is. A text may be empty unless `is_error`; the Messages API takes an empty result without the key
    `content`."""

    is_error: bool = False


def to_result(value: Any, *, tool: str) -> ToolResult:
    """A string as it is, `Content` as its blocks, everything else as JSON text.

    Raises:
        UnserializableResult: the value has no JSON form.
    """
    kind = type(value)  # not isinstance: a lazy proxy is asked for its class, and may raise
    if issubclass(kind, str):
        return ToolResult(content=truncate_bytes(clean_text(str.__str__(value)), RESULT_LIMIT_BYTES))
    try:
        if issubclass(kind, Content):
            return ToolResult(content=_cap_blocks(_filled(to_json(value.blocks))))
        text = orjson.dumps(to_json(value)).decode()
    except Unserializable as error:
        raise UnserializableResult(f"Tool {tool!r} returned {error}, which has no JSON form") from error
    return ToolResult(content=truncate_bytes(text, RESULT_LIMIT_BYTES))


def error_result(message: str) -> ToolResult:
    """The Messages API refuses an empty error, so one without words gets some."""
    text = truncate_bytes(clean_text(message), RESULT_LIMIT_BYTES)
    return ToolResult(content=text if text.strip() else "the tool failed without a message", is_error=True)


def describe_exception(exception: BaseException) -> str:
    """`ValueError: no such order`: the type and the message; cannot fail. A refusal tells its code, a group (of an
    `asyncio.TaskGroup`, say) the first exception in it.
    """
    if isinstance(exception, BaseExceptionGroup):
        return f"{_own_words(exception)}: {describe_exception(_first_of(exception))}"
    return _own_words(exception)


def _first_of(group: BaseException) -> BaseException:
    while isinstance(group, BaseExceptionGroup):
        group = group.exceptions[0]
    return group


def _own_words(exception: BaseException) -> str:
    if isinstance(exception, Refused):
        return f"{exception.code}: {exception.message}"
    name = type(exception).__name__
    try:
        message = str(exception)
    except BaseException:  # noqa: BLE001 - an author's __str__ may raise anything, and the error at hand must be told
        return name
    return f"{name}: {message}" if message else name


def _filled(blocks: list[Block]) -> list[Block]:
    """Without the empty text blocks, which the Messages API refuses."""
    return [block for block in blocks if block["type"] != "text" or block["text"].strip()]


def _cap_blocks(blocks: list[Block]) -> list[Block] | str:
    if not blocks:
        return ""
    if _size_bytes(blocks) <= RESULT_LIMIT_BYTES:
        return blocks
    marker = _text_block(TRUNCATED)
    room_bytes = RESULT_LIMIT_BYTES - _size_bytes([marker])
    kept: list[Block] = []
    for block in blocks:
        fitting, is_cut = _fit(block, room_bytes - 1)  # 1: the comma
        if fitting is not None:
            kept.append(fitting)
            room_bytes -= _size_bytes(fitting) + 1
        if is_cut:
            return kept if fitting is not None else [*kept, marker]
    return kept


def _fit(block: Block, room_bytes: int) -> tuple[Block | None, bool]:
    """The block, or what stands for it within the room (None: nothing does), and whether the list ends there."""
    if _size_bytes(block) <= room_bytes:
        return block, False
    if block["type"] == "text":
        return _cut_text(block, room_bytes), True
    note = _text_block(f"[{block['type']} of {_size_bytes(block)} bytes left out]{TRUNCATED}")
    if _size_bytes(note) <= room_bytes:
        return note, False
    return None, True


def _cut_text(block: Block, room_bytes: int) -> Block | None:
    limit_bytes = room_bytes
    while limit_bytes >= len(TRUNCATED):
        cut = {**block, "text": truncate_bytes(block["text"], limit_bytes)}
        excess_bytes = _size_bytes(cut) - room_bytes
        if excess_bytes <= 0:
            return cut
        limit_bytes -= excess_bytes  # the block around the text, and JSON's escapes in it
    return None


def _text_block(text: str) -> Block:
    return {"type": "text", "text": text}


def _size_bytes(value: Any) -> int:
    return len(orjson.dumps(value))
