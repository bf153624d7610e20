"""Who is over their share of a full worker, and makes way."""

from collections.abc import Mapping

import pytest

from runyard_workers.shares import over_share

Tenants = Mapping[str, int]


@pytest.mark.parametrize(
    ("slots", "held", "elsewhere", "waiting", "over"),
    [
        (4, {"a": 4}, {}, {"a": 4}, set()),  # nobody else waits
        (4, {"a": 4}, {}, {}, set()),
        (4, {"a": 4}, {}, {"b": 0}, {"a"}),
        (4, {"a": 3, "b": 1}, {}, {"a": 3, "b": 1}, {"a"}),
        (4, {"a": 2, "b": 2}, {}, {"a": 2, "b": 2}, set()),
        (3, {"a": 2, "b": 1}, {}, {"a": 2, "b": 1}, set()),  # the two would take turns with the third slot
        (4, {"a": 2, "b": 2}, {}, {"c": 0}, {"a", "b"}),
        (1, {"a": 1}, {}, {"b": 0}, {"a"}),  # who has nothing does take turns
        (1, {"a": 1}, {}, {"b": 1}, set()),  # they have one, on another worker
        (4, {"a": 4}, {}, {"b": 3}, set()),
        (4, {"a": 4}, {"a": 4}, {"b": 3}, {"a"}),  # over all workers it has more
        (4, {"a": 1, "b": 3}, {}, {"a": 1, "c": 0}, {"b"}),
        (8, {"a": 2, "b": 6}, {"b": 6}, {"a": 2, "c": 9}, {"b"}),
    ],
)
def test_who_is_over_their_share(
    slots: int, held: Tenants, elsewhere: Tenants, waiting: Tenants, over: set[str]
) -> None:
    running = {tenant: here + elsewhere.get(tenant, 0) for tenant, here in held.items()}
    assert over_share(slots, held, running, waiting) == over
