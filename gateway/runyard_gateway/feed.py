"""The feed: changes to its readers' runs and transcripts, read for all readers together and handed on from memory.

One look at the database serves every reader of this gateway; it happens at a wake-up, and every few seconds without
one. Changes wait, encoded, in a window for each scope of callers. A reader that is behind its window reads for itself;
so do all of them where a look fails, so that a row which cannot be read ends the answers of its own readers only.
"""

import asyncio
import contextlib
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import merge
from itertools import groupby
from operator import attrgetter

import orjson
import structlog
from sqlalchemy.ext.asyncio import AsyncConnection

from runyard.clock import now_ms, to_iso
from runyard.db.changes import (
    Change,
    ChangedRun,
    Changes,
    Deletion,
    Horizon,
    changes_of,
    forgotten_below,
    horizon,
)
from runyard.db.engine import Database
from runyard.db.records import Message
from runyard.db.scope import Scope
from runyard.errors import FeedGone, InternalError, RunyardError, StoreUnavailable
from runyard.frames import Frame
from runyard_gateway.sse import Chunk, encode
from runyard_gateway.views import message_view, run_view

LOOK_S = 3.0
"""Wake-ups may be lost: this is how late a change is noticed then."""

APART_S = 0.1
UNSETTLED_S = 0.2
"""Changes committed while an older transaction runs become readable when that one ends, which nobody announces: look
soon."""

WINDOW_MAX_BYTES = 65_536
NEVER = 2**63

log = structlog.get_logger()


class _Window:
    """What was found lately for one scope, complete from mark `start` on and below `end`."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.start = NEVER
        self.end = 0
        self.readers: set[FeedReader] = set()
        self._groups: deque[tuple[int, bytes]] = deque()
        self._size_bytes = 0

    def add(self, since: int, until: int, changes: Sequence[Change]) -> None:
        """All changes of the scope's runs from mark `since` on and below `until`."""
        self.start = min(self.start, since)
        self.end = until
        for mark, group in _encoded(changes):
            self._groups.append((mark, group))
            self._size_bytes += len(group)
        while self._size_bytes > WINDOW_MAX_BYTES:
            mark, group = self._groups.popleft()
            self._size_bytes -= len(group)
            self.start = mark + 1
        self._wake(is_news=bool(changes))

    def begin_at(self, mark: int) -> None:
        """Hold nothing: what is below the mark, readers read for themselves."""
        self._groups.clear()
        self._size_bytes = 0
        self.start = self.end = mark
        self._wake(is_news=False)

    def _wake(self, *, is_news: bool) -> None:
        for reader in self.readers:
            if is_news or reader.cursor < self.start:
                reader.wake()

    def after(self, cursor: int) -> tuple[bytes, int]:
        return b"".join(group for mark, group in self._groups if mark >= cursor), max(cursor, self.end)


class FeedReader:
    """One reader's place. Its cursor is a mark: the reader has everything below it."""

    def __init__(self, feed: "Feed", window: _Window) -> None:
        self.cursor = 0  # of its last read
        self._feed = feed
        self._window = window
        self._news = asyncio.Event()
        self._interrupted = False
        self._failure: RunyardError | None = None

    async def pull(self, cursor: int, timeout_s: float) -> Chunk:
        """What changed since the cursor; waits up to `timeout_s` for it, and then returns how far it looked in vain.

        Raises:
            InternalError: a row cannot be read.
            RunyardError: what `fail` was given.
        """
        began = cursor
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + timeout_s
        while True:
            self._news.clear()
            if self._failure is not None:
                raise self._failure
            if self._interrupted or self._feed.draining:
                return Chunk(b"", cursor, ended=True)
            body, cursor = await self._read(cursor)
            if body:
                return Chunk(body, cursor, ended=False)
            self.cursor = cursor
            if loop.time() >= deadline_s:
                return Chunk(position(cursor) if cursor > began else b"", cursor, ended=False)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(deadline_s):
                    await self._news.wait()

    def interrupt(self) -> None:
        self._interrupted = True
        self.wake()

    def fail(self, error: RunyardError) -> None:
        self._failure = error
        self.wake()

    def wake(self) -> None:
        self._news.set()

    async def _read(self, cursor: int) -> tuple[bytes, int]:
        if cursor >= self._window.start:
            return self._window.after(cursor)
        try:
            found = await self._feed.read_back(self._window.scope, cursor)
            body = b"".join(group for _, group in _encoded(found.changes))
        except StoreUnavailable:
            return b"", cursor
        except Exception as error:
            scope = self._window.scope
            log.exception("changes unreadable", code=InternalError.code, tenants=scope.tenants, user_id=scope.user_id)
            raise InternalError("a change cannot be read") from error
        return body, max(cursor, found.until)


class Feed:
    def __init__(self, database: Database) -> None:
        self.draining = False
        self._database = database
        self._windows: dict[Scope, _Window] = {}
        self._wanted = asyncio.Event()
        self._since: int | None = None

    @contextlib.contextmanager
    def watch(self, scope: Scope) -> Iterator[FeedReader]:
        """A reader for as long as the block runs."""
        window = self._windows.get(scope)
        if window is None:
            window = self._windows[scope] = _Window(scope)
            self.wake()
        reader = FeedReader(self, window)
        window.readers.add(reader)
        try:
            yield reader
        finally:
            window.readers.discard(reader)
            if not window.readers:
                del self._windows[scope]

    async def begin(self, cursor: int | None) -> int:
        """Where a reader begins: at its cursor, or now.

        Raises:
            FeedGone: the cursor is too old, or from another database.
        """
        now, forgotten = await self._database.read(_ends)
        if cursor is None:
            return now.mark
        if cursor < forgotten or cursor > now.newest:
            raise FeedGone("the feed no longer goes back to the cursor: read the lists, and begin without one")
        return cursor

    def wake(self) -> None:
        """Something was committed: look."""
        self._wanted.set()

    def drain(self) -> None:
        """The process stops: all answers end, and readers go on elsewhere."""
        self.draining = True
        for window in self._windows.values():
            for reader in window.readers:
                reader.wake()

    async def read_back(self, scope: Scope, cursor: int) -> Changes:
        return await self._database.read(_pending, [scope], cursor)

    async def run(self) -> None:
        """Until cancelled."""
        pause_s = LOOK_S
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_s if self._windows else None):
                    await self._wanted.wait()
            pause_s = UNSETTLED_S if self._wanted.is_set() else min(2 * pause_s, LOOK_S)
            self._wanted.clear()
            try:
                if await self._look():
                    pause_s = LOOK_S
            except StoreUnavailable as error:
                log.warning("changes not read", error=str(error))
                pause_s = LOOK_S
            await asyncio.sleep(APART_S)

    async def _look(self) -> bool:
        """Hand everything that is new to the windows. Returns whether that is everything that is committed."""
        if not self._windows:
            self._since = None
            return True
        now = await self._database.read(horizon)
        windows = list(self._windows.values())
        try:
            await self._fill(windows, now.mark)
        except StoreUnavailable:
            raise
        except Exception:
            log.exception("changes unreadable for all readers together", code=InternalError.code, readers=len(windows))
            for window in windows:
                window.begin_at(now.mark)
            self._since = now.mark
        return now.mark == now.newest

    async def _fill(self, windows: Sequence[_Window], mark: int) -> None:
        """Hand the windows all changes below the mark that they do not have."""
        since = mark if self._since is None else self._since
        found = Changes(changes=[], until=since)
        while True:
            if since < mark:
                scopes = [window.scope for window in windows]
                found = await self._database.read(changes_of, scopes, since=since, before=mark)
            theirs = _by_owner(found.changes)
            for window in windows:
                window.add(since, found.until, theirs(window.scope))
            self._since = since = found.until
            if since >= mark:
                return


def position(cursor: int) -> bytes:
    """Moves a reader's `Last-Event-ID` without an event, to the highest mark that it has."""
    return b"id: %d\n\n" % (cursor - 1)


def _by_owner(changes: Iterable[Change]) -> Callable[[Scope], list[Change]]:
    """Finds the changes that a scope covers, in the order of their marks, without a look at all the others."""
    owned: defaultdict[tuple[str, str | None], list[Change]] = defaultdict(list)
    for change in changes:
        owned[change.tenant_id, change.user_id].append(change)
        owned[change.tenant_id, None].append(change)

    def covered(scope: Scope) -> list[Change]:
        found = [owned.get((tenant_id, scope.user_id), []) for tenant_id in scope.tenants]
        return found[0] if len(found) == 1 else list(merge(*found, key=attrgetter("mark")))

    return covered


def _encoded(changes: Iterable[Change]) -> Iterable[tuple[int, bytes]]:
    """All changes of one mark together. Only the last has the mark as its id, so whoever has that id
    has all of them.
    """
    for mark, group in groupby(changes, attrgetter("mark")):
        *before, last = group
        yield mark, b"".join([*(_event(change, 0) for change in before), _event(last, mark)])


def _event(change: Change, number: int) -> bytes:
    name, view = _name_and_view(change.what)
    return encode(Frame(number, name, orjson.dumps(view)))


def _name_and_view(what: ChangedRun | Message | Deletion) -> tuple[str, object]:
    match what:
        case ChangedRun(run=run, stream_id=stream_id, waiting=waiting):
            return "run", run_view(run, stream_id=stream_id, waiting=waiting)
        case Message():
            return "message", message_view(what)
        case Deletion(run_id=run_id, whole_run=whole_run, deleted_at=at):
            return "deleted", {
                "runId": run_id,
                "what": "run" if whole_run else "messages",
                "deletedAt": to_iso(at),
            }


async def _ends(connection: AsyncConnection) -> tuple[Horizon, int]:
    return await horizon(connection), await forgotten_below(connection, at=now_ms())


async def _pending(connection: AsyncConnection, scopes: list[Scope], cursor: int) -> Changes:
    now = await horizon(connection)
    if cursor >= now.mark:
        return Changes(changes=[], until=cursor)
    return await changes_of(connection, scopes, since=cursor, before=now.mark)
