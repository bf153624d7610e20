"""Five gateways, five workers and three migrations start together on an empty database, after one that was killed."""

import asyncio
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path

import pytest
from tests.contract.store.test_migrations import processes
from tests.integration.stack import postgres_and_redis, serving, standing_by
from tests.standin import says

pytestmark = [pytest.mark.anyio, pytest.mark.services]

OF_A_ROLE = 5
MIGRATIONS = 3


async def test_all_of_them_serve(tmp_path: Path) -> None:
    with postgres_and_redis() as backing, ExitStack() as starting:
        async with standing_by(backing, tmp_path, migrate=lambda _: None) as stack, AsyncExitStack() as exits:
            workers, gateways = [
                [starting.enter_context(stack.process(role)) for _ in range(OF_A_ROLE)]
                for role in ("runyard_workers", "runyard_gateway")
            ]
            for process in (*workers, *gateways):
                await process.logged("waiting for the schema")
            await asyncio.to_thread(migrate_at_last, backing.database_url)
            serve = [await exits.enter_async_context(serving(gateway)) for gateway in gateways]
            for worker in workers:
                await worker.logged("worker registered")
            stack.standin.answers(*[says("Here.")] * OF_A_ROLE)
            results = await asyncio.gather(*(gateway.user().run("talker") for gateway in serve))
            assert [result["text"] for result in results] == ["Here."] * OF_A_ROLE
            started = (*workers, *gateways)
            assert await asyncio.gather(*(process.stop() for process in started)) == [0] * len(started)
            assert [process.complaints() for process in started] == [[]] * len(started)


def migrate_at_last(database_url: str) -> None:
    """One is killed half way; of those that begin then, one does it all."""
    with processes(database_url, 1, until="CREATE TABLE agent_runs") as [killed]:
        killed.go()
        killed.says("waiting", "half way")
        with processes(database_url, MIGRATIONS) as others:
            for process in others:
                process.go()
                process.says("waiting")
            killed.kill()
            words = sorted(process.last_words() for process in others)
    assert words[:-1] == ["done 0"] * (MIGRATIONS - 1) != [words[-1]]
