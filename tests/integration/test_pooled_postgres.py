"""Postgres behind a pool in transaction mode: nothing of a session is relied on from one transaction to the next."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace

import pytest
from tests.fault.soundness import assert_sound
from tests.integration.stack import Backing, Stack, postgres_and_redis, starting_stack
from tests.integration.transaction_pool import TransactionPool, pooled
from tests.standin import By, calls, hold, says

from runyard.clock import now_ms
from runyard.db.migrate import require_revision
from runyard.errors import StartError

pytestmark = [pytest.mark.anyio, pytest.mark.services]

SESSIONS = 2
RUNS = 30


@pytest.fixture(scope="module")
def backing() -> Iterator[Backing]:
    with postgres_and_redis() as backing:
        yield backing


@pytest.fixture(scope="module")
def pool(backing: Backing) -> Iterator[TransactionPool]:
    with pooled(backing.database_url, size=SESSIONS) as pool:
        yield pool


@pytest.fixture(scope="module")
async def stack(
    backing: Backing, pool: TransactionPool, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Stack]:
    """It was migrated through the pool, too."""
    async with starting_stack(replace(backing, database_url=pool.url), tmp_path_factory.mktemp("pooled")) as stack:
        yield stack
    assert (pool.prepared, pool.refused) == ([], [])


async def test_a_system_lives_on_two_sessions(stack: Stack, pool: TransactionPool, unique: str) -> None:
    """More runs at once than sessions, each of many transactions; none is held while a model says nothing."""
    began_ms = now_ms()
    stack.standin.answers(
        calls("charge", {"order": "one"}).calls("charge", {"order": "two"}), says(hold(unique), "Paid."), by=By.TURN
    )
    api = stack.gateway.user()
    started = await asyncio.gather(*(api.start("mortal") for _ in range(RUNS)))
    await stack.standin.gate(unique).reached(RUNS)
    cancelled, *others = started
    assert (await api.post(f"/v1/runs/{cancelled['runId']}/cancel")).status_code == 202
    assert (await api.settled(cancelled["invocationId"]))["status"] == "cancelled"
    stack.standin.gate(unique).release()
    results = await asyncio.gather(*(api.settled(each["invocationId"]) for each in others))
    assert {result["text"] for result in results} == {"Paid."}
    for each in started:
        assert len(stack.effects(each["runId"])) == 2
    await assert_sound(stack, since_ms=began_ms)
    assert pool.opened <= SESSIONS < pool.clients


def test_without_the_word_such_a_pool_is_told_what_it_does_not_take(pool: TransactionPool) -> None:
    url = pool.url.replace("pgbouncer=true", "pgbouncer=false")
    with pytest.raises(StartError, match="unsupported startup parameter: options"):
        require_revision(url)
    pool.refused.clear()
