"""What `runyard queues` draws."""

from typing import Any

import pytest
from rich.console import Console

from runyard.cli.queues import BAR_CELLS, bar, drawn
from runyard.cli.tables import age
from runyard.db.depth import Census, Load, WorkerRow
from runyard.db.limits import NO_LIMITS
from runyard.depth.queues import Depth
from runyard.ids import WorkerId
from runyard.priorities import Priority
from runyard.queue.depth import Messages
from runyard.runs import RunStatus


@pytest.mark.parametrize(
    ("milliseconds", "said"),
    [(0, "0ms"), (999, "999ms"), (12_345, "12s"), (245_000, "4m 5s"), (11_400_000, "3h 10m"), (187_200_000, "2d 4h")],
)
def test_ages(milliseconds: int, said: str) -> None:
    assert age(milliseconds) == said


@pytest.mark.parametrize(
    ("part", "whole", "full"),
    [(0, 0, 0), (0, 32, 0), (1, 1000, 1), (16, 32, 6), (31, 32, 11), (32, 32, 12), (3, 0, 12)],
)
def test_bars(part: int, whole: int, full: int) -> None:
    assert bar(part, whole) == "\N{FULL BLOCK}" * full + "\N{LIGHT SHADE}" * (BAR_CELLS - full)


def load(**changes: Any) -> Load:
    values = {
        "queue": "bulk",
        "agent": "writer",
        "tenant_id": "acme",
        "status": RunStatus.QUEUED,
        "priority": Priority.INTERACTIVE,
        "claimable_since": changes["since"],
    }
    return Load(**values | changes)


def depth(messages: dict[str, Messages] | None, broker_error: str | None = None, more: tuple[Load, ...] = ()) -> Depth:
    census = Census(
        loads=(
            load(runs=7, since=1_000),
            load(queue="default", agent="talker", status=RunStatus.RUNNING, runs=2, since=None),
            *more,
        ),
        workers=(
            WorkerRow(id=WorkerId("a"), beat=1, slots=4, queues=("default",), agents=("talker",), draining=False),
            WorkerRow(id=WorkerId("b"), beat=1, slots=4, queues=("default",), agents=("talker",), draining=True),
        ),
        queues=(),
    )
    return Depth(census, messages, lives=lambda _: True, limits=NO_LIMITS, at=13_000, broker_error=broker_error)


def lines(drawn_depth: Depth) -> list[list[str]]:
    console = Console(width=140)
    with console.capture() as capture:
        console.print(drawn(drawn_depth))
    return [line.split() for line in capture.get().splitlines()]


def test_a_line_a_queue_and_what_needs_somebody() -> None:
    some = Messages(ready=3, delayed=0, dead=1)
    head, bulk, default, note = lines(depth({"bulk": some, "default": some}))
    assert head == [
        "QUEUE",
        "READY",
        "DELAYED",
        "DEAD",
        "QUEUED",
        "WAITING",
        "OLDEST",
        *["RUNNING", "/", "SLOTS", "WORKERS"],
    ]
    assert bulk == ["bulk", "3", "0", "1", "7", "0", "12s", bar(0, 0), "0", "/", "0", "0"]
    assert default == ["default", "3", "0", "1", "0", "0", bar(2, 4), "2", "/", "4", "2", "(1", "leaving)"]
    assert " ".join(note) == "bulk: 7 queued for writer, which no living worker of this queue has"


def test_what_is_unknown_is_no_number() -> None:
    _, bulk, default, broker, _ = lines(depth(None, "the broker does not answer"))
    assert (bulk[1:4], default[1:4]) == (["?"] * 3, ["?"] * 3)
    assert " ".join(broker) == "the broker does not answer: its messages are unknown"


def test_background_calls_are_told_apart_where_there_are_any() -> None:
    some = Messages(ready=0, delayed=0, dead=0)
    waits = load(queue="default", agent="talker", priority=Priority.BACKGROUND, runs=9, since=1_000)
    _, bulk, default, *_ = lines(depth({"bulk": some, "default": some}, more=(waits,)))
    assert bulk[4:7] == ["7", "0", "12s"]
    assert " ".join(default[4:11]) == "0, background 9 0 none, background 12s"
