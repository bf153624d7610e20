"""Chooses the tools that fit a person's text, by the words they share."""

import re
from typing import Any, NamedTuple

from runyard_workers.providers.demo.clues import Clues
from runyard_workers.providers.demo.schemas import Schema, kind_of
from runyard_workers.providers.demo.strings import unmistakable
from runyard_workers.providers.demo.words import overlap, telling

_CLAUSE_END = re.compile(r"(?i)[.!?;]\s+|,?\s+(?:and|then|also|plus)\s+")
_CALLS_MAX = 4
_NAME_WEIGHT, _VALUE_WEIGHT, _WORD_WEIGHT = 3, 2, 1
_ACTS = telling(
    "delete remove drop destroy erase clear cancel refund pay charge transfer buy order send email post publish book "
    "deploy restart stop kill write update reset create"
)
"""A tool that nothing in the text asks for is called as a demonstration: better one that only looks."""


class Choice(NamedTuple):
    tool: dict[str, Any]
    clause: str
    """The part of the text that asks for this call."""


class _Offer(NamedTuple):
    tool: dict[str, Any]
    name: frozenset[str]
    values: frozenset[str]
    words: frozenset[str]
    required: dict[str, str]
    """Names and types of the required parameters."""


def choose_tools(tools: list[dict[str, Any]], text: str) -> list[Choice]:
    """A call for each part of the text that asks for one, in its order; one call where none does."""
    offers = [_offer(tool) for tool in tools]
    if not offers:
        return []
    asked: list[tuple[_Offer, int, int]] = []
    for start, end in _clauses(text):
        clause = Clues(text[start:end])
        best = _best(offers, clause)
        again = asked and asked[-1][0]
        if _asks_for(best, clause):
            asked.append((best, start if asked else 0, end))
        elif again and _given(again, clause) > 0:
            asked.append((again, start, end))
        elif again:
            asked[-1] = (again, asked[-1][1], end)
    if not asked:
        return [Choice(_best(offers, Clues(text)).tool, text)]
    return [Choice(offer.tool, text[start:end].strip()) for offer, start, end in asked[:_CALLS_MAX]]


def _clauses(text: str) -> list[tuple[int, int]]:
    starts = [0, *(found.end() for found in _CLAUSE_END.finditer(text))]
    ends = [*(found.start() for found in _CLAUSE_END.finditer(text)), len(text)]
    return list(zip(starts, ends, strict=True))


def _asks_for(offer: _Offer, clause: Clues) -> bool:
    """The clause names the tool, or a value that only its arguments have, and says more; or it gives all arguments."""
    named = overlap(clause.stems, offer.name | offer.values)
    if named:
        return bool(clause.stems - named or named & offer.values)
    return 0 < len(offer.required) == _given(offer, clause)


def _given(offer: _Offer, clause: Clues) -> float:
    """How many of the required arguments the clause plainly has; those that it should have and has not count less."""
    given = 0.0
    for name, kind in offer.required.items():
        if kind in ("integer", "number"):
            given += 1 if clause.numbers else -1
        elif (found := unmistakable(name, clause)) is not None:
            given += 1 if found else -0.5
    return given


def _best(offers: list[_Offer], clause: Clues) -> _Offer:
    return max(offers, key=lambda offer: (_score(offer, offers, clause), not overlap(offer.name, _ACTS)))


def _score(offer: _Offer, offers: list[_Offer], clause: Clues) -> float:
    score = 0.0
    for word in clause.stems:
        mine = _weight(offer, word)
        # A word that every tool has tells nothing about which is meant.
        score += mine / sum(_weight(other, word) > 0 for other in offers) if mine else 0
    return score + _NAME_WEIGHT * _given(offer, clause) / max(len(offer.required), 1)


def _weight(offer: _Offer, word: str) -> int:
    one = frozenset({word})
    if overlap(one, offer.name):
        return _NAME_WEIGHT
    if overlap(one, offer.values):
        return _VALUE_WEIGHT
    return _WORD_WEIGHT if overlap(one, offer.words) else 0


def _offer(tool: dict[str, Any]) -> _Offer:
    schema: Schema = tool.get("input_schema", {})
    strings = _strings(schema)
    properties = schema.get("properties", {})
    return _Offer(
        tool=tool,
        name=telling(tool["name"]),
        values=frozenset().union(*(telling(value) for value in strings["enum"])),
        words=telling(" ".join([tool.get("description") or "", *strings["words"]])),
        required={name: _kind(properties.get(name)) for name in schema.get("required", [])},
    )


def _kind(schema: Any) -> str:
    return kind_of(schema) if isinstance(schema, dict) else "any"


def _strings(schema: Any) -> dict[str, list[str]]:
    """The texts of a schema and of those inside it: values of enums, names and descriptions of properties."""
    found: dict[str, list[str]] = {"enum": [], "words": []}
    waiting = [schema]
    while waiting:
        part = waiting.pop()
        if isinstance(part, list):
            waiting += part
        elif isinstance(part, dict):
            found["enum"] += [value for value in part.get("enum", []) if isinstance(value, str)]
            found["words"] += [part["description"]] if isinstance(part.get("description"), str) else []
            if isinstance(properties := part.get("properties"), dict):
                found["words"] += properties
            waiting += part.values()
    return found
