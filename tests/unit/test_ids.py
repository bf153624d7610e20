import re
import time
from collections.abc import Callable

import pytest

from runyard import ids

ORDERED = {
    "run": ids.new_run_id,
    "inv": ids.new_invocation_id,
    "in": ids.new_input_id,
    "wk": ids.new_worker_id,
}
RANDOM = {"req": (ids.new_request_id, 24), "st": (ids.new_stream_id, 40)}


@pytest.mark.parametrize(("prefix", "new"), ORDERED.items(), ids=ORDERED)
def test_rows_are_named_in_the_order_of_their_time(
    prefix: str, new: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """New rows land at the end of the index: 48 bits of milliseconds come before the random ones."""
    moments_ms = [0, 1, 1_764_460_800_000, 1_764_460_800_001, 2**48 - 1]
    made = []
    for moment_ms in moments_ms:
        monkeypatch.setattr(time, "time_ns", lambda moment_ms=moment_ms: moment_ms * 1_000_000)
        made.append(new())
    assert made == sorted(made)
    for moment_ms, made_id in zip(moments_ms, made, strict=True):
        found = re.fullmatch(rf"{prefix}_([0-9a-f]{{12}})[0-9a-f]{{20}}", made_id)
        assert found is not None
        assert int(found[1], 16) == moment_ms


@pytest.mark.parametrize(("prefix", "new"), RANDOM.items(), ids=RANDOM)
def test_what_guards_something_tells_nothing(
    prefix: str, new: tuple[Callable[[], str], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    make, digits = new
    monkeypatch.setattr(time, "time_ns", lambda: 0)
    first, second = make(), make()
    for made_id in (first, second):
        assert re.fullmatch(rf"{prefix}_[0-9a-f]{{{digits}}}", made_id)
    beginning = len(prefix) + 9
    assert first[:beginning] != second[:beginning]


def test_ids_of_one_moment_differ() -> None:
    makers = [*ORDERED.values(), ids.new_request_id, ids.new_stream_id]
    made = [make() for make in makers for _ in range(1_000)]
    assert len(set(made)) == len(made)
