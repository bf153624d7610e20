"""Numbers within the bounds of a JSON Schema."""

import math
from decimal import Decimal

from runyard_workers.providers.demo.schemas import CannotFill, Schema, kind_of


def allowed(value: float, schema: Schema) -> bool:
    step = schema.get("multipleOf")
    return (
        (kind_of(schema) != "integer" or float(value).is_integer())
        and value >= schema.get("minimum", -math.inf)
        and value <= schema.get("maximum", math.inf)
        and value > schema.get("exclusiveMinimum", -math.inf)
        and value < schema.get("exclusiveMaximum", math.inf)
        and (not step or Decimal(str(value)) % Decimal(str(step)) == 0)
    )


def as_kind(value: float, schema: Schema) -> int | float:
    """`5.0` is the integer `5` where an integer is asked for."""
    return int(value) if kind_of(schema) == "integer" else value


def some_number(schema: Schema) -> int | float:
    """1 where it is allowed, else a number close to a bound.

    Raises:
        CannotFill: none of those is allowed.
    """
    step = schema.get("multipleOf", 1)
    bounds = [schema[key] for key in ("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum") if key in schema]
    near = [bound + part for bound in bounds for part in (0, step, -step, 0.5 * step, -0.5 * step)]
    steps = [math.ceil(bound / step) * step for bound in bounds]
    middle = sum(bounds) / 2
    for value in (1, 0, step, *near, *steps, middle):
        if allowed(value, schema):
            return as_kind(value, schema)
    raise CannotFill("no number at hand is within the bounds")
