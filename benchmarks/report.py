"""The tables: each figure beside its floor of the same run, and beside its target."""

import dataclasses
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

WIDTH = 132


@dataclass(frozen=True, kw_only=True)
class Target:
    """`limit` holds for the figure itself, or for its ratio to the floor; `at_least`: larger is better."""

    text: str
    limit: float
    of_ratio: bool = False
    at_least: bool = False

    def is_met(self, value: float, ratio: float | None) -> bool:
        measured = ratio if self.of_ratio else value
        assert measured is not None, "a target for a ratio needs a floor"
        return measured >= self.limit if self.at_least else measured <= self.limit


@dataclass(frozen=True, kw_only=True)
class Floor:
    """What the same work costs without the system, measured in the same run."""

    what: str
    value: float


@dataclass(frozen=True, kw_only=True)
class Figure:
    name: str
    value: float
    unit: str
    floor: Floor | None = None
    targets: tuple[Target, ...] = ()
    note: str = ""

    @property
    def ratio(self) -> float | None:
        return None if self.floor is None else self.value / self.floor.value

    @property
    def missed(self) -> bool:
        return any(not target.is_met(self.value, self.ratio) for target in self.targets)


@dataclass(frozen=True, kw_only=True)
class Section:
    name: str
    title: str
    figures: Sequence[Figure]


def print_table(section: Section) -> None:
    table = Table(title=section.title, title_justify="left", title_style="bold", width=WIDTH)
    table.add_column("figure", ratio=4)
    table.add_column("measured", justify="right", ratio=2)
    table.add_column("floor of the same run", ratio=4)
    table.add_column("ratio", justify="right", ratio=1)
    table.add_column("target", ratio=4)
    for figure in section.figures:
        table.add_row(
            figure.name + (f"\n({figure.note})" if figure.note else ""),
            f"{_number(figure.value)} {figure.unit}",
            f"{_number(figure.floor.value)} {figure.unit}: {figure.floor.what}" if figure.floor else "",
            f"{figure.ratio:.2f}" if figure.ratio is not None else "",
            "\n".join(_judged(figure, target) for target in figure.targets),
        )
    Console(width=None if sys.stdout.isatty() else WIDTH).print(table)


def as_json(sections: Sequence[Section]) -> str:
    """`[{"name", "title", "figures": [{"name", "value", "unit", "floor", "ratio", "targets", "missed"}]}]`"""
    return json.dumps(
        [
            {
                "name": section.name,
                "title": section.title,
                "figures": [
                    dataclasses.asdict(figure) | {"ratio": figure.ratio, "missed": figure.missed}
                    for figure in section.figures
                ],
            }
            for section in sections
        ],
        indent=2,
    )


def _judged(figure: Figure, target: Target) -> str:
    return f"{'holds' if target.is_met(figure.value, figure.ratio) else 'MISSED'}: {target.text}"


def _number(value: float) -> str:
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}" if value < 100 else f"{value:.0f}"
