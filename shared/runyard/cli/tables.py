"""Tables for people: on a terminal as wide as it is, in a pipe with whole lines."""

import unicodedata
from collections.abc import Sequence

from rich.console import Console, JustifyMethod
from rich.table import Table
from rich.text import Text

PIPED_WIDTH = 240  # columns: a program that reads lines wants whole ones


def output_console() -> Console:
    made = Console(highlight=False)
    if not made.is_terminal:
        made.width = PIPED_WIDTH
    return made


def table(columns: Sequence[str], *, right: Sequence[str] = ()) -> Table:
    """A table without a frame. `right`: the columns of numbers."""
    made = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name in columns:
        justify: JustifyMethod = "right" if name in right else "left"
        made.add_column(name, justify=justify)
    return made


def row(made: Table, *cells: object) -> None:
    """Add a row. Cells are printed as they are: in other people's words no markup counts and nothing
    moves the cursor.
    """
    made.add_row(*(Text(printable(str(cell))) for cell in cells))


def printable(text: str) -> str:
    """The text without what a terminal would obey: control characters other than line ends and tabs."""
    return "".join(
        character if character in "\n\t" or unicodedata.category(character) != "Cc" else "\N{REPLACEMENT CHARACTER}"
        for character in text
    )


def age(milliseconds: int) -> str:
    """`850ms`, `12s`, `4m 5s`, `3h 10m`, `2d 4h`."""
    seconds = milliseconds // 1_000
    if not seconds:
        return f"{milliseconds}ms"
    for whole, part, size in (("d", "h", 86_400), ("h", "m", 3_600), ("m", "s", 60)):
        if seconds >= size:
            smaller = {"h": 3_600, "m": 60, "s": 1}[part]
            return f"{seconds // size}{whole} {seconds % size // smaller}{part}"
    return f"{seconds}s"
