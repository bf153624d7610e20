"""Content blocks of the Messages API, as far as the loop looks into them: calls, results, text."""

import re
from typing import Any

Block = dict[str, Any]
Content = str | list[Block]

INTERRUPTED = "tool execution was interrupted; it may have acted"
CANCELLED = "cancelled by user"

CALL_ID = re.compile(r"[a-zA-Z0-9_-]+")
TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
"""What the Messages API takes as the id and the name of a call, in every request that holds it."""


def tool_result(call_id: str, content: Content, *, is_error: bool) -> Block:
    """A result block; `content` and `is_error` are left out if they say nothing."""
    block: Block = {"type": "tool_result", "tool_use_id": call_id}
    if content:
        block["content"] = content
    if is_error:
        block["is_error"] = True
    return block


def tool_uses(content: Content) -> list[Block]:
    """The blocks that call one of our tools, in order. Server tools are the provider's own and do not count."""
    return [] if isinstance(content, str) else [block for block in content if block.get("type") == "tool_use"]


def call_ids(content: Content) -> list[str]:
    return [block["id"] for block in tool_uses(content)]


def text_of(content: Content) -> str:
    """The concatenated text blocks."""
    if isinstance(content, str):
        return content
    return "".join(block["text"] for block in content if block.get("type") == "text")


def as_blocks(content: Content) -> list[Block]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content
