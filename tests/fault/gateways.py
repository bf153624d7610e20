"""The gateways that readers move between."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from tests.integration.stack import Backing, Stack, serving, standing_by

GATEWAYS = 2


@asynccontextmanager
async def starting_gateways(backing: Backing, folder: Path) -> AsyncIterator[Stack]:
    """A stack with two gateways and no worker."""
    async with standing_by(backing, folder) as stack, AsyncExitStack() as exits:
        processes = [exits.enter_context(stack.process("runyard_gateway")) for _ in range(GATEWAYS)]
        stack.gateways += [await exits.enter_async_context(serving(process)) for process in processes]
        yield stack
        assert [process.complaints() for process in processes] == [[]] * GATEWAYS
