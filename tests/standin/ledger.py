"""What the stand-in has sent, so that the judge can compare what comes back in later requests."""

from dataclasses import dataclass, field
from typing import Any

Block = dict[str, Any]
"""A content block as a client has to send it back."""

Mark = tuple[str, ...]
"""A block that must keep its place among its like: a thinking block with all its content, or a call by its id."""


@dataclass(kw_only=True)
class SentMessage:
    """One answer. It grows while it is streamed: only a block whose `content_block_stop` went out was sent."""

    id: str
    blocks: list[Block] = field(default_factory=list)
    stop_reason: str | None = None
    complete: bool = False

    @property
    def marks(self) -> list[Mark]:
        return [mark for block in self.blocks if (mark := mark_of(block)) is not None]


def mark_of(block: Block) -> Mark | None:
    match block:
        case {"type": "thinking", "thinking": text, "signature": signature}:
            return ("thinking", text, signature)
        case {"type": "redacted_thinking", "data": data}:
            return ("redacted_thinking", data)
        case {"type": "tool_use", "id": call}:
            return ("tool_use", call)
    return None


@dataclass(kw_only=True)
class Ledger:
    messages: list[SentMessage] = field(default_factory=list)
    _by_mark: dict[Mark, list[SentMessage]] = field(default_factory=dict)

    def open(self, message_id: str) -> SentMessage:
        message = SentMessage(id=message_id)
        self.messages.append(message)
        return message

    def add(self, message: SentMessage, block: Block) -> None:
        """`block` went out whole."""
        message.blocks.append(block)
        if (mark := mark_of(block)) is not None:
            self._by_mark.setdefault(mark, []).append(message)

    def holding(self, mark: Mark) -> list[SentMessage]:
        return self._by_mark.get(mark, [])

    def paused(self) -> list[SentMessage]:
        return [message for message in self.messages if message.stop_reason == "pause_turn"]
