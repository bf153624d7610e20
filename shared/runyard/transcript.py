"""Builds the messages of a model request from the stored rows, which are not changed.

Rules of the Messages API (https://docs.claude.com/en/api/messages): roles alternate, every tool_use is answered in the
very next user message, results come before text, no text block is blank, no turn ends with thinking.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Any, Protocol

from runyard.blocks import INTERRUPTED, TOOL_NAME, Block, Content, as_blocks, call_ids, tool_result, tool_uses

_THINKING = frozenset({"thinking", "redacted_thinking"})
_NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9_-]")


class Row(Protocol):
    """The part of a stored row that a request is built from (`runyard.db.records.Message`)."""

    @property
    def role(self) -> str: ...

    @property
    def content(self) -> Content: ...


def request_messages(rows: Iterable[Row]) -> list[dict[str, Any]]:
    """Messages as the model's API takes them: `[{"role": "user", "content": "hi"}, ...]`."""
    turns = _merged((row.role, _sendable(row.content)) for row in rows)
    turns = _merged(_without_open_server_calls(turns))
    messages: list[dict[str, Any]] = []
    asked: list[str] = []
    for role, content in turns:
        messages.append({"role": role, "content": _answered(asked, content) if role == "user" else content})
        asked = call_ids(content)
    return messages


def _merged(turns: Iterable[tuple[str, Content]]) -> list[tuple[str, Content]]:
    """Adjacent turns of one role become one; empty turns are left out."""
    merged: list[tuple[str, Content]] = []
    for role, content in turns:
        if merged and content and merged[-1][0] == role:
            merged[-1] = (role, as_blocks(merged[-1][1]) + as_blocks(content))
        elif content:
            merged.append((role, content))
    return merged


def _sendable(content: Content) -> Content:
    if isinstance(content, str):
        return content if content.strip() else ""
    blocks = [_nameable(block) for block in content if block.get("type") != "text" or block["text"].strip()]
    if _thinking_is_whole(blocks):
        return blocks
    return [block for block in blocks if block.get("type") not in _THINKING]


def _nameable(block: Block) -> Block:
    """A model that asks for `get weather` is told that there is no such tool, and the name itself would be refused."""
    if block.get("type") != "tool_use" or TOOL_NAME.fullmatch(block["name"]):
        return block
    return {**block, "name": _NOT_IN_NAMES.sub("_", block["name"])[:128] or "_"}


def _thinking_is_whole(blocks: list[Block]) -> bool:
    """Thinking that the output limit cut has no signature yet, or nothing after it, and cannot go back.

    An answer's thinking goes back whole or not at all
    (https://docs.claude.com/en/docs/build-with-claude/extended-thinking).
    """
    if blocks and blocks[-1].get("type") in _THINKING:
        return False
    return all(block.get("signature") for block in blocks if block.get("type") == "thinking")


def _without_open_server_calls(turns: list[tuple[str, Content]]) -> Iterator[tuple[str, Content]]:
    """Leaves out the calls of server tools that never ended: their turn was cut, or paused and then not gone on with.

    One may still end in a later turn: in the last one, sent back to be gone on with, and beside a call of our own that
    the last user turn answers.
    """
    ended = {block.get("tool_use_id") for _, content in turns for block in as_blocks(content)}
    for following, (role, content) in zip(range(len(turns) - 1, -1, -1), turns, strict=True):
        kept = [block for block in as_blocks(content) if block["type"] != "server_tool_use" or block["id"] in ended]
        may_end = following == 0 or (following == 1 and tool_uses(content))
        yield role, content if may_end or len(kept) == len(as_blocks(content)) else _sendable(kept)


def _answered(asked: list[str], content: Content) -> Content:
    """Results first, one for each call. A call that a crash left without a result is answered as interrupted."""
    if isinstance(content, str) and not asked:
        return content
    blocks = as_blocks(content)
    given = {block["tool_use_id"]: block for block in blocks if block.get("type") == "tool_result"}
    results = [given.get(call_id) or tool_result(call_id, INTERRUPTED, is_error=True) for call_id in asked]
    return results + [block for block in blocks if block.get("type") != "tool_result"]
