"""Which agents and functions there are: their newest manifests, as the workers registered them."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from runyard.clock import now_ms
from runyard.db.engine import Database
from runyard.db.limits import Limits
from runyard.db.reads import Manifest, agents_known
from runyard.ids import WorkerId
from runyard.names import FUNCTION_PREFIX
from runyard.priorities import Priority
from runyard_gateway.auth.principal import Identity

FRESH_S = 1.0
SEEN_WITHIN_MS = 7 * 24 * 3600 * 1000
"""An agent without a living worker is known for a week; calls to it are accepted and wait."""


@dataclass(frozen=True, kw_only=True, slots=True)
class KnownAgent:
    """An agent or a function. `current`: the newest version that a living worker has, or else the newest of all."""

    current: Manifest
    versions: tuple[Manifest, ...]
    live_workers: Counter[str]

    def is_for(self, identity: Identity) -> bool:
        """Whether this user may call it."""
        return self.spec["auth"] != "admin" or identity.is_admin

    @property
    def priority(self) -> Priority:
        """The class of calls that name none. (Manifests of older workers have neither this nor a limit.)"""
        return Priority.stored(self.spec.get("priority", Priority.INTERACTIVE))

    @property
    def max_running(self) -> int | None:
        """How many of its runs may run at once; None: any number."""
        return self.spec.get("maxRunning")

    @property
    def spec(self) -> dict[str, Any]:
        return self.current.manifest


class AgentDirectory:
    """Read at most once a second for any number of calls; for an unknown name it is read again at once.

    Agents and functions have separate names. `lives` (`Fleet.lives`) says which workers live, which a row alone does
    not show. `per_user`, `per_tenant`: how many runs may run at once,
    as in the workers' settings; 0: any number.
    """

    def __init__(
        self, database: Database, *, lives: Callable[[WorkerId], bool], per_user: int = 0, per_tenant: int = 0
    ) -> None:
        self._database = database
        self._lives = lives
        self._per_user = per_user
        self._per_tenant = per_tenant
        self._agents: dict[str, KnownAgent] = {}
        self._functions: dict[str, KnownAgent] = {}
        self._read_at = -FRESH_S
        self._reading = asyncio.Lock()

    async def all(self) -> dict[str, KnownAgent]:
        await self._keep_fresh()
        return self._agents

    async def get(self, name: str) -> KnownAgent | None:
        await self._keep_fresh()
        if name not in self._agents:
            await self._refresh()
        return self._agents.get(name)

    async def function(self, name: str) -> KnownAgent | None:
        await self._keep_fresh()
        if name not in self._functions:
            await self._refresh()
        return self._functions.get(name)

    async def limits(self) -> Limits:
        """How many runs may run at once, those of agents and functions by the names in their runs."""
        await self._keep_fresh()
        known = [*self._agents.values(), *self._functions.values()]
        of_agents = {each.current.agent: each.max_running for each in known}
        given = {name: limit for name, limit in of_agents.items() if limit is not None}
        return Limits.of(per_user=self._per_user, per_tenant=self._per_tenant, per_agent=given)

    async def _keep_fresh(self) -> None:
        if time.monotonic() - self._read_at >= FRESH_S:
            await self._refresh()

    async def _refresh(self) -> None:
        asked_at = time.monotonic()
        async with self._reading:
            if self._read_at >= asked_at:
                return  # somebody read it while we waited
            began = time.monotonic()
            manifests, workers = await self._database.read(agents_known, seen_since=now_ms() - SEEN_WITHIN_MS)
            known = _index(manifests, [agents for worker_id, agents in workers.items() if self._lives(worker_id)])
            self._agents = {name: agent for name, agent in known.items() if not name.startswith(FUNCTION_PREFIX)}
            self._functions = {
                name.removeprefix(FUNCTION_PREFIX): function
                for name, function in known.items()
                if name.startswith(FUNCTION_PREFIX)
            }
            self._read_at = began


def _index(manifests: list[Manifest], workers: list[dict[str, str]]) -> dict[str, KnownAgent]:
    living = Counter(pair for agents in workers for pair in agents.items())
    by_name: dict[str, list[Manifest]] = {}
    for manifest in manifests:  # newest first within a name
        by_name.setdefault(manifest.agent, []).append(manifest)
    return {
        name: KnownAgent(
            current=next((version for version in versions if living[name, version.version]), versions[0]),
            versions=tuple(versions),
            live_workers=Counter({version.version: living[name, version.version] for version in versions}),
        )
        for name, versions in by_name.items()
    }
