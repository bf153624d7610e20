"""What a person's text gives for the arguments of a tool: numbers, quotations, dates, places, units, in order."""

import re
from functools import cached_property
from typing import NamedTuple

from runyard_workers.providers.demo.words import FILLER, overlap, stem, telling, words

_QUOTED = re.compile(r"\"([^\"]+)\"|“([^”]+)”|`([^`]+)`|(?<!\w)'([^']+)'(?!\w)")
_FORMATS = {
    "date-time": re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}(?::\d{2}(?:\.\d+)?)?(?:Z|[+-]\d{2}:\d{2})?"),
    "date": re.compile(r"(?<![\w-])\d{4}-\d{2}-\d{2}(?![\w-])"),
    "time": re.compile(r"(?<![\w:])\d{1,2}:\d{2}(?::\d{2})?(?![\w:])"),
    "uuid": re.compile(r"(?i)(?<!\w)[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}(?!\w)"),
    "email": re.compile(r"[\w.+-]+@[\w-]+\.[\w.-]*\w"),
    "uri": re.compile(r"https?://[^\s<>\"')]*[^\s<>\"').,;:!?]"),
}
_NUMBER = re.compile(r"(?<![\w./:-])[-+]?(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.\d+)?(?![\d/:]|-\d)")
_WRITTEN = {
    "zero": 0,
    "two": 2,
    "three": 3,
    "four": 4,
    "five": 5,
    "six": 6,
    "seven": 7,
    "eight": 8,
    "nine": 9,
    "ten": 10,
}
_WRITTEN_NUMBER = re.compile(rf"(?i)\b(?:{'|'.join(_WRITTEN)})\b")
_NEAR_WORDS = 2

_NO_TERM = r"(?!(?:times|plus|minus|multiplied|divided|percent|of|and|or|in|to|into|as|is|are|the|a|an)\b)"
_TERM = (
    rf"(?:degrees?\s+|°)?{_NO_TERM}"
    r"((?:(?:square|cubic)\s+)?[^\W\d_][\w/²³-]*(?:\s+per\s+\w+)?(?:\s+[A-Z][\w-]*)*)"
)
_AMOUNT_TERM = rf"\d\s*{_TERM}"
_AMOUNT = re.compile(_AMOUNT_TERM)
_ROUTES = (
    re.compile(rf"\b(?i:from)\s+{_TERM}\s+(?:to|into|in)\s+{_TERM}"),
    re.compile(rf"{_AMOUNT_TERM},?\s+(?:to|into|in|as)\s+{_TERM}"),
)
_ROUTE_BACK = re.compile(rf"\b(?i:how\s+(?:many|much))\s+{_TERM}.*?{_AMOUNT_TERM}")
_GOAL = re.compile(rf"\b(?:to|into)\s+{_TERM}")
_PLACE = re.compile(r"\b(?:in|at|near|for|from|to|of|around)\s+([A-Z][\w'-]*(?:\s+[A-Z][\w'-]*)*)")
_PLACE_UNCAPITALISED = re.compile(
    r"\b(?:in|at|near)\s+(?!the\b|an?\b|my\b|our\b)([a-z][\w'-]+(?:\s+(?!in\b|at\b|for\b|on\b|and\b|or\b|to\b|with\b|now\b"
    r"|today\b|tomorrow\b|please\b)[a-z][\w'-]+)?)"
)
_NAME = re.compile(r"(?<!^)(?<![.!?]\s)\b([A-Z][\w'-]*(?:\s+[A-Z][\w'-]*)*)")
_CODE = re.compile(r"#?\b(?=[\w-]*\d)[A-Za-z\d][\w-]*\b")
_PATH = re.compile(r"(?<!\w)(?:[\w.~-]*/[\w./-]+|[\w-]+\.[a-z]{1,5})\b")
_OPERATORS = (
    (re.compile(r"(?i)\b(?:multiplied by|times)\b|×"), "*"),  # noqa: RUF001 people write it
    (re.compile(r"(?i)\bdivided by\b|÷"), "/"),
    (re.compile(r"(?i)\bplus\b"), "+"),
    (re.compile(r"(?i)\bminus\b"), "-"),
    (re.compile(r"(?i)(?<=\d)\s*(?:%|percent)\s+of\b"), "/100 *"),
)
_EXPRESSION = re.compile(r"[-(]*\d[\d.]*(?:\s*[-+*/^%()]+\s*[\d.]*)+")
_EXPRESSION_WITH_UNITS = re.compile(r"\d[\d.]*\s*[^\W\d_]*(?:\s*[-+*/]\s*\d[\d.]*\s*[^\W\d_]*)+")
_LIST = re.compile(r"[\w-]+(?:, [\w-]+)*,? (?:and|or) [\w-]+")
_COURTESY = re.compile(
    r"(?i)^(?:(?:please|hi|hello|hey|ok|okay|(?:can|could|would|will) you|i (?:want|need|would like)(?: you)? to"
    r"|tell me|show me|help me|let me know|search(?: (?:in |through )?(?:the |my |our )?\w+)? for|search|look up"
    r"|look for|find out|find me|find)\b[\s,:!]*)+"
)
_COURTESY_AFTER = re.compile(r"(?i)[\s,]*\b(?:please|thanks|thank you)\b[\s.!]*$")


class Number(NamedTuple):
    value: int | float
    near: frozenset[str]
    """Stems of the two words before and the two after."""


class Clues:
    """Numbers and quotations are taken in order, each once; the rest may be read by any number of parameters."""

    def __init__(self, text: str) -> None:
        self.text = text.strip()
        self._quoted = [next(filter(None, found)) for found in _QUOTED.findall(self.text)]
        self._numbers = _numbers(self.text)

    @cached_property
    def stems(self) -> frozenset[str]:
        return telling(self.text)

    @property
    def numbers(self) -> tuple[Number, ...]:
        """Those not taken yet."""
        return tuple(self._numbers)

    def take_number(self, number: Number) -> int | float:
        self._numbers.remove(number)
        return number.value

    def take_quoted(self) -> str | None:
        return self._quoted.pop(0) if self._quoted else None

    def formatted(self, kind: str) -> str | None:
        """The first part that has a JSON Schema format: `date`, `date-time`, `time`, `uuid`, `email` or `uri`."""
        pattern = _FORMATS.get(kind)
        found = pattern.search(self.text) if pattern else None
        return found.group() if found else None

    def labelled(self, name: str) -> str | None:
        """`"colour: blue"` for the name `colour`."""
        label = r"[\s_-]+".join(map(re.escape, words(name)))
        found = re.search(rf"(?i)\b{label}\s*[:=]\s*[\"'“]?([\w./@:-]*\w)", self.text) if label else None
        return found.group(1) if found else None

    def mentions(self, value: str) -> int | None:
        """Where the text speaks of a value of an enum; None where it does not."""
        wanted = telling(value) or frozenset(map(stem, words(value)))
        if wanted and overlap(wanted, frozenset(map(stem, words(self.text)))) == wanted:
            place = self.text.lower().find(value.lower())
            return place if place >= 0 else len(self.text)
        return None

    @cached_property
    def conversion(self) -> tuple[str | None, str | None]:
        """`"5 miles to km"`, `"from Rome to Oslo"`, `"how many km are 5 miles"` -> from what, to what."""
        for pattern in _ROUTES:
            if found := pattern.search(self.text):
                return found.group(1), found.group(2)
        found = _ROUTE_BACK.search(self.text)
        return (found.group(2), found.group(1)) if found else (None, None)

    @cached_property
    def route(self) -> tuple[str | None, str | None]:
        """The same, or the parts of it that there are: the unit of an amount, what comes after `to`."""
        if self.conversion[0]:
            return self.conversion
        goal = _first(self.text, _GOAL)
        return _first(self.text, _AMOUNT), goal if goal and goal.lower() not in FILLER else None

    @cached_property
    def place(self) -> str | None:
        return _first(self.text, _PLACE, _PLACE_UNCAPITALISED)

    @cached_property
    def name(self) -> str | None:
        return _first(self.text, _NAME)

    @cached_property
    def code(self) -> str | None:
        """An order number, a ticket, a key: a word with a digit in it."""
        return _first(self.text, _CODE)

    @cached_property
    def path(self) -> str | None:
        return _first(self.text, _PATH)

    @cached_property
    def expression(self) -> str | None:
        """`"12 times 7"` -> `"12 * 7"`."""
        text = self.text
        for pattern, operator in _OPERATORS:
            text = pattern.sub(operator, text)
        found = _EXPRESSION.search(text) or _EXPRESSION_WITH_UNITS.search(text)
        return found.group().strip() if found else None

    @cached_property
    def listed(self) -> list[str]:
        """`"Rust, Go and Python"` -> its items; quotations if there are any."""
        found = _LIST.search(self.text)
        return self._quoted or (re.split(r",? (?:and|or) |, ", found.group()) if found else [])

    @cached_property
    def question(self) -> str:
        """The text without its courtesies and its command to search."""
        bare = _COURTESY_AFTER.sub("", _COURTESY.sub("", self.text)).rstrip("?!. ")
        return bare if set(words(bare)) - FILLER else self.text


def _first(text: str, *patterns: re.Pattern[str]) -> str | None:
    for pattern in patterns:
        if found := pattern.search(text):
            return found.group(found.lastindex or 0)
    return None


def _numbers(text: str) -> list[Number]:
    # Digits inside quotations, dates and addresses are no numbers.
    for pattern in (_QUOTED, *_FORMATS.values()):
        text = pattern.sub(lambda found: "_" * len(found.group()), text)
    found = [(match.start(), match.end(), _value(match.group())) for match in _NUMBER.finditer(text)]
    found += [(match.start(), match.end(), _WRITTEN[match.group().lower()]) for match in _WRITTEN_NUMBER.finditer(text)]
    return [
        Number(
            value,
            frozenset(
                map(stem, [*words(text[:start])[-_NEAR_WORDS:], *words(text[end:])[:_NEAR_WORDS]]),
            ),
        )
        for start, end, value in sorted(found)
    ]


def _value(digits: str) -> int | float:
    plain = digits.replace(",", "")
    return float(plain) if "." in plain else int(plain)
