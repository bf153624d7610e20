"""How long the client waits, and when it gives up."""

import pytest
from tests.fakes.scripted_gateway import PatientClock

from runyard.client.patience import FIRST_S, LONGEST_S, Patience

pytestmark = pytest.mark.anyio

FAILURE = ConnectionError("away")


async def test_waits_grow_and_are_spread() -> None:
    drawn = []
    for _ in range(50):
        clock = PatientClock()
        patience = Patience(3600, now=clock.now, sleep=clock.sleep)
        for _ in range(10):
            await patience.wait(FAILURE)
        drawn.append(clock.slept_s)
    for tries in drawn:
        for number, slept_s in enumerate(tries):
            own_s = min(FIRST_S * 2**number, LONGEST_S)
            assert own_s / 2 <= slept_s <= own_s
    assert len({tries[0] for tries in drawn}) == len(drawn)


async def test_what_a_server_asks_for_is_never_cut_short() -> None:
    for _ in range(50):
        clock = PatientClock()
        await Patience(3600, now=clock.now, sleep=clock.sleep).wait(FAILURE, at_least_s=7)
        assert 7 <= clock.slept_s[0] <= 8.75


async def test_it_ends_when_nothing_gets_through() -> None:
    clock = PatientClock()
    patience = Patience(30, now=clock.now, sleep=clock.sleep)
    raised = None
    while raised is None:
        try:
            await patience.wait(FAILURE)
        except ConnectionError as error:
            raised = error
    assert raised is FAILURE
    assert 15 < clock.at_s <= 30


async def test_it_does_not_wait_for_what_comes_too_late() -> None:
    clock = PatientClock()
    with pytest.raises(ConnectionError):
        await Patience(30, now=clock.now, sleep=clock.sleep).wait(FAILURE, at_least_s=31)
    assert clock.slept_s == []


async def test_what_gets_through_begins_it_anew() -> None:
    clock = PatientClock()
    patience = Patience(1, now=clock.now, sleep=clock.sleep)
    for _ in range(20):
        await patience.wait(FAILURE)
        patience.eased()
    assert max(clock.slept_s) <= FIRST_S


async def test_without_patience_the_first_failure_is_the_last() -> None:
    clock = PatientClock()
    with pytest.raises(ConnectionError):
        await Patience(0, now=clock.now, sleep=clock.sleep).wait(FAILURE)
