"""A real database with faults: each at the commit of one kind of transaction."""

from collections.abc import Awaitable, Callable
from enum import StrEnum
from typing import Any

from runyard.db.engine import Database
from runyard.errors import CommitUnknown, StoreUnavailable


class Fault(StrEnum):
    AWAY = "away"  # nothing happened, and it is known
    LOST_REQUEST = "lost request"  # nothing happened, and it is not known
    LOST_ANSWER = "lost answer"  # it happened, and it is not known


class FaultyDatabase(Database):
    """`faults[work]` are the fates of its next writes; then they succeed. `before[work]` runs before the next write."""

    def __init__(self, url: str, *, pool_size: int) -> None:
        super().__init__(url, pool_size=pool_size)
        self.faults: dict[Any, list[Fault]] = {}
        self.before: dict[Any, Callable[[], Awaitable[None]]] = {}
        self.written: list[str] = []
        """The names of the transactions that happened."""

    async def write(self, work: Any, *args: Any, **kwargs: Any) -> Any:
        if (hook := self.before.pop(work, None)) is not None:
            await hook()
        match self.faults[work].pop(0) if self.faults.get(work) else None:
            case Fault.AWAY:
                raise StoreUnavailable("the database does not answer")
            case Fault.LOST_REQUEST:
                raise CommitUnknown("the database did not answer a commit")
            case Fault.LOST_ANSWER:
                await super().write(work, *args, **kwargs)
                self.written.append(work.__name__)
                raise CommitUnknown("the database did not answer a commit")
        result = await super().write(work, *args, **kwargs)
        self.written.append(work.__name__)
        return result
