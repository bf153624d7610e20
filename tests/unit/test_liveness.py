"""Whether the process may act: by its own beats, told from the beat's thread."""

import asyncio
import threading
import time
from collections.abc import Callable

import pytest

from runyard_workers import liveness as liveness_module
from runyard_workers.liveness import BEAT_LIMIT_S, Liveness

pytestmark = pytest.mark.anyio

GUARD_S = 30.0


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(liveness_module, "time", clock)
    return clock


def from_a_thread(work: Callable[[], None]) -> None:
    thread = threading.Thread(target=work)
    thread.start()
    thread.join(GUARD_S)


async def test_a_process_lives_for_six_seconds_after_its_last_beat(clock: Clock) -> None:
    liveness = Liveness()
    clock.now += BEAT_LIMIT_S - 0.1
    assert liveness.is_alive()
    clock.now += 0.1
    assert not liveness.is_alive()


async def test_a_beat_counts_from_when_it_was_sent(clock: Clock) -> None:
    liveness = Liveness()
    sent_at = clock.now
    clock.now += 5
    liveness.seen(sent_at + 2)
    clock.now = sent_at + 2 + BEAT_LIMIT_S
    assert not liveness.is_alive()


async def test_nobody_waits_while_the_beat_is_fresh(clock: Clock) -> None:
    await asyncio.wait_for(Liveness().wait(), timeout=GUARD_S)


async def test_the_next_beat_lets_all_go_on(clock: Clock) -> None:
    liveness = Liveness()
    clock.now += BEAT_LIMIT_S
    waiting = [asyncio.create_task(liveness.wait()) for _ in range(3)]
    await asyncio.sleep(0)
    assert not any(task.done() for task in waiting)
    from_a_thread(lambda: liveness.seen(clock.now))
    await asyncio.wait_for(asyncio.gather(*waiting), timeout=GUARD_S)


async def test_a_beat_that_was_sent_too_long_ago_lets_nobody_go_on(clock: Clock) -> None:
    liveness = Liveness()
    clock.now += BEAT_LIMIT_S
    waiting = asyncio.create_task(liveness.wait())
    await asyncio.sleep(0)
    from_a_thread(lambda: liveness.seen(clock.now - BEAT_LIMIT_S))
    for _ in range(3):
        await asyncio.sleep(0)
    assert not waiting.done()
    from_a_thread(lambda: liveness.seen(clock.now))
    await asyncio.wait_for(waiting, timeout=GUARD_S)


def test_a_beat_after_the_loops_end_is_no_error() -> None:
    async def made() -> Liveness:
        return Liveness()

    liveness = asyncio.run(made())
    liveness.seen(time.monotonic())
    assert liveness.is_alive()
