"""How long a step waits before it asks a model again, and when it gives up."""

import pytest

from runyard.errors import ModelNotConfigured, ProviderError, ProviderUnavailable
from runyard_workers.retries import RetryPolicy

OVERLOADED = ProviderUnavailable("overloaded")
POLICY = RetryPolicy()


def waits(error: ProviderError, policy: RetryPolicy = POLICY) -> list[float]:
    """Every wait until the policy gives up."""
    found: list[float] = []
    while (wait_s := policy.wait_s(error, attempt=len(found) + 1, waited_s=sum(found))) is not None:
        found.append(wait_s)
    return found


def test_waits_double_with_jitter_and_attempts_are_bounded() -> None:
    for _ in range(50):
        first, second, third = waits(OVERLOADED)
        assert 0.25 <= first <= 0.5 <= second <= 1 <= third <= 2


def test_waits_stop_growing() -> None:
    found = waits(OVERLOADED, RetryPolicy(attempts=12))
    assert len(found) == 11
    assert max(found) <= 8


def test_the_wait_that_a_provider_asks_for_is_kept() -> None:
    found = waits(ProviderUnavailable("slow down", retry_after_s=20.0))
    assert len(found) == 3
    assert all(20.25 <= wait_s <= 22 for wait_s in found)


@pytest.mark.parametrize(("asked_s", "times"), [(50.0, 2), (119.0, 1), (120.0, 0)])
def test_the_sum_of_waits_is_bounded(asked_s: float, times: int) -> None:
    assert len(waits(ProviderUnavailable("slow down", retry_after_s=asked_s))) == times


@pytest.mark.parametrize("error", [ProviderError("refused"), ModelNotConfigured("no key")])
def test_what_would_fail_again_is_not_tried_again(error: ProviderError) -> None:
    assert waits(error) == []
