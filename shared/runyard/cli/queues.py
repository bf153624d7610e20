"""`runyard queues`: how deep the queues are, read from the database and the broker themselves; it needs no gateway."""

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field

import orjson
from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

from runyard.cli.databases import in_database
from runyard.cli.tables import age, output_console, row, table
from runyard.db.depth import read_beats
from runyard.db.engine import Database
from runyard.depth.pulse import LOOK_S, Pulse
from runyard.depth.queues import Depth, QueuedClass, QueueDepth, look
from runyard.queue.depth import BrokerDepth
from runyard.settings import QueueSettings

WATCH_S = 1.0
POLL_S = 0.25
BAR_CELLS = 12
FULL, EMPTY = "\N{FULL BLOCK}", "\N{LIGHT SHADE}"
UNKNOWN = "?"


def run(*, watch: bool, as_json: bool) -> None:
    """Print the depth; with `watch`, again and again until Ctrl-C.

    Raises:
        StartError: a setting is missing, or the database does not answer or is not this version's.
    """
    settings = QueueSettings.load()

    async def show(database: Database) -> None:
        watcher = _Watcher(database, BrokerDepth(settings.broker_url, prefix=settings.prefix))
        await watcher.settle()
        depths = watcher.depths() if watch else _once(watcher)
        if as_json:
            await _print_json(depths)
        else:
            await _print_tables(depths, live=watch)

    with contextlib.suppress(KeyboardInterrupt):
        in_database(settings.database_url, show)


@dataclass(frozen=True)
class _Watcher:
    database: Database
    broker: BrokerDepth
    pulse: Pulse = field(default_factory=Pulse)

    async def settle(self) -> None:
        """Read the beats until it is certain which workers live. A single read does not show that."""
        told, waited_s = False, 0.0
        while True:
            self.pulse.see(await self.database.read(read_beats))
            if self.pulse.is_certain():
                return
            if waited_s > LOOK_S and not told and sys.stderr.isatty():
                print("queues: looking which workers live", file=sys.stderr, flush=True)
                told = True
            await asyncio.sleep(POLL_S)
            waited_s += POLL_S

    async def depth(self) -> Depth:
        self.pulse.see(await self.database.read(read_beats))
        return await look(self.database, self.broker, lives=self.pulse.lives)

    async def depths(self) -> AsyncIterator[Depth]:
        while True:
            yield await self.depth()
            await asyncio.sleep(WATCH_S)


async def _once(watcher: _Watcher) -> AsyncIterator[Depth]:
    yield await watcher.depth()


async def _print_json(depths: AsyncIterator[Depth]) -> None:
    """One line a look, as `GET /v1/queues` answers, of all tenants."""
    async for depth in depths:
        print(orjson.dumps(depth.to_dict(depth.of_all())).decode(), flush=True)


async def _print_tables(depths: AsyncIterator[Depth], *, live: bool) -> None:
    console = output_console()
    if not (live and console.is_terminal):
        async for depth in depths:
            console.print(drawn(depth))
        return
    with Live(console=console, auto_refresh=False) as screen:
        async for depth in depths:
            screen.update(drawn(depth), refresh=True)


def drawn(depth: Depth) -> RenderableType:
    """A table with a line for each queue, and below it what needs somebody's attention."""
    queues = depth.of_all()
    counts = ("READY", "DELAYED", "DEAD", "QUEUED", "WAITING", "OLDEST")
    drawn_queues = table(("QUEUE", *counts, "RUNNING / SLOTS", "WORKERS"), right=counts)
    for queue in queues:
        row(drawn_queues, *_cells(queue))
    return Group(drawn_queues, *(Text(note, style="yellow") for note in _notes(depth, queues)))


def _cells(queue: QueueDepth) -> tuple[str, ...]:
    messages = queue.messages
    counts = (UNKNOWN,) * 3 if messages is None else (str(messages.ready), str(messages.delayed), str(messages.dead))
    leaving = f" ({queue.workers.draining} leaving)" if queue.workers.draining else ""
    return (
        queue.queue,
        *counts,
        _by_class(queue, lambda each: str(each.queued)),
        str(queue.waiting),
        _by_class(queue, lambda each: "" if each.oldest_ms is None else age(each.oldest_ms)),
        f"{bar(queue.running, queue.workers.slots)} {queue.running} / {queue.workers.slots}",
        f"{queue.workers.living}{leaving}",
    )


def _by_class(queue: QueueDepth, shown: Callable[[QueuedClass], str]) -> str:
    """`3`, or `3, background 9` if there are background runs; the class that goes first is not named."""
    first, *others = queue.priorities
    told = [shown(first) or "none", *(f"{each.priority} {shown(each)}" for each in others if each.queued)]
    return ", ".join(told) if len(told) > 1 else shown(first)


def bar(part: int, whole: int) -> str:
    """A bar for how much is taken. One slot is already visible, and only a full bar looks full."""
    cells = BAR_CELLS if part >= whole else min(BAR_CELLS - 1, -(-part * BAR_CELLS // whole))
    if not part:
        cells = 0
    return FULL * cells + EMPTY * (BAR_CELLS - cells)


def _notes(depth: Depth, queues: Sequence[QueueDepth]) -> list[str]:
    unserved = [
        f"{queue.queue}: {item.queued} queued for {item.agent}, which no living worker of this queue has"
        for queue in queues
        for item in queue.unserved
    ]
    return [*([] if depth.broker_error is None else [f"{depth.broker_error}: its messages are unknown"]), *unserved]
