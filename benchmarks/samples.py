"""What many measurements of one thing say together."""

import statistics
from collections.abc import Sequence


def percentile(samples: Sequence[float], percent: float) -> float:
    """The sample below which so many of a hundred lie (nearest rank)."""
    ranked = sorted(samples)
    return ranked[min(len(ranked) - 1, int(len(ranked) * percent / 100))]


def median(samples: Sequence[float]) -> float:
    return statistics.median(samples)
