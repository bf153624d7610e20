"""Quantities: a number and its dimension, and the arithmetic that keeps the two together."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

BASES = ("m", "kg", "s", "A", "K", "rad", "bit")
"""What a dimension counts, in this order: SI's units, without mole and candela, and the bit."""

Dimension = tuple[int, ...]
"""An exponent for each of `BASES`: speed is `(1, 0, -1, 0, 0, 0, 0)`."""

RESULT_BITS_MAX = 1023
"""Whole numbers are exact up to here (308 digits), which a float still holds; `9^9^9` must not run for minutes."""

_DIGITS = 12
"""Significant digits of a fraction: what a float computes is right that far, so `0.1 + 0.2` reads 0.3."""


class CalculationError(ValueError):
    """What was asked cannot be computed. The message says how to ask instead."""


def dimension(**exponents: int) -> Dimension:
    return tuple(exponents.get(base, 0) for base in BASES)


NUMBER = dimension()

KINDS: Mapping[str, Dimension] = MappingProxyType(
    {
        "length": dimension(m=1),
        "area": dimension(m=2),
        "volume": dimension(m=3),
        "mass": dimension(kg=1),
        "time": dimension(s=1),
        "speed": dimension(m=1, s=-1),
        "frequency": dimension(s=-1),
        "temperature": dimension(K=1),
        "angle": dimension(rad=1),
        "force": dimension(kg=1, m=1, s=-2),
        "pressure": dimension(kg=1, m=-1, s=-2),
        "energy": dimension(kg=1, m=2, s=-2),
        "power": dimension(kg=1, m=2, s=-3),
        "current": dimension(A=1),
        "charge": dimension(A=1, s=1),
        "voltage": dimension(kg=1, m=2, s=-3, A=-1),
        "resistance": dimension(kg=1, m=2, s=-3, A=-2),
        "data": dimension(bit=1),
        "data rate": dimension(bit=1, s=-1),
        "fuel economy": dimension(m=-2),
    }
)


def kind_of(given: Dimension) -> str:
    """`speed`; for a dimension without a name its units, `kg*m`."""
    if given == NUMBER:
        return "plain number"
    return next((kind for kind, known in KINDS.items() if known == given), unit_text(given))


def unit_text(given: Dimension) -> str:
    """`kg*m/s^2`; empty for a plain number."""
    above = [_power_text(base, exponent) for base, exponent in zip(BASES, given, strict=True) if exponent > 0]
    below = [_power_text(base, -exponent) for base, exponent in zip(BASES, given, strict=True) if exponent < 0]
    return "/".join(["*".join(above) or "1", *below]) if above or below else ""


def _power_text(base: str, exponent: int) -> str:
    return base if exponent == 1 else f"{base}^{exponent}"


def number_text(value: float) -> str:
    """Whole numbers in full, others with 12 significant digits at most."""
    return str(value) if isinstance(value, int) else f"{value:.{_DIGITS}g}"


@dataclass(frozen=True)
class Quantity:
    """In the units of `BASES`. A whole number is an int, and exact, until a fraction meets it."""

    value: float
    dimension: Dimension = NUMBER

    def __add__(self, other: "Quantity") -> "Quantity":
        self.check_same(other, "added")
        return _checked(self.value + other.value, self.dimension)

    def __sub__(self, other: "Quantity") -> "Quantity":
        self.check_same(other, "subtracted")
        return _checked(self.value - other.value, self.dimension)

    def __neg__(self) -> "Quantity":
        return Quantity(-self.value, self.dimension)

    def __mul__(self, other: "Quantity") -> "Quantity":
        exponents = (one + two for one, two in zip(self.dimension, other.dimension, strict=True))
        return _checked(self.value * other.value, tuple(exponents))

    def __truediv__(self, other: "Quantity") -> "Quantity":
        if other.value == 0:
            raise CalculationError("division by zero")
        exponents = (one - two for one, two in zip(self.dimension, other.dimension, strict=True))
        return _checked(_divided(self.value, other.value), tuple(exponents))

    def __pow__(self, other: "Quantity") -> "Quantity":
        if other.dimension != NUMBER:
            raise CalculationError(f"an exponent must be a plain number, not {kind_of(other.dimension)}")
        exponents = [exponent * other.value for exponent in self.dimension]
        if any(exponent != round(exponent) for exponent in exponents):
            raise CalculationError(
                f"the power {other.value:g} of a quantity in {unit_text(self.dimension)} has no whole units"
            )
        return _checked(_raised(self.value, other.value), tuple(round(exponent) for exponent in exponents))

    def plain(self, what: str) -> float:
        """The number of a quantity without a unit; `what` begins the message where there is one."""
        if self.dimension != NUMBER:
            raise CalculationError(f"{what} takes a plain number, not {kind_of(self.dimension)}")
        return self.value

    def check_same(self, other: "Quantity", what: str) -> None:
        """Both are of one kind, or they cannot be `what` (`added`)."""
        if self.dimension != other.dimension:
            raise CalculationError(f"{kind_of(self.dimension)} and {kind_of(other.dimension)} cannot be {what}")


def _divided(dividend: float, divisor: float) -> float:
    if isinstance(dividend, int) and isinstance(divisor, int) and dividend % divisor == 0:
        return dividend // divisor
    return dividend / divisor


def _raised(base: float, exponent: float) -> float:
    if (
        isinstance(base, int)
        and isinstance(exponent, int)
        and (abs(base) - 1).bit_length() * exponent > RESULT_BITS_MAX
    ):
        raise _too_large()  # before it is computed
    try:
        raised: float | complex = base**exponent
    except ZeroDivisionError:
        raise CalculationError("zero has no negative power") from None
    except OverflowError:
        raise _too_large() from None
    if isinstance(raised, complex):
        raise CalculationError(f"the power {exponent:g} of a negative number is no real number")
    return raised


def _checked(value: float, given: Dimension) -> Quantity:
    if value.bit_length() > RESULT_BITS_MAX if isinstance(value, int) else not math.isfinite(value):
        raise _too_large()
    return Quantity(value, given)


def _too_large() -> CalculationError:
    return CalculationError("the result is too large")
