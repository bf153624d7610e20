"""Which agents there are: their newest manifests, as the workers registered them."""

import asyncio
import time
from collections import Counter
from dataclasses import dataclass
from typing import Any

from runyard.clock import now_ms
from runyard.db.engine import Database
from runyard.db.reads import Manifest, agents_known
from runyard_gateway.principal import Identity

FRESH_S = 1.0
SEEN_WITHIN_MS = 7 * 24 * 3600 * 1000
"""An agent that no living worker has is known for a week: calls are accepted and wait."""


@dataclass(frozen=True, kw_only=True, slots=True)
class KnownAgent:
    """`current`: the newest version that a living worker has; with none alive, the newest seen."""

    current: Manifest
    versions: tuple[Manifest, ...]
    live_workers: Counter[str]

    def is_for(self, identity: Identity) -> bool:
        """Whether this user may call it."""
        return self.spec["auth"] == "user" or identity.is_admin

    @property
    def spec(self) -> dict[str, Any]:
        return self.current.manifest


class AgentDirectory:
    """Read at most once a second, by however many calls; an unknown name is looked up anew at once."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._agents: dict[str, KnownAgent] = {}
        self._read_at = -FRESH_S
        self._reading = asyncio.Lock()

    async def all(self) -> dict[str, KnownAgent]:
        if time.monotonic() - self._read_at >= FRESH_S:
            await self._refresh()
        return self._agents

    async def get(self, name: str) -> KnownAgent | None:
        found = (await self.all()).get(name)
        if found is None:
            await self._refresh()
            found = self._agents.get(name)
        return found

    async def _refresh(self) -> None:
        asked_at = time.monotonic()
        async with self._reading:
            if self._read_at >= asked_at:
                return  # somebody read it while we waited
            began = time.monotonic()
            manifests, workers = await self._database.read(agents_known, seen_since=now_ms() - SEEN_WITHIN_MS)
            self._agents = _index(manifests, workers)
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
