"""An agent that calculates with quantities and converts units, so that no number in its answers is a model's guess."""

from typing import Literal

from runyard import agent, tool

from ._quantities.expressions import evaluate
from ._quantities.quantity import number_text
from ._quantities.units import Units

Kind = Literal[
    "length",
    "area",
    "volume",
    "mass",
    "time",
    "speed",
    "frequency",
    "temperature",
    "angle",
    "force",
    "pressure",
    "energy",
    "power",
    "current",
    "charge",
    "voltage",
    "resistance",
    "data",
    "data rate",
    "fuel economy",
]

UNITS = Units()

# The tools are pure: run twice they do the same, so a worker may repeat a call that another one died in.


@tool(idempotent=True)
def calculate(expression: str, result_in: str | None = None) -> str:
    """Calculate an arithmetic expression, with or without units: sums, products, powers, roots, percentages.

    It may hold + - * / ^ and brackets, % for percent, pi and e, and the functions abs, ceil, cos, exp, floor, ln,
    log2, log10, max, min, mod, round, sin, sqrt and tan. A number may be followed by its unit: 3 km / 12 min.

    Args:
        expression: What to compute, for example 12 * (3 + 4), 15% of 80 or 2.5 h * 60 km/h.
        result_in: What to tell the result in, for example km/h. Left out, it is told as written, or in SI.
    """
    evaluation = evaluate(expression, UNITS)
    value, named = UNITS.expressed(evaluation, result_in)
    return f"{expression.strip()} = {number_text(value)} {named}".rstrip()


@tool(idempotent=True)
def convert(amount: float, from_unit: str, to_unit: str) -> str:
    """Convert an amount from one unit into another, for example miles into kilometres or °F into °C.

    Units are written as symbols or in words, and may be combined: km/h, miles per hour, kg*m/s^2, square metres.
    Gallons, pints, cups and tons are those of the United States; the others are called imperial.

    Args:
        amount: How much there is of the unit to convert from.
        from_unit: The unit of the amount.
        to_unit: The unit to convert to.
    """
    return f"{number_text(amount)} {from_unit} = {number_text(UNITS.convert(amount, from_unit, to_unit))} {to_unit}"


@tool(idempotent=True)
def list_units(kind: Kind | None = None) -> dict[str, list[str]]:
    """List the known units, of one kind or of all kinds. Most metric ones also take prefixes: kilo, milli and so on.

    Args:
        kind: What the units measure.
    """
    known = UNITS.by_kind()
    return {kind: known[kind]} if kind else known


converter = agent(
    system=(
        "You answer questions about quantities: how much, how far, how long, in which unit.\n"
        "Never compute in your head. Get every number of your answer from `calculate` or `convert`, and call several "
        "tools at once where one does not need the other's result. When a tool refuses an expression or a unit, read "
        "its message, correct the call and try again.\n"
        "Answer in one or two sentences. Round to a precision that fits the question and say so when you round."
    ),
    tools=[calculate, convert, list_units],
    model="claude-sonnet-5-5",
)
