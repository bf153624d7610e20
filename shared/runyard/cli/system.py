"""The parts of `runyard dev`: in which order they start, and what happens while they run."""

import asyncio
from dataclasses import dataclass
from pathlib import Path

from runyard.cli import valkey
from runyard.cli.keeper import Keeper
from runyard.cli.probe import Probe
from runyard.cli.process import Child
from runyard.cli.race import race
from runyard.cli.state import State
from runyard.cli.supervisor import Supervisor
from runyard.cli.terminal import Banner, show
from runyard.cli.watch import saved_files

FIRST_AGENT_S = 15.0  # then the banner says that there is none yet


@dataclass(frozen=True, kw_only=True)
class System:
    store: Child
    gateway: Child
    worker: Child
    state: State
    agents: Path
    host: str
    port: int
    demo: bool

    async def run(self, supervisor: Supervisor) -> None:
        """Never returns.

        Raises:
            ChildExitedError: Valkey or the gateway ended, or the worker could not start even once.
        """
        store = await supervisor.start(self.store)
        migrated = asyncio.to_thread(_migrate, self.state.database_url)
        await asyncio.gather(store.until(valkey.answers(self.state.socket)), migrated)
        gateway = await supervisor.start(self.gateway)
        worker = Keeper(lambda: supervisor.start(self.worker), show=show)
        await race(store.must_stay(), gateway.must_stay(), worker.keep(), self._reload(worker), self._greet())

    async def _reload(self, worker: Keeper) -> None:
        async for path in saved_files(self.agents):
            worker.saved(path)

    async def _greet(self) -> None:
        probe = Probe(host=self.host, port=self.port)
        await probe.ready()
        try:
            agents = await asyncio.wait_for(probe.agents(), FIRST_AGENT_S)
        except TimeoutError:
            self._banner([]).print()
            agents = await probe.agents()
        self._banner(agents).print()
        await asyncio.Event().wait()

    def _banner(self, agents: list[str]) -> Banner:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return Banner(
            url=f"http://{host}:{self.port}",
            agents=agents,
            folder=self.agents,
            state=self.state.folder,
            demo=self.demo,
        )


def _migrate(database_url: str) -> None:
    from runyard.db.migrate import upgrade  # half a second of imports, beside Valkey's start

    upgrade(database_url)
