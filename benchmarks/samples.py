"""The median and percentiles of many measurements."""

import statistics
from collections.abc import Sequence


def percentile(samples: Sequence[float], percent: float) -> float:
    """The nearest-rank percentile: about `percent` of the samples are lower."""
    ranked = sorted(samples)
    return ranked[min(len(ranked) - 1, int(len(ranked) * percent / 100))]


def median(samples: Sequence[float]) -> float:
    return statistics.median(samples)
