"""The depth of each queue, from one look at the rows and one at the broker."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from runyard.clock import now_ms, to_iso
from runyard.db.depth import Census, Load, WorkerRow, take_census
from runyard.db.engine import Database
from runyard.db.limits import NO_LIMITS, Limits, is_full
from runyard.ids import WorkerId
from runyard.priorities import Priority
from runyard.queue.depth import BrokerDepth, Messages
from runyard.queue.links import BrokerAwayError
from runyard.runs import RunStatus

SEEN_WITHIN_MS = 7 * 24 * 3600 * 1000
"""A queue is listed for a week after the last worker with an agent for it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class QueueWorkers:
    """The living workers of a queue. `slots`: those of workers that are not leaving."""

    living: int
    draining: int
    slots: int


@dataclass(frozen=True, kw_only=True, slots=True)
class QueuedClass:
    """The queued runs of one priority class."""

    priority: Priority
    queued: int
    oldest_ms: int | None
    oldest_claimable_ms: int | None
    """The age of the oldest one that no limit holds back, and that so waits only for a free slot."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Unserved:
    """Queued runs of an agent that no living worker of the queue has."""

    agent: str
    queued: int


@dataclass(frozen=True, kw_only=True, slots=True)
class QueueDepth:
    """`messages`: None while the broker cannot be asked. Ages are in milliseconds."""

    queue: str
    messages: Messages | None
    priorities: tuple[QueuedClass, ...]
    """Every class, even one with nothing queued."""

    running: int
    waiting: int
    workers: QueueWorkers
    unserved: tuple[Unserved, ...]

    @property
    def queued(self) -> int:
        return sum(each.queued for each in self.priorities)

    @property
    def oldest_queued_ms(self) -> int | None:
        return max((each.oldest_ms for each in self.priorities if each.oldest_ms is not None), default=None)

    def to_dict(self) -> dict[str, Any]:
        return {
            "queue": self.queue,
            "ready": self.messages and self.messages.ready,
            "delayed": self.messages and self.messages.delayed,
            "dead": self.messages and self.messages.dead,
            "queued": self.queued,
            "running": self.running,
            "waiting": self.waiting,
            "oldestQueuedMs": self.oldest_queued_ms,
            "workers": self.workers.living,
            "draining": self.workers.draining,
            "slots": self.workers.slots,
            "priorities": [
                {"priority": each.priority, "queued": each.queued, "oldestQueuedMs": each.oldest_ms}
                for each in self.priorities
            ],
            "unservedAgents": [{"agent": item.agent, "queued": item.queued} for item in self.unserved],
        }


class Depth:
    """One look at the whole system. Callers are shown the runs of their own tenants.

    Messages and workers belong to no tenant. `broker_error` says why the messages are unknown.
    """

    def __init__(
        self,
        census: Census,
        messages: Mapping[str, Messages] | None,
        *,
        lives: Callable[[WorkerId], bool],
        limits: Limits,
        at: int,
        broker_error: str | None = None,
    ) -> None:
        self.at = at
        self.broker_error = broker_error
        self._messages = messages
        living = [worker for worker in census.workers if lives(worker.id)]
        self.queues = queues_of(census)
        self._workers = {queue: _workers_of(queue, living) for queue in self.queues}
        self._served = {
            (queue, agent)
            for worker in living
            if not worker.draining
            for queue in worker.queues
            for agent in worker.agents
        }
        self._loads: dict[str, list[Load]] = defaultdict(list)
        for load in census.loads:
            self._loads[load.tenant_id].append(load)
        self._limits = limits
        running = [load for load in census.loads if load.status is RunStatus.RUNNING]
        self._by_agent = _runs(running, lambda load: load.agent)
        self._by_tenant = _runs(running, lambda load: load.tenant_id)

    def of_all(self) -> list[QueueDepth]:
        return self._depths_of(load for loads in self._loads.values() for load in loads)

    def of_tenants(self, tenants: Iterable[str]) -> list[QueueDepth]:
        return self._depths_of(load for tenant in tenants for load in self._loads.get(tenant, ()))

    def to_dict(self, queues: Sequence[QueueDepth]) -> dict[str, Any]:
        return {
            "items": [queue.to_dict() for queue in queues],
            "nextCursor": None,
            "brokerError": self.broker_error,
            "at": to_iso(self.at),
        }

    def _depths_of(self, loads: Iterable[Load]) -> list[QueueDepth]:
        counts: Counter[tuple[str, RunStatus]] = Counter()
        unserved: dict[str, Counter[str]] = defaultdict(Counter)
        queued: dict[tuple[str, Priority], list[Load]] = defaultdict(list)
        for load in loads:
            counts[load.queue, load.status] += load.runs
            if load.status is RunStatus.QUEUED:
                queued[load.queue, load.priority].append(load)
            if load.status is RunStatus.QUEUED and (load.queue, load.agent) not in self._served:
                unserved[load.queue][load.agent] += load.runs
        return [
            QueueDepth(
                queue=queue,
                messages=None if self._messages is None else self._messages[queue],
                priorities=tuple(self._of_class(priority, queued[queue, priority]) for priority in Priority),
                running=counts[queue, RunStatus.RUNNING],
                waiting=counts[queue, RunStatus.WAITING],
                workers=self._workers[queue],
                unserved=tuple(Unserved(agent=agent, queued=runs) for agent, runs in sorted(unserved[queue].items())),
            )
            for queue in self.queues
        ]

    def _of_class(self, priority: Priority, loads: Sequence[Load]) -> QueuedClass:
        return QueuedClass(
            priority=priority,
            queued=sum(load.runs for load in loads),
            oldest_ms=self._age_ms(load.since for load in loads),
            oldest_claimable_ms=self._age_ms(load.claimable_since for load in loads if self._may_run(load)),
        )

    def _may_run(self, load: Load) -> bool:
        """Whether the limits of agent and tenant allow one more. (`claimable_since` already respects that of users.)"""
        return not (
            is_full(self._limits.per_agent.get(load.agent), self._by_agent[load.agent])
            or is_full(self._limits.per_tenant, self._by_tenant[load.tenant_id])
        )

    def _age_ms(self, since: Iterable[int | None]) -> int | None:
        """The age of the oldest. Never negative, though the clock of the gateway that accepted it may be ahead."""
        oldest = min((at for at in since if at is not None), default=None)
        return None if oldest is None else max(0, self.at - oldest)


async def look(
    database: Database, broker: BrokerDepth, *, lives: Callable[[WorkerId], bool], limits: Limits = NO_LIMITS
) -> Depth:
    """Read the depth.

    Raises:
        StoreUnavailable: the database is away.
    """
    census = await database.snapshot(take_census, seen_since=now_ms() - SEEN_WITHIN_MS, limits=limits)
    at = now_ms()
    try:
        messages = await broker.messages(queues_of(census))
    except BrokerAwayError as error:
        return Depth(census, None, lives=lives, limits=limits, at=at, broker_error=str(error))
    return Depth(census, messages, lives=lives, limits=limits, at=at)


def queues_of(census: Census) -> list[str]:
    """The queues that have runs, workers, or agents that were seen lately."""
    with_runs = {load.queue for load in census.loads}
    with_workers = {queue for worker in census.workers for queue in worker.queues}
    return sorted({*census.queues, *with_runs, *with_workers})


def _runs(loads: Iterable[Load], name_of: Callable[[Load], str]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for load in loads:
        counts[name_of(load)] += load.runs
    return counts


def _workers_of(queue: str, living: Sequence[WorkerRow]) -> QueueWorkers:
    mine = [worker for worker in living if queue in worker.queues]
    taking = [worker for worker in mine if not worker.draining]
    slots = sum(worker.slots for worker in taking)
    return QueueWorkers(living=len(mine), draining=len(mine) - len(taking), slots=slots)
