"""Claiming: which run a worker gets, and what happens when several want it at once."""

import contextlib
from collections.abc import Iterator
from typing import Any

import anyio
import pytest
import sqlalchemy as sa
from tests.contract.store.races import started_and_blocked
from tests.contract.store.states import (
    AGENTS,
    AT,
    OWNER,
    accepted,
    claim,
    claimed,
    completed,
    contents,
    held,
    new_turn,
    registered,
    run_row,
    settle,
)
from tests.databases import on_postgres, transaction

from runyard.db.claims import Claim, GivenBack, give_back, take
from runyard.db.engine import Database, sync_engine
from runyard.db.groups import queued_groups
from runyard.db.locks import lock_owned
from runyard.db.records import Message
from runyard.db.tables import agent_inputs, workers
from runyard.db.turns import load_messages
from runyard.db.workers import unregister
from runyard.errors import WorkerGone
from runyard.ids import WorkerId, new_input_id, new_worker_id
from runyard.lifecycle.accept import commit_turn
from runyard.runs import RunStatus

pytestmark = pytest.mark.anyio


@pytest.fixture
def worker(database_url: str) -> WorkerId:
    return registered(database_url)


@pytest.fixture
def other_worker(database_url: str) -> WorkerId:
    return registered(database_url)


async def test_a_claim_takes_the_run_and_folds_its_input(database: Database, worker: WorkerId) -> None:
    run = await accepted(database, content="Where do swifts winter?")
    found = await claimed(database, worker, agents={"researcher": "v7"}, redis_run_id="redis-7", at=AT + 5)
    assert (found.run.id, found.run.status, found.run.worker_id) == (run.id, RunStatus.RUNNING, worker)
    assert (found.run.generation, found.run.agent_version, found.run.last_seq) == (1, "v7", 1)
    assert (found.invocation.status, found.invocation.started_at) == (RunStatus.RUNNING, AT + 5)
    assert found.invocation.redis_run_id == "redis-7"
    assert [item.content for item in found.folded] == ["Where do swifts winter?"]
    assert not found.is_takeover
    [message] = await transcript(database, found)
    assert (message.seq, message.role, message.content) == (1, "user", "Where do swifts winter?")
    assert message.invocation_id == found.invocation.id
    assert await run_row(database, run.id) == found.run


async def test_nothing_queued_is_no_claim(database: Database, worker: WorkerId) -> None:
    assert await claim(database, worker) is None
    await accepted(database)
    await claimed(database, worker)
    assert await claim(database, worker) is None


async def test_a_worker_claims_only_what_it_serves(database: Database, worker: WorkerId) -> None:
    await accepted(database, queue="bulk", at=AT)
    await accepted(database, agent="poet", at=AT + 1)
    await accepted(database, queue="bulk", agent="poet", at=AT + 2)
    mine = await accepted(database, at=AT + 3)
    assert (await claimed(database, worker)).run.id == mine.id
    assert await claim(database, worker) is None
    assert await claim(database, worker, queues=[], agents=AGENTS) is None
    assert await claim(database, worker, queues=["bulk"], agents={}) is None
    everything = {"queues": ["bulk", "default"], "agents": {"poet": "v1", "researcher": "v1"}}
    taken = [await claimed(database, worker, **everything) for _ in range(3)]
    assert [found.run.rank for found in taken] == [AT, AT + 1, AT + 2]


async def test_the_lowest_rank_comes_first_then_the_lowest_id(database: Database, worker: WorkerId) -> None:
    late = await accepted(database, at=AT + 2, agent="poet")
    twins = [await accepted(database, at=AT + 1) for _ in range(3)]
    early = await accepted(database, at=AT, queue="bulk")
    everything = {"queues": ["default", "bulk"], "agents": {"poet": "v1", "researcher": "v1"}}
    order = [(await claimed(database, worker, **everything)).run.id for _ in range(5)]
    assert order == [early.id, *sorted(run.id for run in twins), late.id]


async def test_the_tenant_with_the_fewest_running_runs_comes_first(database: Database, worker: WorkerId) -> None:
    for at in range(4):
        await accepted(database, tenant_id="large", at=AT + at)
    await accepted(database, tenant_id="small", at=AT + 10)
    await accepted(database, tenant_id="tiny", at=AT + 11)
    found = [await claimed(database, worker) for _ in range(6)]
    assert [item.run.tenant_id for item in found] == ["large", "small", "tiny", "large", "large", "large"]
    await accepted(database, tenant_id="large", at=AT + 12)
    await accepted(database, tenant_id="tiny", at=AT + 13)
    tiny = found[2]
    await database.write(settle, held(tiny), completed(), at=AT + 14)
    assert (await claimed(database, worker)).run.tenant_id == "tiny", "a settled run no longer counts"


async def test_a_tenants_running_runs_count_over_all_agents_and_queues(database: Database, worker: WorkerId) -> None:
    await accepted(database, tenant_id="a", queue="bulk", agent="poet", at=AT)
    await claimed(database, worker, queues=["bulk"], agents={"poet": "v1"})
    await accepted(database, tenant_id="a", at=AT + 1)
    await accepted(database, tenant_id="b", at=AT + 2)
    assert (await claimed(database, worker)).run.tenant_id == "b"


async def test_two_claims_at_once_take_two_runs(
    database: Database, rival: Database, worker: WorkerId, other_worker: WorkerId
) -> None:
    first, second = await accepted(database, at=AT), await accepted(database, at=AT + 1)
    async with transaction(database) as connection:
        mine = await taken(connection, database, worker)
        assert mine is not None
        if database.is_sqlite:
            async with started_and_blocked(rival, claim(rival, other_worker)) as task:
                await connection.commit()
            theirs = task.result()
        else:
            theirs = await claim(rival, other_worker)  # it skips the row that is held, it does not wait
    assert theirs is not None
    assert (mine.run.id, theirs.run.id) == (first.id, second.id)
    assert (await run_row(database, first.id)).worker_id == worker
    assert (await run_row(database, second.id)).worker_id == other_worker


async def test_two_claims_at_once_take_one_run_once(
    database: Database, rival: Database, worker: WorkerId, other_worker: WorkerId
) -> None:
    run = await accepted(database)
    async with transaction(database) as connection:
        assert await taken(connection, database, worker) is not None
        async with started_and_blocked(rival, claim(rival, other_worker)) as task:
            await connection.commit()
    assert task.result() is None
    row = await run_row(database, run.id)
    assert (row.worker_id, row.generation, row.last_seq) == (worker, 1, 1)


async def test_a_claim_gets_the_run_whose_holder_lets_go(
    database: Database, rival: Database, worker: WorkerId, other_worker: WorkerId
) -> None:
    run = await accepted(database)
    async with transaction(database) as connection:
        assert await taken(connection, database, worker) is not None
        async with started_and_blocked(rival, claim(rival, other_worker)) as task:
            await connection.rollback()
    found = task.result()
    assert found is not None
    assert (found.run.id, found.run.worker_id, found.run.generation) == (run.id, other_worker, 1)
    assert len(await transcript(database, found)) == 1


async def test_a_claim_waits_for_the_gateway_that_holds_the_run(
    database: Database, rival: Database, worker: WorkerId
) -> None:
    run = await accepted(database)
    async with transaction(database) as connection:
        assert await lock_owned(connection, run.id, OWNER) is not None
        async with started_and_blocked(rival, claim(rival, worker)) as task:
            await connection.commit()
    found = task.result()
    assert found is not None
    assert found.run.id == run.id


async def test_many_claims_at_once_take_each_run_once(
    database: Database, rival: Database, worker: WorkerId, other_worker: WorkerId
) -> None:
    runs = {(await accepted(database, tenant_id=f"tenant-{number % 3}", at=AT + number)).id for number in range(12)}
    taken_runs: list[str] = []

    async def claim_until_none(through: Database, worker_id: WorkerId) -> None:
        while (found := await claim(through, worker_id)) is not None:
            taken_runs.append(found.run.id)

    async with anyio.create_task_group() as group:
        for _ in range(3):
            group.start_soon(claim_until_none, database, worker)
            group.start_soon(claim_until_none, rival, other_worker)
    assert len(taken_runs) == len(runs)
    assert set(taken_runs) == runs


async def test_a_worker_without_a_row_claims_nothing(database: Database, database_url: str, worker: WorkerId) -> None:
    await accepted(database)
    before = await contents(database)
    with pytest.raises(WorkerGone):
        await claim(database, new_worker_id())
    assert await contents(database) == before
    engine = sync_engine(database_url)
    with engine.begin() as connection:
        unregister(connection, worker)
    engine.dispose()
    with pytest.raises(WorkerGone):
        await claim(database, worker)


async def test_a_worker_that_is_declared_dead_while_it_claims_claims_nothing(
    database: Database, rival: Database, worker: WorkerId
) -> None:
    run = await accepted(database)
    async with transaction(database) as connection:
        await connection.execute(sa.delete(workers).where(workers.c.id == worker))
        async with started_and_blocked(rival, claim(rival, worker)) as task:
            await connection.commit()
    assert isinstance(task.exception(), WorkerGone)
    assert await run_row(database, run.id) == run


async def test_a_run_given_back_belongs_to_the_next_worker(
    database: Database, worker: WorkerId, other_worker: WorkerId
) -> None:
    run = await accepted(database)
    first = await claimed(database, worker, redis_run_id="redis-1", at=AT + 1)
    given_back = await database.write(give_back, run.id, first.run.generation)
    assert given_back == GivenBack(run_id=run.id, invocation_id=first.invocation.id, queue=run.queue)
    row = await run_row(database, run.id)
    assert (row.status, row.worker_id, row.generation) == (RunStatus.QUEUED, None, 2)
    assert (row.rank, row.invocation_id) == (run.rank, run.invocation_id), "it keeps its place and its invocation"
    second = await claimed(database, other_worker, redis_run_id="redis-2", at=AT + 9)
    assert second.is_takeover
    assert (second.run.generation, second.run.worker_id) == (3, other_worker)
    assert (second.invocation.started_at, second.invocation.redis_run_id) == (AT + 1, "redis-1")


async def test_only_the_run_that_is_held_is_given_back(database: Database, worker: WorkerId) -> None:
    run = await accepted(database)
    before = await contents(database)
    assert await database.write(give_back, run.id, 0) is None, "it is only queued"
    assert await contents(database) == before
    found = await claimed(database, worker)
    running = await contents(database)
    assert await database.write(give_back, run.id, found.run.generation - 1) is None
    assert await database.write(give_back, run.id, found.run.generation + 1) is None
    assert await contents(database) == running
    await database.write(settle, held(found), completed(), at=AT + 2)
    settled = await contents(database)
    assert await database.write(give_back, run.id, found.run.generation) is None
    assert await contents(database) == settled


async def test_a_run_is_given_back_once(database: Database, rival: Database, worker: WorkerId) -> None:
    run = await accepted(database)
    found = await claimed(database, worker)
    async with transaction(database) as connection:
        assert await give_back(connection, run.id, found.run.generation) is not None
        async with started_and_blocked(rival, rival.write(give_back, run.id, found.run.generation)) as task:
            await connection.commit()
    assert task.result() is None
    assert (await run_row(database, run.id)).generation == 2


async def test_an_input_is_folded_once_over_a_crash(
    database: Database, worker: WorkerId, other_worker: WorkerId
) -> None:
    run = await accepted(database, content="Where do swifts winter?")
    async with transaction(database) as connection:
        assert await taken(connection, database, worker) is not None
        await connection.rollback()  # the worker dies before its claim is committed
    first = await claimed(database, worker)
    await database.write(give_back, run.id, first.run.generation)  # and another one after it
    second = await claimed(database, other_worker)
    assert second.folded == ()
    assert second.run.last_seq == 1
    assert [message.content for message in await transcript(database, second)] == ["Where do swifts winter?"]


async def test_inputs_that_waited_together_become_one_turn(database: Database, worker: WorkerId) -> None:
    run = await accepted(database, content="Where do swifts winter?")
    picture = [{"type": "image", "source": {"type": "url", "url": "https://images.example/swift.png"}}]
    await database.write(add_input, run, 3, picture)
    await database.write(add_input, run, 2, "And terns?")
    found = await claimed(database, worker)
    assert [item.position for item in found.folded] == [1, 2, 3]
    [message] = await transcript(database, found)
    assert message.content == [
        {"type": "text", "text": "Where do swifts winter?"},
        {"type": "text", "text": "And terns?"},
        *picture,
    ]
    assert await database.read(folds) == [1, 1, 1]


@on_postgres
async def test_what_comes_between_a_claims_first_look_and_its_lock_is_folded(
    database: Database, rival: Database, worker: WorkerId
) -> None:
    run = await accepted(database)
    async with transaction(database) as gate:
        await gate.execute(sa.text("SELECT pg_advisory_xact_lock(1)"))
        with gated_before_its_lock(rival):
            async with started_and_blocked(rival, claim(rival, worker)) as task:
                await commit_turn(database, new_turn(continues=run.id, content="And terns?"))
                await gate.commit()
    found = task.result()
    assert found is not None
    assert [item.content for item in found.folded] == ["Where do swifts winter?", "And terns?"]
    [message] = await transcript(database, found)
    assert message.content == "Where do swifts winter?\n\nAnd terns?"


@contextlib.contextmanager
def gated_before_its_lock(database: Database) -> Iterator[None]:
    """The one statement of a claim waits, once it sees what is queued, for another's lock (1) to go."""

    gate = "gate AS MATERIALIZED (SELECT (SELECT pg_advisory_xact_lock_shared(1)) IS NOT NULL AS is_open)"

    def wait(_connection: Any, _cursor: Any, statement: str, parameters: Any, *_: Any) -> tuple[str, Any]:
        gated = statement.replace("locked AS MATERIALIZED", f"{gate}, locked AS MATERIALIZED")
        return gated.replace("WHERE row.status", "WHERE (SELECT is_open FROM gate) AND row.status"), parameters

    sa.event.listen(database._engine.sync_engine, "before_cursor_execute", wait, retval=True)
    try:
        yield
    finally:
        sa.event.remove(database._engine.sync_engine, "before_cursor_execute", wait)


async def taken(connection: Any, database: Database, worker_id: WorkerId) -> Claim | None:
    """`take` in a transaction that the test holds open."""
    groups = await database.read(queued_groups, ["default"], list(AGENTS))
    return await take(connection, groups, worker_id=worker_id, agents=AGENTS, redis_run_id="redis-1", at=AT + 1)


async def transcript(database: Database, found: Claim) -> list[Message]:
    return await database.read(load_messages, found.run.id)


async def add_input(connection: Any, run: Any, position: int, content: Any) -> None:
    row = {"id": new_input_id(), "run_id": run.id, "invocation_id": run.invocation_id, "created_at": AT}
    await connection.execute(sa.insert(agent_inputs), row | {"position": position, "opens": False, "content": content})


async def folds(connection: Any) -> list[int | None]:
    return list((await connection.execute(sa.select(agent_inputs.c.folded_in_seq))).scalars())
