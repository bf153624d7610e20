"""What queued calls wait for: their position, and a limit or a missing worker that holds them back."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from runyard.db.engine import Database
from runyard.db.limits import Limits, Running, is_full, running_now
from runyard.db.positions import POSITION_MAX, Place, queue_positions
from runyard.runs import RunStatus
from runyard_gateway.directory import AgentDirectory
from runyard_gateway.fleet import Fleet


class WaitReason(StrEnum):
    """Why a call cannot have its turn yet, even if it is the next."""

    NO_WORKER = "no_worker"  # no living worker of its queue has its agent
    AGENT_LIMIT = "agent_limit"  # the agent's limit of running runs is reached
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
        """The data of a `status` frame. Unknown fields are left out."""
        told: dict[str, Any] = {"status": RunStatus.QUEUED}
        if self.position is not None:
            told["position"] = self.position
        if self.reason is not None:
            told["waitReason"] = self.reason
        return told


class Standings:
    """Looks up the standing of queued calls, for the readers of their streams."""

    def __init__(self, database: Database, directory: AgentDirectory, fleet: Fleet) -> None:
        self._database = database
        self._directory = directory
        self._fleet = fleet

    async def of(self, stream_ids: Sequence[str]) -> dict[str, Standing]:
        """By stream; those whose runs are not queued are left out. A few statements serve all of them.

        Raises:
            StoreUnavailable: the database is away.
        """
        places = await self._database.read(queue_positions, stream_ids)
        if not places:
            return {}
        if not all(self._fleet.serves(place.queue, place.agent) for place in places.values()):
            await self._fleet.refresh()
        limits = await self._directory.limits()
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
        if is_full(limits.per_agent.get(place.agent), running.by_agent[place.agent]):
            return WaitReason.AGENT_LIMIT
        if is_full(limits.per_tenant, running.by_tenant[place.tenant_id]):
            return WaitReason.TENANT_LIMIT
        if is_full(limits.per_user, running.by_user[place.tenant_id, place.user_id]):
            return WaitReason.USER_LIMIT
        return None
