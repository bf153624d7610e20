"""A real database that fails on request, at the commit of a given transaction."""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable
from enum import StrEnum
from typing import Any

from tests.databases import LastingDatabase

from runyard.db import boundaries, quiet
from runyard.errors import CommitUnknown, StoreUnavailable

GUARD_S = 30.0

QUIET = {quiet.append_results: boundaries.append_results, quiet.end_turn: boundaries.end_turn}
"""One kind of transaction, tried in one statement first."""


class Fault(StrEnum):
    AWAY = "away"  # nothing happened, and it is known
    LOST_REQUEST = "lost request"  # nothing happened, and it is not known
    LOST_ANSWER = "lost answer"  # it happened, and it is not known


class FaultyDatabase(LastingDatabase):
    """`faults[work]` are the fates of its next executions, then they succeed. `before[work]` runs before the next."""

    def __init__(self, url: str, *, pool_size: int) -> None:
        super().__init__(url, pool_size=pool_size)
        self.faults: dict[Any, list[Fault]] = {}
        self.before: dict[Any, Callable[[], Awaitable[None]]] = {}
        self.written: list[str] = []
        """The names of the transactions that happened."""

        self._happened: defaultdict[Any, asyncio.Event] = defaultdict(asyncio.Event)
        self._next = asyncio.Event()

    async def wrote(self, work: Any) -> None:
        """Wait until this kind of transaction has happened once."""
        async with asyncio.timeout(GUARD_S):
            await self._happened[work].wait()

    async def wrote_next(self) -> None:
        """Wait for the next transaction, whichever."""
        self._next.clear()
        async with asyncio.timeout(GUARD_S):
            await self._next.wait()

    async def read(self, work: Any, *args: Any, **kwargs: Any) -> Any:
        self._refuse(self._next_fault(work))
        return await super().read(work, *args, **kwargs)

    async def write(self, work: Any, *args: Any, **kwargs: Any) -> Any:
        return await self._happens(super().write, work, *args, **kwargs)

    async def write_at_once(self, work: Any, *args: Any, **kwargs: Any) -> Any:
        if self.is_sqlite:  # where it is a write
            return await super().write_at_once(work, *args, **kwargs)
        return await self._happens(super().write_at_once, work, *args, **kwargs)

    async def _happens(self, write: Callable[..., Awaitable[Any]], work: Any, *args: Any, **kwargs: Any) -> Any:
        kind = QUIET.get(work, work)
        if (hook := self.before.pop(kind, None)) is not None:
            await hook()
        fault = self._next_fault(kind)
        self._refuse(fault)
        result = await write(work, *args, **kwargs)
        if work in QUIET and result is None:  # nothing happened yet
            if fault is not None:
                self.faults[kind].insert(0, fault)
            return None
        self.written.append(work.__name__)
        self._happened[kind].set()
        self._next.set()
        if fault is Fault.LOST_ANSWER:
            raise CommitUnknown("the database did not answer a commit")
        return result

    def _next_fault(self, work: Any) -> Fault | None:
        return self.faults[work].pop(0) if self.faults.get(work) else None

    def _refuse(self, fault: Fault | None) -> None:
        if fault is Fault.AWAY:
            raise StoreUnavailable("the database does not answer")
        if fault is Fault.LOST_REQUEST:
            raise CommitUnknown("the database did not answer a commit")
