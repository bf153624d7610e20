"""Profiles for Hypothesis: the same few examples in every run of the suite, many new ones on request.

Many new ones: `.venv/bin/python -m pytest --hypothesis-profile=long tests/contract/lifecycle/test_lifecycle.py`
"""

from hypothesis import HealthCheck, settings

LONG = "long"
LONG_FACTOR = 20

settings.register_profile(LONG, print_blob=True, deadline=None)
settings.register_profile("here", deadline=None)  # on a busy machine an example may take any time
settings.load_profile("here")


def is_long() -> bool:
    return settings.get_current_profile_name() == LONG


def search(*, examples: int, steps: int = 50) -> settings:
    """Settings of a random search. `steps`: for a state machine, how many rules an example has at most.

    By default the examples are derived from the test itself, so everybody gets the same, and none are stored. The long
    profile draws new ones each time, and keeps the failing ones in `.hypothesis`.
    """
    return settings(
        max_examples=examples * (LONG_FACTOR if is_long() else 1),
        stateful_step_count=steps,
        derandomize=not is_long(),
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
    )
