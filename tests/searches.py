"""How hard a random search looks: the same few examples in every run of the suite, many new ones on request.

Many new ones: `.venv/bin/python -m pytest --hypothesis-profile=long tests/contract/lifecycle/test_lifecycle.py`
"""

from hypothesis import HealthCheck, settings

LONG = "long"
LONG_FACTOR = 20

settings.register_profile(LONG, print_blob=True, deadline=None)
settings.register_profile("here", deadline=None)  # how long an example takes tells how busy the machine is
settings.load_profile("here")


def is_long() -> bool:
    return settings.get_current_profile_name() == LONG


def search(*, examples: int, steps: int = 50) -> settings:
    """`steps`: at most so many rules an example, for a state machine.

    Examples of everyday runs are derived from the test itself, so that a failure is there for everyone; they are not
    kept. A long search draws new ones each time, and remembers what failed in `.hypothesis`.
    """
    return settings(
        max_examples=examples * (LONG_FACTOR if is_long() else 1),
        stateful_step_count=steps,
        derandomize=not is_long(),
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
    )
