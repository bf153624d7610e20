"""Rules on single turns and on their order: who speaks, that they say something, and which blocks are theirs."""

import itertools
from collections.abc import Iterator, Sequence

from tests.standin.rules.blocks import RESULT_OF_SERVER_TOOL, SearchResult, Text, ToolResult
from tests.standin.rules.refusal import InvalidTranscript
from tests.standin.rules.request import Message

ONLY_ASSISTANT = frozenset({"thinking", "redacted_thinking", "tool_use", "server_tool_use"}) | frozenset(
    RESULT_OF_SERVER_TOOL.values()
)
ONLY_USER = frozenset({"tool_result", "image", "document", "search_result"})
THINKING = frozenset({"thinking", "redacted_thinking"})


def merged(messages: Sequence[Message]) -> list[Message]:
    """Consecutive messages of one role as the one turn that the API makes of them."""
    turns: list[Message] = []
    for message in messages:
        if turns and turns[-1].role == message.role:
            turns[-1] = Message(role=message.role, content=[*turns[-1].content, *message.content])
        else:
            turns.append(message)
    return turns


def check_order(messages: Sequence[Message]) -> None:
    """Stricter than the API, which merges: our client promises to merge, so two in a row are a fault of ours."""
    for before, after in itertools.pairwise(messages):
        if before.role == after.role:
            raise InvalidTranscript(
                'messages: roles must alternate between "user" and "assistant", '
                f'but found multiple "{after.role}" roles in a row'
            )


def check_turns(turns: Sequence[Message], *, may_end_empty: bool) -> None:
    if turns and turns[0].role != "user":
        raise InvalidTranscript('messages: first message must use the "user" role')
    for index, turn in enumerate(turns):
        path = f"messages.{index}"
        final_assistant = index == len(turns) - 1 and turn.role == "assistant"
        if not turn.content and not (final_assistant and may_end_empty):
            raise InvalidTranscript(
                f"{path}: all messages must have non-empty content except for the optional final assistant message"
            )
        _check_owner(turn, path)
        for place, text in _texts(turn, path):
            if not text.text:
                raise InvalidTranscript(f"{place}: text content blocks must be non-empty")
            if not text.text.strip():
                raise InvalidTranscript(f"{place}: text content blocks must contain non-whitespace text")
        if turn.role == "assistant" and turn.content and turn.content[-1].type in THINKING:
            raise InvalidTranscript(
                f"{path}: The final block in an assistant message cannot be `{turn.content[-1].type}`."
            )


def check_prefill(turns: Sequence[Message]) -> None:
    """A final assistant turn is a beginning that the model goes on from."""
    last = turns[-1]
    if last.role != "assistant" or not last.content:
        return
    block = last.content[-1]
    if isinstance(block, Text) and block.text != block.text.rstrip():
        raise InvalidTranscript("messages: final assistant content cannot end with trailing whitespace")


def _check_owner(turn: Message, path: str) -> None:
    foreign = ONLY_ASSISTANT if turn.role == "user" else ONLY_USER
    owner = "assistant" if turn.role == "user" else "user"
    for index, block in enumerate(turn.content):
        if block.type in foreign:
            raise InvalidTranscript(f"{path}.content.{index}: `{block.type}` blocks can only be in `{owner}` messages")
    if turn.role == "user":
        for place, text in _texts(turn, path):
            # https://platform.claude.com/docs/en/api/migration-2026-10-21
            if text.citations:
                raise InvalidTranscript(f"{place}.citations: citations can only be in `assistant` messages")


def _texts(turn: Message, path: str) -> Iterator[tuple[str, Text]]:
    for index, block in enumerate(turn.content):
        place = f"{path}.content.{index}"
        match block:
            case Text():
                yield place, block
            case ToolResult() | SearchResult():
                for inner, part in enumerate(block.content):
                    if isinstance(part, Text):
                        yield f"{place}.{block.type}.content.{inner}", part
