"""Evaluates arithmetic with units, `3 * (12.5 km/h) + 2 m/s`, by a parser of its own: no text is ever run as code.

    sum      = product (("+" | "-") product)*
    product  = signed (("*" | "/" | "of" | "per") signed)*
    signed   = ("-" | "+") signed | power
    power    = value unit? "%"* ("^" exponent)? | unit
    unit     = ("square" | "cubic")? name ("^" exponent)?
    exponent = ("-" | "+") exponent | value ("^" exponent)?
    value    = number | "(" sum ")" | constant | function "(" sum ("," sum)* ")"

A unit directly behind its number binds before every operator: `10 m / 2 s` is 5 m/s, and `3 m^2` is an area.
"""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NoReturn, Protocol

from .functions import CONSTANTS, FUNCTIONS
from .quantity import CalculationError, Quantity
from .tokens import Token, tokens_of

LENGTH_MAX = 500
DEPTH_MAX = 50
"""Nested brackets, signs and exponents: far below Python's own limit of recursion."""

UNIT_WORDS_MAX = 3  # "imperial fluid ounce"


class UnitTable(Protocol):
    def find(self, name: str) -> Quantity | None:
        """The quantity that one of a unit is; None for a name that is no unit."""

    def unknown(self, name: str) -> CalculationError:
        """What to say of a name that is no unit."""


_POWERS = {"square": 2, "sq": 2, "cubic": 3, "cu": 3}


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    result: Quantity
    units: tuple[tuple[str, Quantity], ...]
    """The units that the text names, in its order, with what one of each is."""


def evaluate(text: str, units: UnitTable) -> Evaluation:
    """Compute an expression.

    Raises:
        CalculationError: it cannot be read or computed; whatever `units.find` raises.
    """
    if len(text) > LENGTH_MAX:
        raise CalculationError(f"the expression is longer than {LENGTH_MAX} characters")
    parser = _Parser(tokens_of(text), units)
    return Evaluation(result=parser.whole(), units=tuple(parser.named))


class _Parser:
    def __init__(self, tokens: list[Token], units: UnitTable) -> None:
        self._tokens = tokens
        self._units = units
        self._position = 0
        self._depth = 0
        self.named: list[tuple[str, Quantity]] = []

    def whole(self) -> Quantity:
        result = self._sum()
        if self._next.kind != "end":
            self._fail_after_operand()
        return result

    def _sum(self) -> Quantity:
        result = self._product()
        while sign := self._take("+", "-"):
            result = result + self._product() if sign == "+" else result - self._product()
        return result

    def _product(self) -> Quantity:
        result = self._signed()
        while sign := self._take("*", "of", "/", "per"):
            result = result * self._signed() if sign in ("*", "of") else result / self._signed()
        return result

    def _signed(self) -> Quantity:
        with self._nested():
            sign = self._take("-", "+")
            result = self._signed() if sign else self._power()
        return -result if sign == "-" else result

    def _power(self) -> Quantity:
        result = self._value()
        if result is None:
            return self._unit()
        if self._next.kind == "name" and self._next.text not in ("of", "per"):
            result *= self._value() or self._unit()
        while self._take("%"):
            result /= Quantity(100)
        return self._raised(result)

    def _unit(self) -> Quantity:
        word = self._next.text
        if power := _POWERS.get(word.lower()):
            self._position += 1
            if self._next.kind != "name":
                self._fail(f'"{word}" must be followed by a unit, as in {word} metres')
            return self._unit() ** Quantity(power)
        names = self._names_ahead()
        for count in range(len(names), 0, -1):
            name = " ".join(names[:count])
            unit = self._units.find(name)
            if unit is not None:
                self._position += count
                self.named.append((name, unit))
                return self._raised(unit)
        if not names:
            self._fail(f"a number or a unit is expected{self._instead()}")
        raise self._units.unknown(names[0])

    def _raised(self, base: Quantity) -> Quantity:
        return base ** self._exponent() if self._take("^") else base

    def _exponent(self) -> Quantity:
        with self._nested():
            if sign := self._take("-", "+"):
                return -self._exponent() if sign == "-" else self._exponent()
            value = self._value()
            if value is None:
                self._fail(f"a number is expected as an exponent{self._instead()}")
            return self._raised(value)

    def _value(self) -> Quantity | None:
        """What has no unit of its own; None where something else begins."""
        token = self._next
        if self._take("("):
            result = self._sum()
            self._expect(")")
            return result
        if token.kind == "name" and self._tokens[self._position + 1].text == "(":
            return self._call()
        if token.kind == "number" or token.text in CONSTANTS:
            self._position += 1
            return CONSTANTS.get(token.text) or Quantity(_number(token.text))
        return None

    def _call(self) -> Quantity:
        name = self._next.text.lower()
        function = FUNCTIONS.get(name)
        if function is None:
            self._fail(f'there is no function "{name}"; there are {", ".join(sorted(FUNCTIONS))}')
        self._position += 2
        arguments = [self._sum()]
        while self._take(","):
            arguments.append(self._sum())
        self._expect(")")
        return function(name, arguments)

    @contextlib.contextmanager
    def _nested(self) -> Iterator[None]:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise CalculationError(f"the expression is nested deeper than {DEPTH_MAX} levels")
        yield
        self._depth -= 1

    def _names_ahead(self) -> list[str]:
        ahead = self._tokens[self._position : self._position + UNIT_WORDS_MAX]
        count = next((index for index, token in enumerate(ahead) if token.kind != "name"), len(ahead))
        return [token.text for token in ahead[:count]]

    @property
    def _next(self) -> Token:
        return self._tokens[self._position]

    def _take(self, *texts: str) -> str | None:
        """The next token, if it is one of these."""
        if self._next.text not in texts:
            return None
        self._position += 1
        return self._tokens[self._position - 1].text

    def _expect(self, text: str) -> None:
        if self._next.kind == "end":
            self._fail(f'a "{text}" is missing at the end')
        if not self._take(text):
            self._fail_after_operand()

    def _fail_after_operand(self) -> NoReturn:
        before, here = self._tokens[self._position - 1].text, self._next.text
        match here:
            case ")":
                self._fail('there is a ")" without its "("')
            case ",":
                self._fail('a "," separates the arguments of a function only: write 1000, not 1,000')
            case "to" | "in" | "into" | "as":
                self._fail(f'what follows "{here}" is not part of the expression: use `result_in` for it')
            case _ if before == "%":
                self._fail(f'"%" means percent: write "% of {here}" for a part of it, mod(a, b) for a remainder')
            case _:
                self._fail(f'an operator is missing between "{before}" and "{here}"')

    def _instead(self) -> str:
        return f', not "{self._next.text}"' if self._next.text else " at the end"

    def _fail(self, message: str) -> NoReturn:
        raise CalculationError(message)


def _number(digits: str) -> float:
    return int(digits) if digits.isdigit() else float(digits)
