"""Fair shares of a full worker: a run of a tenant over its share makes way at a turn boundary if another tenant waits.

It is checked when a run stands at a boundary, at most once a second, so a worker hands over at most one run a second.
"""

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import structlog

from runyard.db.engine import Database
from runyard.db.groups import queued_groups
from runyard.db.limits import Limits, running_by_tenant
from runyard.errors import StoreUnavailable

LOOK_S = 1.0

log = structlog.get_logger()


class Shares:
    """Belongs to the event loop."""

    def __init__(
        self,
        database: Database,
        *,
        slots: int,
        queues: Sequence[str],
        agents: Sequence[str],
        limits: Limits,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._database = database
        self._slots = slots
        self._queues = queues
        self._agents = agents
        self._limits = limits
        self._clock = clock
        self._looked_at = float("-inf")
        self._over: frozenset[str] = frozenset()
        self._passed_over: str | None = None

    async def must_yield(self, tenant_id: str, held: Counter[str]) -> bool:
        """Whether a run of this tenant is to be handed over here. `held`: how many runs this process has, by tenant."""
        if held.total() < self._slots:
            return False
        if self._clock() - self._looked_at >= LOOK_S:
            self._looked_at = self._clock()
            self._over = frozenset()  # while the rows are read
            self._over = await self._look(held)
        if tenant_id not in self._over:
            return False
        self._over = frozenset()
        self._passed_over = tenant_id
        return True

    def take_passed_over(self) -> str | None:
        """The tenant whose runs the next claim here takes last, so that the slot goes to the tenant it
        was freed for.
        """
        tenant_id, self._passed_over = self._passed_over, None
        return tenant_id

    async def _look(self, held: Counter[str]) -> frozenset[str]:
        """The tenants that should hand a slot over to another tenant."""
        try:
            groups = await self._database.read(queued_groups, self._queues, self._agents, self._limits)
            waiting = {group.tenant_id: group.running for group in groups}
            running = await self._database.read(running_by_tenant, sorted(held))
        except StoreUnavailable as error:
            log.warning("shares not looked at", error=str(error))
            return frozenset()
        return over_share(self._slots, held, running, waiting)


def over_share(
    slots: int, held: Mapping[str, int], running: Mapping[str, int], waiting: Mapping[str, int]
) -> frozenset[str]:
    """The tenants that hold more slots here than their share, and have more runs than some tenant with a queued run.

    Args:
        held: how many slots each tenant holds here.
        running: how many runs each of them has, on all workers.
        waiting: for each tenant with a queued run, how many runs it has, on all workers.

    A tenant must have at least two runs more than the other one: otherwise the two would pass a slot back and forth. A
    tenant without any run gets a slot in any case.
    """
    share = slots / len(held.keys() | waiting.keys())
    return frozenset(
        tenant_id
        for tenant_id, slots_held in held.items()
        if slots_held > share
        and any(
            other != tenant_id and (has == 0 or has + 1 < running.get(tenant_id, slots_held))
            for other, has in waiting.items()
        )
    )
