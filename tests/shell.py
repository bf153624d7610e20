"""Parses the shell blocks of our pages: the programs that they call, with arguments and variables."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass

_ASSIGNMENT = re.compile(r"([A-Z][A-Z0-9_]*)=(.*)", re.DOTALL)
_CONTINUED = re.compile(r"(?<=\|)\n\s*|\\\n\s*")
_OPERATORS = "();<>|&"


@dataclass(frozen=True, kw_only=True)
class Command:
    words: tuple[str, ...]
    """The program first; none where nothing but variables is set."""

    variables: dict[str, str]


def commands(block: str) -> Iterator[Command]:
    """Those of each line, in its pipes and `$(...)` too, in their order; without comments and redirections."""
    for line in _CONTINUED.sub(" ", block).splitlines():
        lexer = shlex.shlex(line, posix=True, punctuation_chars=_OPERATORS)
        lexer.whitespace_split = True
        words: list[str] = []
        is_file = False
        for token in [*lexer, ";"]:
            if token[0] not in _OPERATORS:
                words += [] if is_file else [token]
                is_file = False
            elif not (is_file := token[0] in "<>") and words:
                yield _command(words)
                words = []


def _command(words: list[str]) -> Command:
    variables = {}
    while words and (match := _ASSIGNMENT.fullmatch(words[0])):
        variables[match[1]] = match[2]
        words = words[1:]
    return Command(words=tuple(words), variables=variables)
