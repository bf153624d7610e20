"""Rebuilds an assistant turn from the events of a Messages API stream, exactly as the model produced it.

https://docs.claude.com/en/api/messages-streaming
"""

import secrets
from collections.abc import Iterable
from http import HTTPStatus
from typing import Any

from runyard.blocks import CALL_ID
from runyard.errors import ProviderError
from runyard.text import clean_text
from runyard_workers.providers.blocks import StreamedBlock
from runyard_workers.providers.failures import api_failure, malformed
from runyard_workers.providers.model import Activity, ModelEvent, TextDelta, ThinkingDelta, Turn, Usage, UsageSoFar
from runyard_workers.providers.payloads import read_exactly, read_field, read_payload
from runyard_workers.providers.sse import ServerSentEvent
from runyard_workers.providers.tool_input import CUT_REASONS, broken_input_message

_COUNTS = ("input_tokens", "output_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")

_COUNT_MAX = 2**53
"""Beyond it no JSON reader need keep a number, and sums of counts would leave 64 bits."""

_WORKING, _ALIVE = Activity(ping=False), Activity(ping=True)


class TurnAccumulator:
    """Fed with each event of one stream, in order, it answers with what that event shows.

    A call whose id is missing, unusable or one of those `taken` by earlier calls gets one of ours: some providers count
    theirs anew in each answer, and no API takes a conversation that has one twice.
    """

    def __init__(self, *, model: str, taken: Iterable[str] = ()) -> None:
        self._model = model
        self._taken = set(taken)
        self.started = False
        self._blocks: dict[int, StreamedBlock] = {}
        self._usage: dict[str, int] = dict.fromkeys(_COUNTS, 0)
        self._stop_reason: str | None = None

    def feed(self, event: ServerSentEvent) -> ModelEvent:
        """`message_stop` gives the turn; after it the stream must be read no further.

        Raises:
            ProviderError: the event is an error, is malformed, or ends a turn that has no stop reason.
        """
        payload = read_payload(event)
        shown: ModelEvent = _WORKING
        match payload.get("type") or event.name.decode(errors="replace"):
            case "content_block_delta":
                block = self._block(payload)
                shown = _shown(block, block.add(read_field(payload, "delta", dict)))
            case "ping":
                shown = _ALIVE
            case "message_start":
                shown = self._start(read_field(payload, "message", dict))
            case "content_block_start":
                shown = self._start_block(event)
            case "content_block_stop":
                block = self._block(payload)
                shown = _shown(block, block.finish())
            case "message_delta":
                shown = self._end(payload)
            case "message_stop":
                shown = self._turn()
            case "error":
                raise self._failure(payload)
        return shown

    def _block(self, payload: dict[str, Any]) -> StreamedBlock:
        block = self._blocks.get(read_field(payload, "index", int))
        if block is None:
            raise malformed("an event of a block that did not start")
        return block

    def _start(self, message: dict[str, Any]) -> ModelEvent:
        self.started = True
        if isinstance(model := message.get("model"), str) and model:
            self._model = clean_text(model)
        return self._count(message.get("usage"))

    def _start_block(self, event: ServerSentEvent) -> ModelEvent:
        # Read exactly: what a server tool found, or a compatible provider's whole input, comes with a block's start.
        payload = read_exactly(event)
        if not isinstance(payload, dict):
            raise malformed("a block that is nested too deep")
        index = read_field(payload, "index", int)
        if not self.started or index in self._blocks:
            raise malformed("a block starts twice, or before its message")
        block = self._blocks[index] = StreamedBlock(read_field(payload, "content_block", dict))
        if block.is_tool_use:
            block.content["id"] = self._own_id(block.content.get("id"))
        return _shown(block, block.first_text)

    def _own_id(self, given: Any) -> str:
        is_good = isinstance(given, str) and CALL_ID.fullmatch(given) is not None and given not in self._taken
        call_id: str = given if is_good else f"toolu_{secrets.token_hex(12)}"
        self._taken.add(call_id)
        return call_id

    def _end(self, payload: dict[str, Any]) -> ModelEvent:
        delta = read_field(payload, "delta", dict)
        if isinstance(reason := delta.get("stop_reason"), str) and reason:
            self._stop_reason = clean_text(reason)
        shown: ModelEvent = self._count(payload.get("usage"))
        if self._stop_reason:
            # The last block, when the output limit cut it and no stop of its own came.
            for block in self._blocks.values():
                if text := block.finish():
                    shown = _shown(block, text)
        return shown

    def _count(self, usage: Any) -> UsageSoFar:
        # The counts of a message_delta are cumulative; those it does not repeat are null, absent or, from some
        # providers, 0.
        if isinstance(usage, dict):
            for name in _COUNTS:
                count = usage.get(name)
                if type(count) is int and 0 < count <= _COUNT_MAX:
                    self._usage[name] = count
        return UsageSoFar(Usage.from_dict(self._usage), self._model)

    def _failure(self, payload: dict[str, Any]) -> ProviderError:
        error = payload.get("error")
        told = error if isinstance(error, dict) else {}
        error_type, said = (str(told[key]) if told.get(key) else None for key in ("type", "message"))
        return api_failure(status=HTTPStatus.OK, error_type=error_type, said=said, model=self._model)

    def _turn(self) -> Turn:
        if self._stop_reason is None:
            raise malformed("a message stops without a stop reason")
        if not all(block.is_finished for block in self._blocks.values()):
            raise malformed("a block begins after the stop reason and does not end")
        return Turn(
            content=[block.content for block in self._blocks.values()],
            stop_reason=self._stop_reason,
            usage=Usage.from_dict(self._usage),
            model=self._model,
            broken_inputs=self._broken_inputs(self._stop_reason),
        )

    def _broken_inputs(self, stop_reason: str) -> dict[str, str]:
        broken = {}
        last = len(self._blocks) - 1
        for position, block in enumerate(self._blocks.values()):
            # A limit cuts the last block only. One that got no input at all may be whole or cut: it must not run.
            cut_by = stop_reason if position == last and stop_reason in CUT_REASONS else None
            if block.is_tool_use and (block.input_fault or (cut_by and block.input_missing)):
                broken[block.content["id"]] = broken_input_message(fault=block.input_fault, cut_by=cut_by)
        return broken


def _shown(block: StreamedBlock, text: str) -> ModelEvent:
    if not text:
        return _WORKING
    match block.kind:
        case "text":
            return TextDelta(text)
        case "thinking":
            return ThinkingDelta(text)
        case _:
            return _WORKING
