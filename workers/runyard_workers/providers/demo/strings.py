"""Strings for a tool's parameters, found by what the parameter's name and description say it is."""

import re
from collections.abc import Callable

from runyard_workers.providers.demo.clues import Clues
from runyard_workers.providers.demo.schemas import CannotFill, Schema
from runyard_workers.providers.demo.words import stem, telling, words

_ROLES: tuple[tuple[str, Callable[[Clues], str | None]], ...] = (
    ("expression formula equation calculation expr math", lambda clues: clues.expression),
    ("email mail", lambda clues: clues.formatted("email")),
    ("url uri link website", lambda clues: clues.formatted("uri")),
    ("uuid guid", lambda clues: clues.formatted("uuid")),
    ("date day deadline when", lambda clues: clues.formatted("date-time") or clues.formatted("date")),
    ("time hour", lambda clues: clues.formatted("time")),
    ("from source src origin base departure", lambda clues: clues.route[0]),
    ("to target dest destination into arrival goal", lambda clues: clues.route[1]),
    ("unit currency measure", lambda clues: clues.conversion[1] or clues.route[0] or clues.route[1]),
    ("language lang locale", lambda clues: clues.route[1] or clues.name),
    ("city location place country town address region area station airport", lambda clues: clues.place),
    ("path file filename folder directory", lambda clues: clues.path),
    ("id order code sku ticket reference ref key number account invoice", lambda clues: clues.code),
    ("name person user username customer author recipient contact", lambda clues: clues.name),
)
"""Words of a name -> what fits, if the text has it. The first role with a word of the name is the name's."""

_UNMISTAKABLE = telling("expression formula equation calculation expr email url uri uuid unit currency")
"""Words of names whose values look like nothing else, so that a value in the text speaks for the tool."""

_FREE_TEXT = telling(
    "query question q search topic keyword term phrase text message content body prompt subject request task goal "
    "instruction note comment input title"
)
"""Words of the names of parameters that take what the person said."""

_FORMAT_EXAMPLES = {
    "date": "2026-01-15",
    "date-time": "2026-01-15T09:00:00Z",
    "time": "09:00:00",
    "duration": "PT1H",
    "uuid": "00000000-0000-4000-8000-000000000000",
    "email": "someone@example.com",
    "uri": "https://example.com/",
    "hostname": "example.com",
    "ipv4": "192.0.2.1",
    "ipv6": "2001:db8::1",
}
"""What stands in where the text gives nothing of that format (RFC 2606 and 5737 keep such names free)."""

_SHAPES = ("a", "A", "1", "abc", "ABC", "A1", "AB-123", "abc-123", "123", "1234", "123456", "12:00", "1.0", "#000000")
"""Tried, in order, against a pattern that nothing in the text matches."""


def clear_string(schema: Schema, name: str, clues: Clues) -> str | None:
    """What the text plainly gives for this parameter, fit for the schema."""
    kind = schema.get("format")
    found = clues.formatted(kind) if isinstance(kind, str) else None
    found = found or clues.labelled(name) or _by_role(name, schema.get("description", ""), clues)
    return _fitting(schema, [found]) if found else None


def unmistakable(name: str, clues: Clues) -> bool | None:
    """Whether the text has the value of a parameter that only one kind of value fits; None for other parameters."""
    return _by_role(name, "", clues) is not None if _stems(name) & _UNMISTAKABLE else None


def some_string(schema: Schema, clues: Clues) -> str:
    """A quotation, else the question, else whatever the schema allows.

    Raises:
        CannotFill: its pattern matches nothing at hand.
    """
    if example := _FORMAT_EXAMPLES.get(str(schema.get("format"))):
        return example
    text = clues.take_quoted() or clues.question or "demo"
    candidates = [text, *text.split(), text.upper(), text.lower(), *text.upper().split(), *_SHAPES]
    found = _fitting(schema, candidates if "pattern" in schema else [text])
    if found is None:
        raise CannotFill(f"nothing matches the pattern {schema.get('pattern')!r}")
    return found


def _by_role(name: str, description: str, clues: Clues) -> str | None:
    named = _stems(name)
    if named & _FREE_TEXT:
        return None
    # The description speaks only where the name says nothing: its words are many and some mean other things.
    for stems in (named, telling(description)):
        for role, find in _ROLES:
            if stems & _stems(role):
                return find(clues)
    return None


def _stems(text: str) -> frozenset[str]:
    # Filler too: `from` and `to` are names of parameters.
    return frozenset(map(stem, words(text)))


def _fitting(schema: Schema, candidates: list[str]) -> str | None:
    pattern = schema.get("pattern")
    for candidate in candidates:
        sized = _sized(candidate, schema)
        if not isinstance(pattern, str) or _matches(pattern, sized):
            return sized
    return None


def _sized(text: str, schema: Schema) -> str:
    shortest, longest = schema.get("minLength", 0), schema.get("maxLength")
    if len(text) < shortest:
        text = (f"{text} " * shortest)[:shortest]
    return text[:longest].rstrip() or text[:longest] if isinstance(longest, int) else text


def _matches(pattern: str, text: str) -> bool:
    # A schema's pattern is ECMA 262's; one that Python's cannot read is left to the tool's own check.
    try:
        return re.search(pattern, text) is not None
    except re.error:
        return True
