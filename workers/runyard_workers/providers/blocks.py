"""One content block while it is being streamed."""

from typing import Any

import structlog

from runyard.text import clean_json, clean_text, loses_by_cleaning, nests_too_deep
from runyard_workers.providers.failures import malformed
from runyard_workers.providers.payloads import read_field
from runyard_workers.providers.tool_input import read_tool_input

_SEALED = frozenset({"signature", "data"})
"""Fields that the provider made for itself and checks when they come back: no cleaner touches them."""

_log = structlog.get_logger()


class StreamedBlock:
    """Holds every field of the block's start, even for unknown kinds of blocks, and what the deltas add.

    Text is cleaned piece by piece, so that what is stored equals what was shown.
    """

    def __init__(self, start: dict[str, Any]) -> None:
        self.kind = read_field(start, "type", str)
        self.content: dict[str, Any] = {
            name: value if name in _SEALED else _clean(value) for name, value in start.items()
        }
        if self.is_tool_use:
            read_field(start, "name", str)
        self.input_fault: str | None = None
        """Why the input of a call could not be read."""
        self.is_finished = False
        self._text_field = "thinking" if self.kind == "thinking" else "text"
        self._text: list[str] = []
        self._half_character = ""
        self._has_lost = False
        self._signature: list[str] = []
        self._input_json: list[str] = []
        initial = start.get(self._text_field)
        self.first_text = self._add_text(initial) if isinstance(initial, str) else ""
        """Text that came with the start; it is to be shown."""
        if self.kind in {"text", "thinking"} and not isinstance(initial, str):
            self.content[self._text_field] = ""  # compatible providers leave it out, and every reader of rows needs it

    @property
    def is_tool_use(self) -> bool:
        """Whether it calls one of our tools; calls of server tools are blocks of other kinds."""
        return self.kind == "tool_use"

    @property
    def input_missing(self) -> bool:
        """No input came, neither with the start nor in deltas."""
        return not self.content.get("input") and not "".join(self._input_json).strip()

    def add(self, delta: dict[str, Any]) -> str:
        """Returns the text that can be shown now, clean."""
        if self.is_finished:
            raise malformed("a delta of a block that had ended")
        match delta.get("type"):
            case "text_delta":
                return self._add_text(read_field(delta, "text", str))
            case "thinking_delta":
                return self._add_text(read_field(delta, "thinking", str))
            case "input_json_delta":
                self._input_json.append(read_field(delta, "partial_json", str))
            case "signature_delta":
                self._signature.append(read_field(delta, "signature", str))
            case "citations_delta":
                earlier = self.content.get("citations") or []
                self.content["citations"] = [*earlier, _clean(read_field(delta, "citation", dict))]
            case unknown:
                _log.warning("block delta unknown", block=self.kind, delta=unknown)
        return ""

    def finish(self) -> str:
        """From here on `content` is whole. Returns the text that was held back, clean."""
        if self.is_finished:
            return ""
        self.is_finished = True
        held, self._half_character = self._clean_piece(self._half_character), ""
        if held:
            self._text.append(held)
        if self._text:
            self.content[self._text_field] = "".join(self._text)
        if self._signature:
            self.content["signature"] = (self.content.get("signature") or "") + "".join(self._signature)
        if self._has_lost and self.content.get("signature"):
            # Sent back with replacement characters it would be refused, in this run's next call and in all later ones.
            raise malformed("signed thinking that no store could hold")
        self._read_input()
        return held

    def _add_text(self, piece: str) -> str:
        # JSON may write a character beyond U+FFFF as two escapes, and a delta may end between them.
        piece = self._half_character + piece
        self._half_character = ""
        if "\ud800" <= piece[-1:] <= "\udbff":
            piece, self._half_character = piece[:-1], piece[-1]
        piece = self._clean_piece(piece)
        if piece:
            self._text.append(piece)
        return piece

    def _clean_piece(self, piece: str) -> str:
        if self.kind == "thinking":
            self._has_lost = self._has_lost or loses_by_cleaning(piece)
        return clean_text(piece)

    def _read_input(self) -> None:
        text = "".join(self._input_json)
        if text.strip():
            self.content["input"], self.input_fault = read_tool_input(text)
        elif self.is_tool_use and not isinstance(self.content.get("input"), dict):
            self.content["input"] = {}


def _clean(value: Any) -> Any:
    if nests_too_deep(value):
        raise malformed("a block that is nested too deep")
    return clean_json(value)
