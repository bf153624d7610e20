"""The gateways that readers move between."""

import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.integration.stack import Backing, Gateway, Stack, serving, standing_by
from tests.previous import PreviousVersion

GATEWAYS = 2


@asynccontextmanager
async def starting_gateways(backing: Backing, folder: Path) -> AsyncIterator[Stack]:
    """A stack with two gateways and no worker."""
    async with standing_by(backing, folder) as stack, AsyncExitStack() as exits:
        processes = [exits.enter_context(stack.process("runyard_gateway")) for _ in range(GATEWAYS)]
        stack.gateways += [await exits.enter_async_context(serving(process)) for process in processes]
        yield stack
        assert [process.complaints() for process in processes] == [[]] * GATEWAYS


@dataclass(kw_only=True)
class Doors:
    """Where the gateways of one test are at the moment."""

    stack: Stack
    exits: AsyncExitStack
    gateways: list[Gateway] = field(default_factory=list)

    async def open(self, *, of: PreviousVersion | None = None, **settings: str) -> Gateway:
        process = self.exits.enter_context(self.stack.process("runyard_gateway", of=of, **settings))
        return await self.exits.enter_async_context(serving(process, is_described=of is None))

    async def replace(self, number: int, *, by: Gateway | None = None) -> None:
        """It is told to leave, leaves well, and another one comes, or has come."""
        leaving = self.gateways[number].process
        leaving.send(signal.SIGTERM)
        assert await leaving.exited() == 0
        assert leaving.complaints() == []
        self.gateways[number] = by or await self.open()
