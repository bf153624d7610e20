"""Hot statements find their rows through an index, however many rows there are.

On Postgres also by a generic plan, which a prepared statement may get after five executions.
"""

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import pytest
import sqlalchemy as sa
from tests.contract.store.backlog import GROUPS, RUNS, WORKER, fill
from tests.contract.store.states import (
    AT,
    CALLS,
    OWNER,
    TENANT,
    TOTALS,
    USER,
    assistant_turn,
    completed,
    finished,
    new_turn,
    settle,
)
from tests.databases import POSTGRES, SQLITE, postgres_database, transaction

from runyard.db import boundaries, quiet, reads, retention, turns
from runyard.db.changes import changes_of
from runyard.db.claiming import take_usual
from runyard.db.claims import give_back, take
from runyard.db.closes import late_closes, mark_closed
from runyard.db.deaths import bury
from runyard.db.depth import take_census
from runyard.db.engine import Database
from runyard.db.groups import queued_groups
from runyard.db.limits import Limits, running_by_tenant, running_now
from runyard.db.locks import lock_owned
from runyard.db.migrate import upgrade
from runyard.db.positions import queue_positions
from runyard.db.scope import Scope
from runyard.db.turns import Held
from runyard.db.workers import beat
from runyard.ids import InvocationId, RunId, WorkerId
from runyard.lifecycle.accept import accept_turn

pytestmark = pytest.mark.anyio

Statement = tuple[str, Any]
Work = Callable[[Any], Awaitable[object]]

AGENTS = {"agent-1": "v1", "agent-3": "v1"}
HELD = Held(run_id=RunId("run_5"), invocation_id=InvocationId("inv_5"), generation=0)
FREE = new_turn(continues="run_1", agent="agent-0")


@pytest.fixture(scope="module", params=[SQLITE, POSTGRES])
def full_database_url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    def filled(url: str) -> str:
        upgrade(url)
        fill(url, tenant_id=TENANT, user_id=USER)
        return url

    if request.param == "sqlite":
        yield filled(f"sqlite:///{tmp_path_factory.mktemp('plans')}/runyard.db")
        return
    with postgres_database() as url:
        yield filled(url)


@pytest.fixture
async def full_database(full_database_url: str) -> AsyncIterator[Database]:
    opened = Database(full_database_url, pool_size=2)
    yield opened
    await opened.close()


async def groups(connection: Any) -> object:
    return await queued_groups(connection, ["queue-0"], list(AGENTS))


async def groups_under_limits(connection: Any) -> object:
    limits = Limits(per_user=1, per_tenant=RUNS, per_agent={"agent-1": RUNS})
    return await queued_groups(connection, ["queue-0"], list(AGENTS), limits)


async def counts_of_what_runs(connection: Any) -> None:
    limits = Limits(per_user=1, per_tenant=1, per_agent={"agent-1": 1})
    running = await running_now(connection, limits, ["tenant-1", TENANT])
    assert (running.by_tenant["tenant-1"] > 0, running.by_agent["agent-1"] > 0) == (True, True)
    assert (await running_by_tenant(connection, ["tenant-1"])).keys() == {"tenant-1"}


async def claim_under_limits(connection: Any) -> None:
    limits = Limits(per_user=RUNS, per_tenant=RUNS, per_agent=dict.fromkeys(AGENTS, RUNS))
    found = await queued_groups(connection, ["queue-0"], list(AGENTS), limits)
    taken = await take(
        connection, found, limits, worker_id=WorkerId(WORKER), agents=AGENTS, redis_run_id="redis", at=AT
    )
    assert taken is not None


async def claim(connection: Any) -> None:
    found = await queued_groups(connection, ["queue-0"], list(AGENTS))
    taken = await take(connection, found, worker_id=WorkerId(WORKER), agents=AGENTS, redis_run_id="redis", at=AT)
    assert taken is not None


async def usual_claim(connection: Any) -> None:
    if connection.dialect.name == "postgresql":
        worker = {"worker_id": WorkerId(WORKER), "agents": AGENTS, "redis_run_id": "redis", "at": AT}
        _, taken = await take_usual(connection, ["queue-0"], **worker)
        assert taken is not None
    else:
        await claim(connection)


async def held_by_worker(connection: Any) -> None:
    assert await connection.run_sync(beat, WorkerId(WORKER)) != []


async def owned_runs(connection: Any) -> None:
    before = (RUNS // 2, "run_x")
    assert len(await reads.runs_of(connection, OWNER, reads.RunFilter(), before=before, limit=20)) == 20


async def runs_of_a_tenant(connection: Any) -> None:
    before = (RUNS // 2, "run_x")
    admin = Scope.of_tenant(TENANT)
    assert len(await reads.runs_of(connection, admin, reads.RunFilter(), before=before, limit=20)) == 20


async def one_run_of_some_tenants(connection: Any) -> None:
    service = Scope(tenants=("tenant-1", TENANT), user_id=None)
    assert await reads.run_of(connection, "run_1", service) is not None
    assert await reads.invocation_of_stream(connection, "st_1", service) is not None
    assert await lock_owned(connection, "run_1", service) is not None


async def one_run(connection: Any) -> None:
    assert await reads.run_of(connection, "run_1", OWNER) is not None
    await reads.invocations_of(connection, "run_1", OWNER, before=(AT, "x"), limit=20)
    await reads.messages_of(connection, "run_1", OWNER, after_seq=0, descending=False, limit=20)


async def one_stream(connection: Any) -> None:
    found = await reads.invocation_of_stream(connection, "st_1", OWNER)
    assert found is not None
    await reads.steps_of(connection, found[0])
    await reads.invocations_by_stream(connection, [f"st_{number}" for number in range(30)])


async def waiting_streams(connection: Any) -> None:
    found = await queue_positions(connection, [f"st_{number}" for number in range(200)])
    assert len(found) == 20


async def acceptance(connection: Any) -> None:
    await accept_turn(connection, new_turn(session_id="s1"))
    await accept_turn(connection, FREE)


async def whole_turn(connection: Any) -> None:
    await turns.load_held(connection, HELD)
    await turns.load_messages(connection, HELD.run_id)
    await turns.load_calls(connection, HELD.run_id, 2)
    await turns.append_turn(connection, HELD, assistant_turn(4), CALLS, TOTALS, at=AT)
    await turns.start_calls(connection, HELD, 4, starting=[0, 1], finished=[], at=AT)
    await turns.finish_call(connection, HELD, 4, finished(0), at=AT)
    await boundaries.append_results(connection, HELD, 4, finished=[finished(1)], results=[], at=AT)
    await settle(connection, HELD, completed(), at=AT)
    await mark_closed(connection, [HELD.invocation_id])


async def quiet_boundaries(connection: Any) -> None:
    await turns.append_turn(connection, HELD, assistant_turn(4), CALLS, TOTALS, at=AT)
    answer = {"finished": [finished(0), finished(1)], "results": [], "at": AT}
    assert await quiet.append_results(connection, HELD, 4, **answer) is not None
    end = {"results": [], "conclude": lambda *_: completed(), "totals": TOTALS, "at": AT}
    assert await quiet.end_turn(connection, HELD, turn=assistant_turn(6), **end) is not None


async def hand_over(connection: Any) -> None:
    assert await give_back(connection, HELD.run_id, HELD.generation) is not None


async def late_streams(connection: Any) -> None:
    assert [invocation.id for invocation in await late_closes(connection)] == ["inv_11"]
    await mark_closed(connection, [InvocationId("inv_11")])


async def old_runs(connection: Any) -> None:
    done = await retention.forget_runs(connection, age_ms=0)
    assert (done.rows, done.more) == (retention.RUNS_A_BATCH, True)


async def old_calls(connection: Any) -> None:
    done = await retention.forget_calls(connection, age_ms=0)
    assert (done.rows, done.more) == (retention.LEDGERS_A_BATCH, True)


async def old_keys(connection: Any) -> None:
    for done in (await retention.forget_keys(connection), await retention.forget_deletions(connection)):
        assert (done.rows, done.more) == (retention.ROWS_A_BATCH, True)


async def depth_of_queues(connection: Any) -> None:
    census = await take_census(connection, seen_since=0)
    assert sum(load.runs for load in census.loads) == RUNS // 5


async def death(connection: Any) -> None:
    assert await connection.run_sync(bury, WorkerId(WORKER), 0) is not None


EXPECTED: dict[Work, set[str]] = {
    groups: {"ix_agent_runs_claim", "ix_agent_runs_running"},
    groups_under_limits: {
        "ix_agent_runs_claim",
        "ix_agent_runs_user_claim",
        "ix_agent_runs_running",
    },
    counts_of_what_runs: {"ix_agent_runs_running"},
    claim_under_limits: {"ix_agent_runs_user_claim", "ix_agent_runs_running"},
    claim: {"ix_agent_runs_claim", "ix_agent_inputs_unfolded"},
    usual_claim: {"ix_agent_runs_claim", "ix_agent_inputs_unfolded"},
    held_by_worker: {"ix_agent_runs_worker"},
    owned_runs: {"ix_agent_runs_owner"},
    runs_of_a_tenant: {"ix_agent_runs_tenant"},
    one_run_of_some_tenants: set(),
    one_run: {"ix_agent_invocations_run", "ix_agent_inputs_unfolded"},
    one_stream: {"agent_invocations"},
    waiting_streams: {"ix_agent_runs_claim"},
    acceptance: {"uq_agent_runs_session"},
    whole_turn: set(),
    quiet_boundaries: {"ix_agent_inputs_unfolded"},
    hand_over: set(),
    late_streams: {"ix_agent_invocations_unclosed"},
    old_runs: {"ix_agent_runs_at_rest", "ix_agent_invocations_run", "ix_idempotency_keys_run"},
    old_calls: {"ix_agent_invocations_calls"},
    old_keys: {"ix_idempotency_keys_created", "ix_agent_deletions_deleted"},
    depth_of_queues: {"ix_agent_runs_running", "ix_agent_runs_waiting"},
    death: {"ix_agent_runs_worker"},
}
every_work = pytest.mark.parametrize("work", EXPECTED, ids=lambda work: work.__name__)


@every_work
async def test_no_table_is_read_from_end_to_end(full_database: Database, work: Work) -> None:
    found = ""
    for statement in await executed(full_database, work):
        for plan in await plans(full_database, statement):
            assert not WHOLE_TABLE.search(plan), f"{statement}\n{plan}"
            found += plan
    for index in EXPECTED[work]:
        assert index in found, found


ALIASES = r"agent_(?!manifests)\w+|(heads|users)_(queued|head)|near|near_row|best|running|ahead"
WHOLE_TABLE = re.compile(rf"Seq Scan on agent_(?!manifests)|^SCAN ({ALIASES})$", re.MULTILINE)
"""Of `workers` and `agent_manifests`, too few for an index, every row is read."""


@pytest.mark.parametrize("full_database_url", [POSTGRES], indirect=True)
@every_work
async def test_postgres_reads_no_table_from_end_to_end(full_database: Database, work: Work) -> None:
    """As it happens, the checks of foreign keys included, which no plan shows."""
    async with transaction(full_database) as connection:
        await work(connection)
        scanned = sa.text("SELECT relname FROM pg_stat_xact_user_tables WHERE seq_scan > 0")
        assert set((await connection.execute(scanned)).scalars()) <= {"workers", "agent_manifests"}
        await connection.rollback()


@pytest.mark.parametrize("full_database_url", [POSTGRES], indirect=True)
@pytest.mark.parametrize("user_id", ["newcomer", None])
async def test_an_old_cursor_of_the_feed_reads_no_rows_of_others(full_database: Database, user_id: str | None) -> None:
    """They are all that changed since then, of all tenants. (Deletions are kept for a day.)"""

    async def comes_back(connection: Any) -> None:
        scope = Scope(tenants=(TENANT if user_id else "no-tenant",), user_id=user_id)
        assert (await changes_of(connection, [scope], since=0, before=2**60)).changes == []

    for statement, parameters in await executed(full_database, comes_back):
        plan = await analyzed(full_database, statement, parameters)
        scans = [node for node in nodes(plan) if node.get("Relation Name") in {"agent_runs", "agent_messages"}]
        read = [(scan["Actual Rows"] + scan.get("Rows Removed by Filter", 0)) * scan["Actual Loops"] for scan in scans]
        assert sum(read) <= GROUPS, plan


@pytest.mark.parametrize(
    ("work", "index"), [(owned_runs, "ix_agent_runs_owner"), (runs_of_a_tenant, "ix_agent_runs_tenant")]
)
async def test_the_newest_runs_are_not_sorted(full_database: Database, work: Work, index: str) -> None:
    [statement] = await executed(full_database, work)
    for plan in await plans(full_database, statement):
        assert index in plan
        assert not re.search(r"Sort|TEMP B-TREE", plan), plan


async def test_the_best_of_a_group_is_not_sorted(full_database: Database) -> None:
    best = [statement for statement in await executed(full_database, claim) if "LIMIT" in statement[0]][-1]
    for plan in await plans(full_database, best):
        assert "ix_agent_runs_claim" in plan
        assert not re.search(r"Sort|TEMP B-TREE", plan), plan


@pytest.mark.parametrize("full_database_url", [POSTGRES], indirect=True)
async def test_the_row_that_a_usual_claim_locks_is_the_first_of_an_index(full_database: Database) -> None:
    """Sorted, all rows of the group would be locked."""
    [statement] = await executed(full_database, usual_claim)
    for plan in await plans(full_database, statement):
        assert re.search(r"LockRows.*\n\s+->  Index Scan using ix_agent_runs_claim on agent_runs", plan), plan


async def test_the_head_of_a_group_is_read_by_rank(full_database: Database) -> None:
    """By user it would be all of the group, sorted; which looks cheap while no statistics tell of a large group."""
    statement = (await executed(full_database, groups_under_limits))[-1]
    for plan in await plans(full_database, statement):
        assert re.search(r"using ix_agent_runs_claim on agent_runs near |near USING INDEX ix_agent_runs_claim \(", plan)


@pytest.mark.parametrize("full_database_url", [SQLITE], indirect=True)
async def test_sqlite_steps_from_group_to_group(full_database: Database) -> None:
    [statement] = await executed(full_database, groups)
    [plan] = await plans(full_database, statement)
    assert "SEARCH heads_queued USING INDEX ix_agent_runs_claim ((queue,agent,tenant_id)>(?,?,?))" in plan


@pytest.mark.parametrize("full_database_url", [POSTGRES], indirect=True)
async def test_postgres_steps_from_group_to_group(full_database: Database) -> None:
    """It reads one entry of the index a group, not one a queued run."""
    [(statement, parameters)] = await executed(full_database, groups)
    visits = [
        node["Actual Rows"] * node["Actual Loops"]
        for node in nodes(await analyzed(full_database, statement, parameters))
        if node.get("Index Name") == "ix_agent_runs_claim"
    ]
    assert len(visits) == 2, "the first group, and the next one of each"
    assert sum(visits) <= GROUPS + 1


async def executed(database: Database, work: Work) -> list[Statement]:
    """The statements of `work`, each once; what they wrote is rolled back."""
    found: dict[str, Any] = {}

    def note(_connection: Any, _cursor: Any, statement: str, parameters: Any, _context: Any, executemany: bool) -> None:
        if statement.startswith(("SELECT", "WITH", "INSERT", "UPDATE", "DELETE")):
            found[statement] = parameters[0] if executemany else parameters

    sa.event.listen(database._engine.sync_engine, "before_cursor_execute", note)
    async with transaction(database) as connection:
        await work(connection)
        await connection.rollback()
    sa.event.remove(database._engine.sync_engine, "before_cursor_execute", note)
    return list(found.items())


async def plans(database: Database, statement: Statement) -> list[str]:
    """How the database would execute a statement: for these parameters, and on Postgres for any."""
    text, parameters = statement
    explain = "EXPLAIN QUERY PLAN" if database.is_sqlite else "EXPLAIN"

    async def custom(connection: Any) -> str:
        rows = await connection.exec_driver_sql(f"{explain} {text}", parameters)
        return "\n".join(row[-1] for row in rows)

    async def generic(connection: Any) -> str:
        numbers = {name: f"${number}" for number, name in enumerate(parameters, 1)}
        numbered = re.sub(r"%\((\w+)\)s", lambda match: numbers[match[1]], text)
        await connection.exec_driver_sql("SET LOCAL plan_cache_mode = force_generic_plan")
        await connection.exec_driver_sql(f"PREPARE hot AS {numbered}")
        values = f"({', '.join('NULL' for _ in numbers)})" if numbers else ""
        rows = await connection.exec_driver_sql(f"EXPLAIN EXECUTE hot {values}")
        found = "\n".join(row[-1] for row in rows)
        await connection.exec_driver_sql("DEALLOCATE hot")
        return found

    if database.is_sqlite:
        return [await database.read(custom)]
    return [await database.read(custom), await database.write(generic)]


async def analyzed(database: Database, statement: str, parameters: Any) -> dict[str, Any]:
    """The plan of Postgres, with what it read."""

    async def analyze(connection: Any) -> Any:
        explained = await connection.exec_driver_sql(f"EXPLAIN (ANALYZE, FORMAT JSON) {statement}", parameters)
        return explained.scalar_one()

    [plan] = await database.read(analyze)
    found: dict[str, Any] = plan["Plan"]
    return found


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for inner in plan.get("Plans", []):
        yield from nodes(inner)
