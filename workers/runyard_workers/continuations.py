"""Whether the loop goes on after a turn that did not stop to use tools. Only the rows decide.

So a run goes on in the same way on another worker, and the bounds hold over all of its workers.
"""

from collections.abc import Sequence
from itertools import takewhile

from runyard.blocks import tool_uses
from runyard.db.records import Message
from runyard.db.transcripts import AssistantTurn
from runyard.errors import ProviderError
from runyard.ids import InvocationId
from runyard.lifecycle.endings import own_answers
from runyard.runs import FinishReason

PAUSES_MAX = 8
"""How often in a row a provider may pause a turn. At ten calls of its server tools each, no real turn is longer."""

CUT_TURNS_MAX = 3
"""In how many turns in a row the output limit may cut calls: a model that has not learned from that will not."""


def asks_for_tools(turn: AssistantTurn, rows: Sequence[Message], invocation_id: InvocationId) -> bool:
    """Whether the calls of a new turn are to be answered, so that the loop goes on.

    If the output limit (max_tokens) ended the turn, its whole calls run, and the cut one is told why it did not.
    """
    if not tool_uses(turn.content):
        return False
    match turn.stop_reason:
        case FinishReason.TOOL_USE | FinishReason.PAUSE_TURN:
            return True
        case FinishReason.MAX_TOKENS:
            earlier = reversed(own_answers(rows, invocation_id))
            cut = list(takewhile(lambda row: row.stop_reason == FinishReason.MAX_TOKENS, earlier))
            return len(cut) + 1 < CUT_TURNS_MAX
        case _:
            return False


def is_paused(turn: AssistantTurn | Message) -> bool:
    """Whether the provider waits to get the turn back unchanged, with no user turn in between.

    https://docs.claude.com/en/api/handling-stop-reasons
    """
    return turn.stop_reason == FinishReason.PAUSE_TURN and bool(turn.content) and not tool_uses(turn.content)


def paused_parts(rows: Sequence[Message]) -> list[Message]:
    """The last rows that are parts of one turn which its provider has paused."""
    return list(takewhile(is_paused, reversed(rows)))[::-1]


def check_pauses(rows: Sequence[Message]) -> None:
    """Called before a paused turn is sent back once more.

    Raises:
        ProviderError: it was paused too often.
    """
    if len(paused_parts(rows)) >= PAUSES_MAX:
        raise ProviderError(
            f"the provider paused its turn {PAUSES_MAX} times in a row without ending it",
            status=None,
            type="pause_turn",
        )
