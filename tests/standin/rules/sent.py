"""What comes back must equal what was sent: thinking with its signature, and a paused turn as a whole.

https://docs.claude.com/en/docs/build-with-claude/extended-thinking: thinking blocks go back complete and unmodified;
with a tool call they must; https://docs.claude.com/en/api/handling-stop-reasons: a paused turn goes back as it is.
"""

from collections.abc import Sequence
from typing import Any

from tests.standin.ledger import Ledger, Mark, SentMessage, mark_of
from tests.standin.rules.blocks import ToolUse
from tests.standin.rules.refusal import InvalidTranscript
from tests.standin.rules.request import Message

Marks = list[tuple[int, Mark]]
"""Positions in a turn's content, and what stands there."""


def check_thinking(turns: Sequence[Message], ledger: Ledger) -> None:
    """Each turn keeps all the thinking of an answer or none; the last turn with a call keeps all of it."""
    last = max((index for index, turn in enumerate(turns) if turn.role == "assistant"), default=-1)
    for index, turn in enumerate(turns):
        if turn.role == "assistant":
            calls = any(isinstance(block, ToolUse) for block in turn.content)
            _check_turn(_marks(turn), f"messages.{index}", ledger, needs_thinking=calls and index == last)


def _marks(turn: Message) -> Marks:
    marks = ((index, mark_of(block.model_dump())) for index, block in enumerate(turn.content))
    return [(index, mark) for index, mark in marks if mark is not None]


def _check_turn(marks: Marks, path: str, ledger: Ledger, *, needs_thinking: bool) -> None:
    """A turn is a row of answers (several, when it was paused), and of calls that this server never made."""
    start = 0
    while start < len(marks):
        position, mark = marks[start]
        rest = [mark for _, mark in marks[start:]]
        senders = ledger.holding(mark)
        if not senders:
            if mark[0] != "tool_use":
                part = "signature" if mark[0] == "thinking" else "data"
                raise InvalidTranscript(f"{path}.content.{position}: Invalid `{part}` in `{mark[0]}` block")
            start += 1
        elif whole := max(_length_whole(rest, sender) for sender in senders):
            start += whole
        elif mark[0] == "tool_use" and (bare := max(_length_without_thinking(rest, sender) for sender in senders)):
            if needs_thinking and all(_has_thinking(sender) for sender in senders):
                raise InvalidTranscript(
                    f"{path}.content.{position}.type: Expected `thinking` or `redacted_thinking`, but found "
                    "`tool_use`. When `thinking` is enabled, a final `assistant` message must start with a thinking "
                    "block (preceeding the lastmost set of `tool_use` and `tool_result` blocks)."
                )
            start += bare
        else:
            raise InvalidTranscript(
                f"{path}.content.{position}: `thinking` or `redacted_thinking` blocks in the latest assistant message "
                "cannot be modified. These blocks must remain as they were in the original response."
            )


def _length_whole(rest: list[Mark], sender: SentMessage) -> int:
    sent = sender.marks
    common = _common(rest, sent)
    # Of an answer that broke off, a client may keep a beginning.
    return common if common == len(sent) or not sender.complete else 0


def _length_without_thinking(rest: list[Mark], sender: SentMessage) -> int:
    calls = [mark for mark in sender.marks if mark[0] == "tool_use"]
    common = _common(rest, calls)
    if not _has_thinking(sender):
        return max(common, 1)  # nothing to keep together: the API lets calls be left out
    return common if common == len(calls) or not sender.complete else 0


def _has_thinking(sender: SentMessage) -> bool:
    return any(mark[0] != "tool_use" for mark in sender.marks)


def _common(left: list[Mark], right: list[Mark]) -> int:
    length = 0
    for one, other in zip(left, right, strict=False):
        if one != other:
            break
        length += 1
    return length


def is_paused(turn: Message, ledger: Ledger | None) -> bool:
    """Whether `turn` is an answer that stopped with `pause_turn`, sent back unchanged to be gone on with.

    It may begin with earlier parts of the same turn. Without a ledger an open server call is taken for a pause.
    """
    if turn.role != "assistant":
        return False
    if ledger is None:
        return turn.content[-1:] != [] and turn.content[-1].type == "server_tool_use"
    back = [_plain(block.model_dump(exclude_unset=True)) for block in turn.content]
    return any(_ends_with(back, _sendable(sent)) for sent in ledger.paused())


def _ends_with(back: list[dict[str, Any]], sent: list[dict[str, Any]]) -> bool:
    return bool(sent) and back[-len(sent) :] == sent


def _sendable(message: SentMessage) -> list[dict[str, Any]]:
    # The API streams blank text blocks and refuses to take them back: a client leaves them out.
    return [_plain(block) for block in message.blocks if block["type"] != "text" or block["text"].strip()]


def _plain(block: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in block.items() if value is not None and key != "cache_control"}
