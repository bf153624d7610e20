"""The judge: what the Messages API takes and what it refuses.

Written from the public reference, its documentation of tools and thinking, and the error messages that its users have
published; it knows nothing of the system under test. Stricter than the API where a looser client would be a fault of
ours: roles must alternate, a request ends with a user turn or a paused one, schemas hold only known keywords.
"""

from typing import Any

from tests.standin.ledger import Ledger
from tests.standin.rules import strict_json
from tests.standin.rules.pairing import check_calls, check_server_calls
from tests.standin.rules.refusal import InvalidTranscript
from tests.standin.rules.request import Message, read_request, read_transcript
from tests.standin.rules.sent import check_thinking, is_paused
from tests.standin.rules.settings import check_settings
from tests.standin.rules.turns import check_order, check_prefill, check_turns, merged
from tests.standin.rules.versions import LATEST

__all__ = ["LATEST", "InvalidTranscript", "validate", "validate_transcript"]

NO_PREFILL = "This model does not support assistant message prefill. The conversation must end with a user message."


def validate(
    body: Any,
    *,
    sent: Ledger | None = None,
    strict: bool = True,
    counting: bool = False,
    version: str = LATEST,
) -> None:
    """Judge the body of `POST /v1/messages` (of `/v1/messages/count_tokens` when `counting`).

    Args:
        sent: what this server sent before; without it signatures cannot be compared.
        version: the `anthropic-version` of the request.
        strict: refuse what the API would merge or let pass on older models: two messages of one role in a row, and a
            final assistant turn (prefill) that is no paused one.

    Raises:
        InvalidTranscript: with the message of the 400.
    """
    strict_json.check(body)
    request = read_request(body, counting=counting)
    check_settings(request, version)
    turns = _check_messages(request.messages, sent=sent, strict=strict, may_end_empty=not strict)
    if turns[-1].role == "assistant" and not is_paused(turns[-1], sent):
        if strict:
            raise InvalidTranscript(NO_PREFILL)
        check_prefill(turns)


def validate_transcript(messages: Any, *, sent: Ledger | None = None, strict: bool = True) -> None:
    """Judge a stored transcript, `[{"role": ..., "content": ...}, ...]`: the rules on messages, whoever speaks last.

    Raises:
        InvalidTranscript: with the message of the 400 that a request with it would get.
    """
    strict_json.check(messages)
    _check_messages(read_transcript(messages), sent=sent, strict=strict, may_end_empty=False)


def _check_messages(
    messages: list[Message], *, sent: Ledger | None, strict: bool, may_end_empty: bool
) -> list[Message]:
    if strict:
        check_order(messages)
    turns = merged(messages)
    check_turns(turns, may_end_empty=may_end_empty)
    check_calls(turns)
    check_server_calls(turns, last_is_paused=is_paused(turns[-1], sent) if turns else False)
    if sent is not None:
        check_thinking(turns, sent)
    return turns
