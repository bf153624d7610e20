"""Checks of the limits that authors write into `agent(...)` and `@tool(...)`."""

import math
from typing import Any

from runyard.authoring.errors import AuthoringError


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
