"""`runyard queues dead`: the messages that no worker could use, for operators of the broker."""

import contextlib
from collections.abc import Iterator, Sequence

import orjson

from runyard.cli.databases import in_database
from runyard.cli.tables import age, output_console, row, table
from runyard.clock import now_ms, to_iso
from runyard.db.depth import take_census
from runyard.db.engine import Database
from runyard.depth.queues import SEEN_WITHIN_MS, queues_of
from runyard.errors import StartError
from runyard.queue.dead import DeadLetter, DeadLetters, dead_letters
from runyard.queue.links import BrokerAwayError
from runyard.settings import QueueSettings


def print_list(queues: Sequence[str], *, as_json: bool) -> None:
    """Print the dead letters of these queues; without any, of all queues that the database knows."""
    with _letters() as (letters, settings):
        found = [letter for queue in queues or _known_queues(settings) for letter in letters.listed(queue)]
    if as_json:
        for letter in found:
            print(orjson.dumps(_fields(letter)).decode())
        return
    drawn = table(("QUEUE", "ID", "DEAD FOR", "WHAT"), right=("DEAD FOR",))
    for letter in found:
        dead_for = "?" if letter.since_ms is None else age(max(0, now_ms() - letter.since_ms))
        row(drawn, letter.queue, letter.id, dead_for, _what(letter))
    output_console().print(drawn)


def requeue(queue: str, ids: Sequence[str], *, every: bool) -> None:
    with _letters() as (letters, _):
        moved = letters.requeue(queue, _chosen(ids, every=every))
        left = len(letters.listed(queue))
    print(f"{moved} put back into {queue}, {left} left")


def drop(queue: str, ids: Sequence[str], *, every: bool) -> None:
    with _letters() as (letters, _):
        dropped = letters.drop(queue, _chosen(ids, every=every))
        left = len(letters.listed(queue))
    print(f"{dropped} dropped from {queue}, {left} left")


def _chosen(ids: Sequence[str], *, every: bool) -> frozenset[str] | None:
    if bool(ids) == every:
        raise StartError("say which: ids as `runyard queues dead list` prints them, or --all")
    return None if every else frozenset(ids)


@contextlib.contextmanager
def _letters() -> Iterator[tuple[DeadLetters, QueueSettings]]:
    settings = QueueSettings.load()
    try:
        with dead_letters(settings.broker_url, prefix=settings.prefix) as letters:
            yield letters, settings
    except BrokerAwayError as error:
        raise StartError(f"{error} (RUNYARD_BROKER_URL)") from error


def _known_queues(settings: QueueSettings) -> list[str]:
    async def look(database: Database) -> list[str]:
        return queues_of(await database.snapshot(take_census, seen_since=now_ms() - SEEN_WITHIN_MS))

    return in_database(settings.database_url, look)


def _fields(letter: DeadLetter) -> dict[str, object]:
    return {
        "queue": letter.queue,
        "id": letter.id,
        "deadSince": None if letter.since_ms is None else to_iso(letter.since_ms),
        "actor": letter.actor,
        "runId": letter.run_id,
        "sizeBytes": letter.size_bytes,
    }


def _what(letter: DeadLetter) -> str:
    if letter.actor is None:
        return f"cannot be read, {letter.size_bytes} bytes"
    return f"{letter.actor!r}{f' of {letter.run_id!r}' if letter.run_id else ''}"
