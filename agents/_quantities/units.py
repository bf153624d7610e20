"""Units by their names: `find` for calculations, `scale` for conversions, which know temperatures beside them."""

import difflib
from collections.abc import Iterator
from dataclasses import dataclass

from .definitions import OFFSETS, UNITS, Prefixes, Row
from .expressions import Evaluation, evaluate
from .quantity import BASES, KINDS, NUMBER, CalculationError, Quantity, dimension, kind_of, unit_text

_MISSPELT_MIN = 4
"""Letters of a name that another may be a misspelling of; shorter ones resemble everything."""

_SI_DERIVED = ("N", "Pa", "J", "W", "V", "\N{GREEK CAPITAL LETTER OMEGA}")


@dataclass(frozen=True, kw_only=True)
class Scale:
    """A measured value `v` is `v * unit + zero`; `zero` is 0 for everything but temperatures like °C."""

    unit: Quantity
    zero: float = 0.0


class Units:
    """All spellings of all units. Symbols are told apart by case (mW, MW), unless only one can be meant (KM)."""

    def __init__(self) -> None:
        self._known: dict[str, Quantity] = {base: Quantity(1, dimension(**{base: 1})) for base in BASES}
        self._scales = {
            name: Scale(unit=Quantity(size, dimension(K=1)), zero=zero)
            for names, size, zero in OFFSETS
            for name in _spellings(names)
        }
        self._folded: dict[str, set[str]] = {}  # lower case -> spellings; filled last: definitions are spelled right
        for prefixes, rows in UNITS:
            for row in rows:
                self._define(row, prefixes)
        for name in (*self._known, *self._scales):
            self._folded.setdefault(name.lower(), set()).add(name)

    def find(self, name: str) -> Quantity | None:
        """What one of a unit is; None for a name that is no unit.

        Raises:
            CalculationError: the name can mean several units, or a temperature with a zero of its own.
        """
        spelled = self._spelled(name)
        if spelled in self._scales:
            raise CalculationError(f'"{name}" has a zero of its own: calculate in K, or convert a single temperature')
        return self._known.get(spelled or "")

    def scale(self, text: str) -> Scale:
        """The scale of a unit or a combination of units: `°F`, `km/h`, `kg*m/s^2`.

        Raises:
            CalculationError: it cannot be read, or names what is no unit.
        """
        if scale := self._scales.get(self._spelled(text.strip()) or ""):
            return scale
        evaluation = evaluate(text, self)
        if not evaluation.units:
            raise CalculationError(f'"{text}" names no unit')
        return Scale(unit=evaluation.result)

    def convert(self, amount: float, origin: str, goal: str) -> float:
        """How many of one unit an amount of another is.

        Raises:
            CalculationError: the two measure different things; and as for `scale`.
        """
        scale = self.scale(origin)
        measured = Quantity(amount) * scale.unit + Quantity(scale.zero, scale.unit.dimension)
        return self._in_unit(measured, goal)

    def expressed(self, evaluation: Evaluation, unit: str | None) -> tuple[float, str]:
        """The number and the unit to tell: the unit asked for, else one that the expression names, else SI's.

        Raises:
            CalculationError: the unit asked for measures something else; and as for `scale`.
        """
        result = evaluation.result
        if unit:
            return self._in_unit(result, unit), unit
        for name, one in evaluation.units:
            if one.dimension == result.dimension:
                return (result / one).value, name
        derived = (name for name in _SI_DERIVED if self._known[name].dimension == result.dimension)
        return result.value, next(derived, unit_text(result.dimension))

    def _in_unit(self, measured: Quantity, goal: str) -> float:
        scale = self.scale(goal)
        inverted = tuple(-exponent for exponent in measured.dimension)
        if scale.unit.dimension == inverted != NUMBER:
            measured = Quantity(1) / measured  # mpg into L/(100 km), a period into a frequency
        if measured.dimension != scale.unit.dimension:
            one, other = kind_of(measured.dimension), kind_of(scale.unit.dimension)
            raise CalculationError(f'{one} cannot be converted into "{goal}", which is {other}')
        return ((measured - Quantity(scale.zero, scale.unit.dimension)) / scale.unit).value

    def unknown(self, name: str) -> CalculationError:
        words = [known for known in (*self._known, *self._scales) if len(known) >= _MISSPELT_MIN]
        near = difflib.get_close_matches(name.lower(), words, n=3, cutoff=0.7)
        hint = f"; did you mean {' or '.join(near)}?" if near else ""
        return CalculationError(f'there is no unit "{name}"{hint}')

    def by_kind(self) -> dict[str, list[str]]:
        """The units of each kind, `metre (m)`, without their prefixes and other spellings."""
        named = [(row.kind, row.names) for _, rows in UNITS for row in rows]
        named += [("temperature", names) for names, _, _ in OFFSETS]
        return {kind: [_listed(names) for other, names in named if other == kind] for kind in KINDS}

    def _define(self, row: Row, prefixes: Prefixes) -> None:
        one = evaluate(row.definition, self).result
        symbols, names = _split(row.names)
        for symbol in symbols:
            self._known[symbol] = one
            self._known |= {short + symbol: one * Quantity(size) for (short, _), size in prefixes.items()}
        for name in names:
            for spelling in _plurals(name):
                self._known[spelling] = one
                self._known |= {long + spelling: one * Quantity(size) for (_, long), size in prefixes.items()}

    def _spelled(self, name: str) -> str | None:
        """The spelling that is meant; None where there is none."""
        if name in self._known or name in self._scales:
            return name
        candidates = sorted(self._folded.get(name.lower(), ())) if len(name) > 1 else []
        if len({self._known.get(candidate) for candidate in candidates}) > 1:
            raise CalculationError(f'"{name}" may mean {" or ".join(candidates)}: write it as one of them')
        return candidates[0] if candidates else None


def _split(names: str) -> tuple[list[str], list[str]]:
    """`"m | metre, meter"` -> symbols, names."""
    symbols, _, words = names.partition("|")
    return symbols.split(), [word.strip() for word in words.split(",") if word.strip()]


def _spellings(names: str) -> Iterator[str]:
    symbols, words = _split(names)
    yield from symbols
    for word in words:
        yield from _plurals(word)


def _plurals(name: str) -> tuple[str, ...]:
    return (name,) if name.endswith("s") else (name, f"{name}s")


def _listed(names: str) -> str:
    symbols, words = _split(names)
    if symbols and words and symbols[0] != words[0]:
        return f"{words[0]} ({symbols[0]})"
    return (words or symbols)[0]
