"""From stored rows to the request's messages. The stored transcript stays whole; a request is built from it anew.

Rules of the Messages API (https://docs.claude.com/en/api/messages): roles alternate, every tool_use is answered in the
very next user message, results come before text, no text block is empty.
"""

from collections.abc import Iterable
from typing import Any

from runyard.db.records import Message

Block = dict[str, Any]

INTERRUPTED = "tool execution was interrupted; it may have acted"


def request_messages(rows: Iterable[Message]) -> list[dict[str, Any]]:
    """Messages as the model's API takes them: `[{"role": "user", "content": "hi"}, ...]`."""
    messages: list[dict[str, Any]] = []
    unanswered: list[str] = []
    for row in rows:
        content = _sendable(row.content)
        if not content:
            continue
        if row.role == "user":
            content = _answer(unanswered, content)
            unanswered = []
        if messages and messages[-1]["role"] == row.role:
            messages[-1]["content"] = _merge(messages[-1]["content"], content)
        else:
            messages.append({"role": row.role, "content": content})
        if row.role == "assistant":
            unanswered += call_ids(content)
    return messages


def tool_result(call_id: str, content: str | list[Block], *, is_error: bool) -> Block:
    """A result block; `content` and `is_error` are left out where they say nothing."""
    block: Block = {"type": "tool_result", "tool_use_id": call_id}
    if content:
        block["content"] = content
    if is_error:
        block["is_error"] = True
    return block


def tool_uses(content: str | list[Block]) -> list[Block]:
    """The blocks that ask for a tool of ours, in order; server tools are the provider's own."""
    return [] if isinstance(content, str) else [block for block in content if block.get("type") == "tool_use"]


def call_ids(content: str | list[Block]) -> list[str]:
    return [block["id"] for block in tool_uses(content)]


def text_of(content: str | list[Block]) -> str:
    """The concatenated text blocks."""
    if isinstance(content, str):
        return content
    return "".join(block["text"] for block in content if block.get("type") == "text")


def _sendable(content: str | list[Block]) -> str | list[Block]:
    if isinstance(content, str):
        return content if content.strip() else ""
    return [block for block in content if block.get("type") != "text" or block["text"].strip()]


def _answer(unanswered: list[str], content: str | list[Block]) -> str | list[Block]:
    """Results first, and one for each call: a call that a crash left open is answered as interrupted."""
    if not unanswered:
        return content
    blocks = _as_blocks(content)
    given = {block["tool_use_id"]: block for block in blocks if block.get("type") == "tool_result"}
    results = [given.get(call_id) or tool_result(call_id, INTERRUPTED, is_error=True) for call_id in unanswered]
    return results + [block for block in blocks if block.get("type") != "tool_result"]


def _merge(first: str | list[Block], second: str | list[Block]) -> list[Block]:
    return _as_blocks(first) + _as_blocks(second)


def _as_blocks(content: str | list[Block]) -> list[Block]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content
