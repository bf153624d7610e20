"""Splits the text of an expression into numbers, names and signs."""

import re
from collections.abc import Iterator
from typing import Literal, NamedTuple

from .quantity import CalculationError

# What people write or paste, as the parser knows it.
_SPELLINGS = str.maketrans(
    {
        "\N{SUPERSCRIPT TWO}": "^2",
        "\N{SUPERSCRIPT THREE}": "^3",
        "\N{MULTIPLICATION SIGN}": "*",
        "\N{MIDDLE DOT}": "*",
        "\N{DOT OPERATOR}": "*",
        "\N{DIVISION SIGN}": "/",
        "\N{MINUS SIGN}": "-",
        "\N{GREEK SMALL LETTER MU}": "\N{MICRO SIGN}",
        "\N{OHM SIGN}": "\N{GREEK CAPITAL LETTER OMEGA}",
    }
)
_TOKEN = re.compile(
    r"""\s*(?:
        (?P<number>(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?)
      | (?P<name>°?[^\W\d_]+(?:\d+(?=\s*\())?|°)(?P<power>[23](?![\d.]))?
      | (?P<sign>\*\*|[-+*/^%(),])
    )""",
    re.VERBOSE,
)


class Token(NamedTuple):
    kind: Literal["number", "name", "sign", "end"]
    text: str


_KINDS: tuple[Literal["number", "name", "sign"], ...] = ("number", "name", "sign")


def tokens_of(text: str) -> list[Token]:
    """In order; the last one is of kind `end`.

    Raises:
        CalculationError: a character that no expression has.
    """
    text = text.translate(_SPELLINGS)
    tokens: list[Token] = []
    position, end = 0, len(text.rstrip())
    while position < end:
        found = _TOKEN.match(text, position)
        if found is None:
            raise CalculationError(f'cannot read "{text[position:].strip()[:20]}"')
        tokens += _read(found)
        position = found.end()
    return [*tokens, Token("end", "")]


def _read(found: re.Match[str]) -> Iterator[Token]:
    for kind in _KINDS:
        if text := found[kind]:
            yield Token(kind, "^" if text == "**" else text)
    if power := found["power"]:  # m2 is written for m^2
        yield from (Token("sign", "^"), Token("number", power))
