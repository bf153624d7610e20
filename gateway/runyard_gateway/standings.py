"""The places of queued calls, and what they wait for besides their turn."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from runyard.db.engine import Database
from runyard.db.limits import Limits, Running, running_now
from runyard.db.positions import POSITION_MAX, Place, queue_positions
from runyard.runs import RunStatus
from runyard_gateway.directory import AgentDirectory
from runyard_gateway.fleet import Fleet


class WaitReason(StrEnum):
    """What has to change before a call can have its turn."""

    NO_WORKER = "no_worker"  # no living worker of its queue has its agent
    AGENT_LIMIT = "agent_limit"  # as many of the agent's runs run as may
    TENANT_LIMIT = "tenant_limit"
    USER_LIMIT = "user_limit"


@dataclass(frozen=True, kw_only=True, slots=True)
class Standing:
    """`position`: among the queued calls of the same queue, agent and tenant, 1 for the next; None: beyond the
    hundredth. `reason` None: the call only waits for its turn and a free slot.
    """

    position: int | None
    reason: WaitReason | None

    def frame(self) -> dict[str, Any]:
        """What the stream's readers are told; what is not known is left out."""
        told: dict[str, Any] = {"status": RunStatus.QUEUED}
        if self.position is not None:
            told["position"] = self.position
        if self.reason is not None:
            told["waitReason"] = self.reason
        return told


class Standings:
    """`per_user`, `per_tenant`: how many runs may run at once, as in the workers' settings; 0: any number."""

    def __init__(
        self, database: Database, directory: AgentDirectory, fleet: Fleet, *, per_user: int, per_tenant: int
    ) -> None:
        self._database = database
        self._directory = directory
        self._fleet = fleet
        self._per_user = per_user
        self._per_tenant = per_tenant

    async def of(self, stream_ids: Sequence[str]) -> dict[str, Standing]:
        """For those streams whose runs are queued. Two statements for all of them, the second only if there are limits.

        Raises:
            StoreUnavailable: the database is away.
        """
        places = await self._database.read(queue_positions, stream_ids)
        if not places:
            return {}
        if not all(self._fleet.serves(place.queue, place.agent) for place in places.values()):
            await self._fleet.look_anew()
        limits = Limits.of(
            per_user=self._per_user, per_tenant=self._per_tenant, per_agent=await self._directory.max_running()
        )
        running = await self._database.read(running_now, limits, {place.tenant_id for place in places.values()})
        return {stream_id: self._standing(place, limits, running) for stream_id, place in places.items()}

    def _standing(self, place: Place, limits: Limits, running: Running) -> Standing:
        return Standing(
            position=place.position if place.position < POSITION_MAX else None,
            reason=self._reason(place, limits, running),
        )

    def _reason(self, place: Place, limits: Limits, running: Running) -> WaitReason | None:
        if not self._fleet.serves(place.queue, place.agent):
            return WaitReason.NO_WORKER
        if _is_full(limits.per_agent.get(place.agent), running.by_agent[place.agent]):
            return WaitReason.AGENT_LIMIT
        if _is_full(limits.per_tenant, running.by_tenant[place.tenant_id]):
            return WaitReason.TENANT_LIMIT
        if _is_full(limits.per_user, running.by_user[place.tenant_id, place.user_id]):
            return WaitReason.USER_LIMIT
        return None


def _is_full(limit: int | None, running: int) -> bool:
    return limit is not None and running >= limit
