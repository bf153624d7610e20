"""Makes the API's events from a script, with the script's acts between them.

message_start, (content_block_start, content_block_delta..., content_block_stop)..., message_delta, message_stop:
https://docs.claude.com/en/docs/build-with-claude/streaming.
"""

import base64
import hashlib
import secrets
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import orjson

from tests.standin.ledger import Block
from tests.standin.script import (
    Act,
    Delta,
    RedactedThinking,
    Script,
    ServerToolResult,
    Text,
    Thinking,
    ToolUse,
)


@dataclass(slots=True, kw_only=True)
class Emit:
    """Bytes of the body, and what the client has once it has them."""

    name: str
    data: bytes
    complete: bool = True  # False: the first bytes of an event that was split
    block: Block | None = None  # a content block is whole now
    usage: dict[str, Any] | None = None
    stop_reason: str | None = None


Item = Emit | Act


@dataclass(frozen=True, kw_only=True)
class Envelope:
    message_id: str
    model: str


def sse(name: str, data: Any) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (name.encode(), orjson.dumps(data))


def new_message_id() -> str:
    return f"msg_{secrets.token_hex(12)}"


def message_body(script: Script, envelope: Envelope, items: Iterable[Item]) -> dict[str, Any]:
    """The same answer for `stream: false`."""
    emits = [item for item in items if isinstance(item, Emit)]
    usage: dict[str, Any] = {}
    for emit in emits:
        usage |= {key: value for key, value in (emit.usage or {}).items() if value is not None}
    return _envelope(envelope) | {
        "content": [emit.block for emit in emits if emit.block is not None],
        "usage": usage,
        **_stop(script),
    }


# Events ----------------------------------------------------------------------------------------------------------


def message_events(script: Script, envelope: Envelope) -> Iterator[Item]:
    start = _envelope(envelope) | {"usage": script.usage.start}
    yield Emit(
        name="message_start",
        data=sse("message_start", {"type": "message_start", "message": start}),
        usage=script.usage.start,
    )
    index = 0
    last_server_call = ""
    for step in script.steps:
        match step:
            case Text():
                yield from _text(step, index)
            case Thinking():
                yield from _thinking(step, index, envelope)
            case RedactedThinking():
                yield from _whole({"type": "redacted_thinking", "data": step.data or _token(envelope, index)}, index)
            case ToolUse():
                call_id = step.id or f"{'srvtoolu' if step.server else 'toolu'}_{secrets.token_hex(12)}"
                last_server_call = call_id if step.server else last_server_call
                yield from _tool_use(step, index, call_id)
            case ServerToolResult():
                call_id = step.tool_use_id or last_server_call
                # As JSON has it: what comes back is compared with it.
                found = list(step.content) if isinstance(step.content, tuple) else step.content
                yield from _whole({"type": step.type, "tool_use_id": call_id, "content": found}, index)
            case _:
                yield step
                continue
        index += 1
    yield from _end(script)


def _envelope(envelope: Envelope) -> dict[str, Any]:
    return {
        "id": envelope.message_id,
        "type": "message",
        "role": "assistant",
        "model": envelope.model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "stop_details": None,
    }


def _stop(script: Script) -> dict[str, Any]:
    return {
        "stop_reason": script.stops_with,
        "stop_sequence": script.stop_sequence,
        "stop_details": script.stop_details,
    }


def _end(script: Script) -> Iterator[Emit]:
    """Usage may come in several message_delta events; the stop reason comes in the last."""
    last = len(script.usage.deltas) - 1
    for index, usage in enumerate(script.usage.deltas):
        delta = _stop(script) if index == last else {}
        event = {"type": "message_delta", "delta": delta} | ({"usage": usage} if usage else {})
        yield Emit(
            name="message_delta",
            data=sse("message_delta", event),
            usage=usage,
            stop_reason=script.stops_with if index == last else None,
        )
    yield Emit(name="message_stop", data=sse("message_stop", {"type": "message_stop"}))


# Blocks ----------------------------------------------------------------------------------------------------------


def _text(step: Text, index: int) -> Iterator[Item]:
    yield _start(index, {"type": "text", "text": ""})
    yield from _pieces(step.deltas, index, "text_delta", "text")
    for citation in step.citations:
        yield _delta(index, {"type": "citations_delta", "citation": citation})
    block: Block = {"type": "text", "text": _joined(step.deltas)}
    if step.citations:
        block["citations"] = list(step.citations)
    yield _stop_block(index, block)


def _thinking(step: Thinking, index: int, envelope: Envelope) -> Iterator[Item]:
    signature = step.signature if step.signature is not None else (_token(envelope, index),)
    yield _start(index, {"type": "thinking", "thinking": "", "signature": ""})
    yield from _pieces(step.deltas, index, "thinking_delta", "thinking")
    for piece in signature:
        yield _delta(index, {"type": "signature_delta", "signature": piece})
    block = {"type": "thinking", "thinking": _joined(step.deltas), "signature": "".join(signature)}
    yield _stop_block(index, block)


def _tool_use(step: ToolUse, index: int, call_id: str) -> Iterator[Item]:
    kind = "server_tool_use" if step.server else "tool_use"
    block: Block = {"type": kind, "id": call_id, "name": step.name}
    yield _start(index, block | {"input": step.input if step.at_start else {}})
    if not step.at_start:
        deltas = _json_pieces(step.input) if step.deltas is None else step.deltas
        yield from _pieces(deltas, index, "input_json_delta", "partial_json")
    yield _stop_block(index, block | {"input": _input_sent(step)})


def _whole(block: Block, index: int) -> Iterator[Item]:
    """A block that has no deltas: all of it stands in content_block_start."""
    yield _start(index, block)
    yield _stop_block(index, block)


def _input_sent(step: ToolUse) -> Any:
    if step.at_start or step.deltas is None:
        return step.input
    try:
        return orjson.loads(_joined(step.deltas) or "{}")
    except orjson.JSONDecodeError:
        return {}  # cut or broken: there is nothing that could come back unchanged


def _json_pieces(value: dict[str, Any]) -> tuple[str, ...]:
    text = orjson.dumps(value).decode()
    third = max(1, len(text) // 3)
    return ("", text[:third], text[third : 2 * third], text[2 * third :])


def _token(envelope: Envelope, index: int) -> str:
    """Opaque, unique and repeatable for one message, like a signature or encrypted thinking."""
    return base64.b64encode(hashlib.sha512(f"{envelope.message_id}/{index}".encode()).digest()).decode()


def _joined(deltas: Iterable[Delta]) -> str:
    return "".join(delta for delta in deltas if isinstance(delta, str))


def _pieces(deltas: Iterable[Delta], index: int, delta_type: str, key: str) -> Iterator[Item]:
    for delta in deltas:
        if isinstance(delta, str):
            yield _delta(index, {"type": delta_type, key: delta})
        else:
            yield delta


def _start(index: int, block: Block) -> Emit:
    data = {"type": "content_block_start", "index": index, "content_block": block}
    return Emit(name="content_block_start", data=sse("content_block_start", data))


def _delta(index: int, delta: dict[str, Any]) -> Emit:
    data = {"type": "content_block_delta", "index": index, "delta": delta}
    return Emit(name="content_block_delta", data=sse("content_block_delta", data))


def _stop_block(index: int, block: Block) -> Emit:
    data = {"type": "content_block_stop", "index": index}
    return Emit(name="content_block_stop", data=sse("content_block_stop", data), block=block)
