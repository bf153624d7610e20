"""What the stand-in remembers of each request."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from tests.standin.signals import GUARD_S, Signal


class Ending(StrEnum):
    COMPLETE = "complete"  # everything was written
    CLIENT_CLOSED = "client_closed"  # the client went before that
    CUT = "cut"  # the script broke it off
    ABORTED = "aborted"  # the stand-in itself was stopped


@dataclass(kw_only=True, eq=False)
class Request:
    path: str
    headers: dict[str, str]  # names in lower case, the key left out
    key_digest: str | None  # of SHA-256: tells two keys apart without keeping either
    request_id: str
    received_at: float  # epoch seconds
    number: int = 0  # from 1, in the order of arrival
    body: Any = None  # as parsed; None while it is none the API could read
    status: int | None = None
    refusal: str | None = None  # the judge's message
    usage: dict[str, Any] = field(default_factory=dict)  # as a client that reads all of it has to report it
    events_sent: int = 0
    bytes_sent: int = 0
    ending: Ending | None = None
    ended_at: float | None = None
    _signal: Signal = field(default_factory=Signal, repr=False)

    @property
    def client_closed(self) -> bool:
        return self.ending is Ending.CLIENT_CLOSED

    @property
    def messages(self) -> list[dict[str, Any]]:
        messages = self.body.get("messages") if isinstance(self.body, dict) else None
        return messages if isinstance(messages, list) else []

    @property
    def model(self) -> str:
        return str(self.body.get("model")) if isinstance(self.body, dict) else ""

    @property
    def system(self) -> str:
        system = self.body.get("system", "") if isinstance(self.body, dict) else ""
        return text_of(system)

    @property
    def tools(self) -> list[dict[str, Any]]:
        tools = self.body.get("tools") if isinstance(self.body, dict) else None
        return tools if isinstance(tools, list) else []

    @property
    def turn(self) -> int:
        """How many assistant turns the conversation has: 0 for its first request."""
        return sum(message.get("role") == "assistant" for message in self.messages)

    @property
    def user_text(self) -> str:
        """All that the user said, tool results not counted, a line each."""
        return "\n".join(
            text for message in self.messages if message.get("role") == "user" if (text := text_of(message["content"]))
        )

    @property
    def conversation(self) -> str:
        """What the requests of one conversation share: the user's first text."""
        return text_of(self.messages[0]["content"]) if self.messages else ""

    def end(self, ending: Ending, at: float) -> None:
        if self.ending is None:
            self.ending = ending
            self.ended_at = at
            self._signal.notify()

    async def ended(self, *, guard_s: float = GUARD_S) -> Ending:
        """Wait until its answer is over, and say how: written whole, cut by the script, or left by the client."""
        await self._signal.until(
            lambda: self.ending is not None, lambda: f"request {self.number} is still being answered", guard_s
        )
        assert self.ending is not None
        return self.ending

    def to_json(self) -> dict[str, Any]:
        return {
            "number": self.number,
            "path": self.path,
            "body": self.body,
            "headers": self.headers,
            "key_digest": self.key_digest,
            "request_id": self.request_id,
            "received_at": self.received_at,
            "status": self.status,
            "refusal": self.refusal,
            "usage": self.usage,
            "events_sent": self.events_sent,
            "bytes_sent": self.bytes_sent,
            "ending": self.ending,
            "client_closed": self.client_closed,
            "ended_at": self.ended_at,
            "turn": self.turn,
            "conversation": self.conversation,
        }


def text_of(content: Any) -> str:
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    return "\n".join(
        block["text"] for block in content if isinstance(block, dict) and isinstance(block.get("text"), str)
    )
