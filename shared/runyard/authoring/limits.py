"""Checks of what authors write into `agent(...)`, `@function(...)` and `@tool(...)` beside the code itself."""

import math
from typing import Any

from runyard.authoring.errors import AuthoringError
from runyard.names import PART, PART_RULE
from runyard.priorities import Priority


def positive_count(where: str, name: str, value: Any) -> int:
    """A whole number from 1 on; True is not 1."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise AuthoringError(f"{where}: {name} must be a whole number from 1 on, not {value!r}")
    return value


def positive_seconds(where: str, name: str, value: Any) -> float:
    """A finite number above 0: it is stored in the manifest, and JSON has no infinity."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value <= 0:
        raise AuthoringError(f"{where}: {name} must be a number of seconds above 0, not {value!r}")
    return value


def flag(where: str, name: str, value: Any) -> bool:
    """True or False: "no" would count as yes."""
    if not isinstance(value, bool):
        raise AuthoringError(f"{where}: {name} must be True or False, not {value!r}")
    return value


def optional_count(where: str, name: str, value: Any) -> int | None:
    """The same, or None: no limit."""
    return None if value is None else positive_count(where, name, value)


def queue_name(where: str, value: Any) -> str:
    if not isinstance(value, str) or PART.fullmatch(value) is None:
        raise AuthoringError(f"{where}: queue must be {PART_RULE}: not {value!r}")
    return value


def priority_class(where: str, value: Any) -> Priority:
    try:
        return Priority(value)
    except ValueError:
        known = " or ".join(repr(str(each)) for each in Priority)
        raise AuthoringError(f"{where}: priority must be {known}, not {value!r}") from None
