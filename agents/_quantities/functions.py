"""The functions and constants of expressions."""

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType

from .quantity import CalculationError, Quantity, dimension

Function = Callable[[str, list[Quantity]], Quantity]
"""Takes its own name, for messages, and its arguments."""

CONSTANTS: Mapping[str, Quantity] = MappingProxyType(
    {"pi": Quantity(math.pi), "PI": Quantity(math.pi), "π": Quantity(math.pi), "e": Quantity(math.e)}
)

_ANGLE = dimension(rad=1)


def _of_number(compute: Callable[[float], float]) -> Function:
    def call(name: str, arguments: list[Quantity]) -> Quantity:
        return _real(name, compute, _only(name, arguments).plain(name))

    return call


def _of_angle(compute: Callable[[float], float]) -> Function:
    """A plain number counts as radians."""

    def call(name: str, arguments: list[Quantity]) -> Quantity:
        angle = _only(name, arguments)
        return _real(name, compute, angle.value if angle.dimension == _ANGLE else angle.plain(name))

    return call


def _real(name: str, compute: Callable[[float], float], value: float) -> Quantity:
    try:
        return Quantity(compute(value))
    except ValueError:
        raise CalculationError(f"{name} has no value at {value:g}") from None
    except OverflowError:
        raise CalculationError(f"{name} is too large at {value:g}") from None


def _sqrt(name: str, arguments: list[Quantity]) -> Quantity:
    return _only(name, arguments) ** Quantity(0.5)


def _abs(name: str, arguments: list[Quantity]) -> Quantity:
    given = _only(name, arguments)
    return Quantity(abs(given.value), given.dimension)


def _round(name: str, arguments: list[Quantity]) -> Quantity:
    if len(arguments) > 2:  # noqa: PLR2004 - a number and its decimal places
        raise CalculationError(f"{name} takes a number, and how many decimal places to keep")
    number, places = (*arguments, Quantity(0))[:2]
    return Quantity(round(number.plain(name), int(places.plain(name)) or None))


def _mod(name: str, arguments: list[Quantity]) -> Quantity:
    if len(arguments) != 2:  # noqa: PLR2004 - dividend and divisor
        raise CalculationError(f"{name} takes two numbers: {name}(17, 5) is 2")
    dividend, divisor = (argument.plain(name) for argument in arguments)
    if divisor == 0:
        raise CalculationError("division by zero")
    return Quantity(dividend % divisor)


def _extreme(choose: Callable[[list[Quantity]], Quantity]) -> Function:
    def call(_name: str, arguments: list[Quantity]) -> Quantity:
        for other in arguments[1:]:
            arguments[0].check_same(other, "compared")
        return choose(arguments)

    return call


def _smallest(arguments: list[Quantity]) -> Quantity:
    return min(arguments, key=lambda argument: argument.value)


def _largest(arguments: list[Quantity]) -> Quantity:
    return max(arguments, key=lambda argument: argument.value)


def _only(name: str, arguments: list[Quantity]) -> Quantity:
    if len(arguments) != 1:
        raise CalculationError(f"{name} takes one argument, not {len(arguments)}")
    return arguments[0]


FUNCTIONS: Mapping[str, Function] = MappingProxyType(
    {
        "abs": _abs,
        "ceil": _of_number(math.ceil),
        "cos": _of_angle(math.cos),
        "exp": _of_number(math.exp),
        "floor": _of_number(math.floor),
        "ln": _of_number(math.log),
        "log2": _of_number(math.log2),
        "log10": _of_number(math.log10),
        "max": _extreme(_largest),
        "min": _extreme(_smallest),
        "mod": _mod,
        "round": _round,
        "sin": _of_angle(math.sin),
        "sqrt": _sqrt,
        "tan": _of_angle(math.tan),
    }
)
