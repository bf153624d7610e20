"""Whom a watcher sees, and whom it takes for dead, by a clock that the test moves."""

from collections.abc import Collection, Iterator

import pytest
from tests.fakes.workers_table import FakeWorkersTable

from runyard.db.deaths import NEIGHBOURS
from runyard.ids import WorkerId
from runyard_workers.ring import Ring, Row, following_around

BEAT_S = 2


class Watcher:
    """A ring's owner, that looks around once a second while the others beat every 2 s."""

    def __init__(self, workers: str, *, me: str) -> None:
        self.table = FakeWorkersTable(*workers)
        self.me = WorkerId(me)
        self.ring = Ring(self.table.clock)
        self.passed = ""
        self._seconds = 0

    def looks(self) -> list[Row]:
        self.passed = ""
        return self.ring.look_around(self._around())

    def looks_for(self, seconds: int, *, dead: Collection[str] = ()) -> list[Row]:
        """So many looks, one a second; what the first of them that finds a death says."""
        for _ in range(seconds):
            self._seconds += 1
            self.table.now += 1
            if self._seconds % BEAT_S == 0:
                self.table.beat(self.table.beats.keys() - set(dead))
            if found := self.looks():
                return found
        return []

    def _around(self) -> Iterator[Row]:
        for row in following_around(self.me, self.table.following):
            self.passed += row[0]
            yield row


def test_a_beat_that_has_not_changed_for_eight_seconds_is_dead() -> None:
    watcher = Watcher("abc", me="a")
    assert watcher.looks() == []
    assert watcher.looks_for(7, dead="b") == []
    assert watcher.looks_for(1, dead="b") == [("b", 0)]


def test_a_death_is_told_with_the_beat_that_was_seen() -> None:
    watcher = Watcher("ab", me="a")
    assert watcher.looks_for(5) == []
    assert watcher.looks_for(20, dead="b") == [("b", 2)]
    assert watcher.looks() == [("b", 2)], "until somebody takes the row away"


def test_who_beats_lives() -> None:
    assert Watcher("abc", me="b").looks_for(120) == []


def test_nobody_is_judged_at_first_sight() -> None:
    watcher = Watcher("ab", me="a")
    watcher.table.now += 3600
    assert watcher.looks() == []
    assert watcher.looks_for(7, dead="b") == []


def test_a_new_row_gets_its_time() -> None:
    watcher = Watcher("acde", me="a")
    assert watcher.looks_for(30) == []
    watcher.table.beats[WorkerId("b")] = 0
    assert watcher.looks_for(8, dead="b") == [], "it is seen first at the first of these looks"
    assert watcher.looks_for(1, dead="b") == [("b", 0)]


def test_the_view_reaches_past_three_living_ones() -> None:
    watcher = Watcher("abcdefgh", me="a")
    watcher.looks()
    assert watcher.passed == "bcdefgh", "none of them is known to live"
    watcher.looks_for(3)
    assert watcher.passed == "bcd"


def test_the_view_does_not_end_behind_the_dead() -> None:
    watcher = Watcher("abcdefgh", me="a")
    watcher.looks()
    watcher.looks_for(6, dead="bd")
    assert watcher.passed == "bcdef"


def test_behind_the_last_comes_the_first() -> None:
    watcher = Watcher("abcdefgh", me="g")
    watcher.looks_for(3)
    assert watcher.passed == "hab"
    assert watcher.looks_for(20, dead="a") == [("a", 1)]


def test_nobody_watches_itself() -> None:
    watcher = Watcher("abc", me="b")
    watcher.looks()
    assert watcher.passed == "ca"
    assert Watcher("a", me="a").looks_for(20, dead="a") == []


def test_one_whose_own_row_is_gone_sees_the_others() -> None:
    watcher = Watcher("ac", me="b")
    watcher.looks()
    assert watcher.looks_for(8, dead="ac") == [("c", 0), ("a", 0)]


def test_a_look_at_a_large_fleet_is_one_reading() -> None:
    watcher = Watcher("abcdefghijklmnopqrstuvwxyz", me="c")
    watcher.looks_for(3)
    for _ in range(30):
        watcher.table.readings = 0
        watcher.looks_for(1)
        assert watcher.table.readings == 1


@pytest.mark.parametrize("count", [NEIGHBOURS - 1, NEIGHBOURS, NEIGHBOURS + 1])
def test_readings_join_without_a_seam(count: int) -> None:
    others = "bcdefghijk"[:count]
    watcher = Watcher("a" + others, me="a")
    watcher.looks()
    assert watcher.passed == others
    watcher = Watcher("z" + others, me="z")
    watcher.looks()
    assert watcher.passed == others


def test_who_was_buried_by_another_is_forgotten() -> None:
    watcher = Watcher("abc", me="a")
    watcher.looks()
    watcher.looks_for(7, dead="b")
    del watcher.table.beats[WorkerId("b")]
    assert watcher.looks_for(20) == []


@pytest.mark.parametrize("dead", ["bc", "bcd", "bcdefg", "bcdefghijkl"])
def test_any_number_that_dies_at_once_is_found_by_the_one_before_them(dead: str) -> None:
    """The view reaches them after 4 s of silence at the latest, and has watched them for 8 s after that."""
    watcher = Watcher("abcdefghijkl", me="a")
    watcher.looks_for(10)
    found = ""
    for _ in range(4 + 8 + 2):
        for worker, _ in watcher.looks_for(1, dead=dead):
            del watcher.table.beats[worker]
            found += worker
    assert found == dead


def test_a_watcher_that_was_deaf_judges_nobody_by_what_it_saw_before() -> None:
    watcher = Watcher("ab", me="a")
    watcher.looks()
    watcher.looks_for(6, dead="b")
    watcher.table.now += 4
    assert watcher.looks_for(8, dead="b") == []
    assert watcher.looks_for(1, dead="b") == [("b", 0)]


def test_a_watcher_whose_own_beat_failed_begins_anew() -> None:
    watcher = Watcher("ab", me="a")
    watcher.looks()
    watcher.looks_for(7, dead="b")
    watcher.ring.forget()
    assert watcher.looks_for(8, dead="b") == []
    assert watcher.looks_for(1, dead="b") == [("b", 0)]


def test_a_slow_answer_makes_nobody_older() -> None:
    """The change that it tells may have happened just before it; the next answer may come at once."""
    watcher = Watcher("ab", me="a")
    watcher.looks()
    watcher.table.beat("b")
    watcher.table.answer_s = 1.5  # for the rows that follow, and for the first ones
    watcher.looks()
    watcher.table.answer_s = 0
    assert watcher.looks_for(7, dead="b") == []
    assert watcher.looks_for(1, dead="b") == [("b", 1)]


def test_the_time_that_a_look_takes_itself_counts_for_the_one_it_looks_at() -> None:
    """While the question is on its way the beat may come."""
    watcher = Watcher("ab", me="a")
    watcher.looks()
    assert watcher.looks_for(7, dead="b") == []
    watcher.table.answer_s = 1.5
    watcher.table.now += 0.5
    assert watcher.looks() == []
