"""The demo model's thinking blocks, signed as the real API signs its own: a changed one is refused."""

import hashlib
from typing import Any

from runyard.errors import ProviderError

_MARK = "demo-"


def signed_thinking(text: str) -> dict[str, Any]:
    return {"type": "thinking", "thinking": text, "signature": _signature(text)}


def check_thinking(messages: list[dict[str, Any]]) -> None:
    """Blocks that other models signed pass.

    Raises:
        ProviderError: a block of the demo model is not as it was.
    """
    for block in _blocks(messages):
        if _is_ours(block) and block["signature"] != _signature(block.get("thinking", "")):
            raise ProviderError(
                "a thinking block was changed on its way back to the model", status=400, type="invalid_request_error"
            )


def without_demo_thinking(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """For a run that the demo model began and a real one continues, whose provider would refuse our signatures."""
    if not any(_is_ours(block) for block in _blocks(messages)):
        return messages
    return [
        {**message, "content": [block for block in message["content"] if not _is_ours(block)]}
        if isinstance(message["content"], list)
        else message
        for message in messages
    ]


def _blocks(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [block for message in messages if isinstance(message["content"], list) for block in message["content"]]


def _is_ours(block: dict[str, Any]) -> bool:
    return block.get("type") == "thinking" and str(block.get("signature")).startswith(_MARK)


def _signature(text: str) -> str:
    return _MARK + hashlib.sha256(text.encode()).hexdigest()
