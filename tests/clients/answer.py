"""What a reader of a stream has so far: the answer's text after every `rewind`."""

import json

from tests.clients.sse import Event

TERMINAL = frozenset({"result", "error"})


class AnswerText:
    """Answer text by frame, so that both halves of a `rewind` (the frame, the length) are held against each other."""

    def __init__(self) -> None:
        self._pieces: list[tuple[int, str]] = []

    @property
    def text(self) -> str:
        return "".join(piece for _, piece in self._pieces)

    def feed(self, event: Event) -> None:
        match event.type:
            case "":
                self._pieces.append((event.seq or 0, event.data))
            case "text":
                self._pieces.append((event.seq or 0, json.loads(event.data)))
            case "rewind":
                self._rewind(**json.loads(event.data))

    def _rewind(self, *, toSeq: int, length: int) -> None:  # noqa: N803 - the names on the wire
        self._pieces = [(seq, piece) for seq, piece in self._pieces if seq <= toSeq]
        assert len(self.text) == length, f"a rewind to frame {toSeq} leaves {len(self.text)} characters, not {length}"


def answer_text(events: list[Event]) -> str:
    answer = AnswerText()
    for event in events:
        answer.feed(event)
    return answer.text


def is_terminal(event: Event) -> bool:
    return event.type in TERMINAL
