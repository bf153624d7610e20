"""Several writes in one round trip: all of them, or none."""

from typing import Any

import pytest
import sqlalchemy as sa
from tests.contract.store.states import AT, accepted, new_turn

from runyard.db.engine import Database
from runyard.db.tables import agent_invocations, agent_messages, agent_runs
from runyard.db.together import Insert, InsertRows, Update, UpdateRows, write_returning, write_together
from runyard.lifecycle.accept import commit_turn

pytestmark = pytest.mark.anyio

RETITLE = Update(table=agent_runs, columns=("title", "status"), where=agent_runs.c.id == sa.bindparam("run"))
RESTATE = Update(
    table=agent_invocations, columns=("status", "result"), where=agent_invocations.c.id == sa.bindparam("invocation")
)
BEGIN = Update(
    table=agent_invocations,
    columns=("status",),
    where=RESTATE.where,
    computed={"started_at": sa.func.coalesce(agent_invocations.c.started_at, sa.bindparam("began"))},
    returning=True,
)
APPEND = Insert(
    table=agent_messages, columns=("run_id", "seq", "invocation_id", "role", "content", "usage", "created_at")
)
APPEND_ROWS = InsertRows(table=APPEND.table, columns=APPEND.columns)
REWRITE_ROWS = UpdateRows(
    table=agent_messages, columns=("content",), keys=("seq",), where=agent_messages.c.run_id == sa.bindparam("of_run")
)
APPEND_ONCE = Insert(table=APPEND.table, columns=APPEND.columns, unless_exists=True)


def row(run: Any, seq: int, content: Any = "hello") -> dict[str, Any]:
    return {
        "run_id": run.id,
        "seq": seq,
        "invocation_id": run.invocation_id,
        "role": "user",
        "content": content,
        "usage": None,
        "created_at": AT,
    }


async def stored(database: Database, run: Any) -> tuple[str | None, str, Any, list[Any]]:
    """Title of the run, status and result of its invocation, contents of its rows."""

    async def load(connection: Any) -> Any:
        title = await connection.execute(sa.select(agent_runs.c.title).where(agent_runs.c.id == run.id))
        invocation = await connection.execute(
            sa.select(agent_invocations.c.status, agent_invocations.c.result).where(
                agent_invocations.c.id == run.invocation_id
            )
        )
        rows = await connection.execute(
            sa.select(agent_messages.c.content).where(agent_messages.c.run_id == run.id).order_by(agent_messages.c.seq)
        )
        return title.scalar_one(), *invocation.one(), list(rows.scalars())

    found: tuple[str | None, str, Any, list[Any]] = await database.read(load)
    return found


async def test_all_happen_though_their_columns_share_names(database: Database) -> None:
    run = await accepted(database)
    happened = await database.write(
        write_together,
        (RETITLE, {"run": run.id, "title": "Swifts", "status": "idle"}),
        (APPEND, row(run, 1)),
        (APPEND, row(run, 2, "again")),
        (RESTATE, {"invocation": run.invocation_id, "status": "failed", "result": {"text": "no"}}),
    )
    assert happened
    assert await stored(database, run) == ("Swifts", "failed", {"text": "no"}, ["hello", "again"])


async def test_the_last_write_may_give_its_row_back(database: Database) -> None:
    run = await accepted(database)
    begun = {"invocation": run.invocation_id, "status": "running", "began": AT + 7}
    for title, began in (("Swifts", AT + 7), ("Terns", AT + 9)):
        retitled = (RETITLE, {"run": run.id, "title": title, "status": "idle"})
        changed = await database.write(write_returning, retitled, (BEGIN, begun | {"began": began}))
        assert changed is not None
        assert (changed.id, changed.status, changed.started_at) == (run.invocation_id, "running", AT + 7)
    other = (RETITLE, {"run": "run_other", "title": "Larks", "status": "idle"})
    assert await database.write(write_returning, other, (BEGIN, begun | {"status": "failed"})) is None
    assert (await stored(database, run))[:2] == ("Terns", "running")


async def test_many_rows_are_one_write(database: Database) -> None:
    run = await accepted(database)
    first = (RETITLE, {"run": run.id, "title": "Swifts", "status": "idle"})
    contents = ["hello", [{"type": "text", "text": "b\u00e4h", "a": None}], ""]
    rows = [row(run, seq, content) for seq, content in enumerate(contents, 1)]
    await database.write(write_together, first, (APPEND_ROWS, {"rows": rows}))
    assert (await stored(database, run))[3] == contents
    changes = [{"seq": 3, "content": "third"}, {"seq": 1, "content": "first"}, {"seq": 4, "content": "of nobody"}]
    await database.write(write_together, first, (REWRITE_ROWS, {"of_run": run.id, "rows": changes}))
    assert (await stored(database, run))[3] == ["first", contents[1], "third"]
    other = (RETITLE, {"run": "run_other", "title": "Larks", "status": "idle"})
    rewritten = (REWRITE_ROWS, {"of_run": run.id, "rows": [{"seq": 2, "content": "second"}]})
    appended = (APPEND_ROWS, {"rows": [row(run, 4)]})
    assert not await database.write(write_together, other, rewritten, appended)
    assert (await stored(database, run))[3] == ["first", contents[1], "third"]


async def test_none_happens_where_the_first_finds_no_row(database: Database) -> None:
    run = await accepted(database)
    before = await stored(database, run)
    happened = await database.write(
        write_together,
        (RETITLE, {"run": "run_other", "title": "Swifts", "status": "idle"}),
        (APPEND, row(run, 1)),
        (RESTATE, {"invocation": run.invocation_id, "status": "failed", "result": {"text": "no"}}),
    )
    assert not happened
    assert await stored(database, run) == before


async def test_none_happens_where_the_firsts_row_exists(database: Database) -> None:
    run = await accepted(database)
    assert await database.write(write_together, (APPEND_ONCE, row(run, 1, "first")))
    happened = await database.write(
        write_together, (APPEND_ONCE, row(run, 1, "second")), (APPEND, row(run, 2, "its follower"))
    )
    assert not happened
    assert (await stored(database, run))[3] == ["first"]


async def test_a_row_too_many_undoes_all(database: Database) -> None:
    run = await accepted(database)
    before = await stored(database, run)
    await database.write(write_together, (APPEND, row(run, 1)))
    with pytest.raises(sa.exc.IntegrityError):
        await database.write(
            write_together,
            (RETITLE, {"run": run.id, "title": "Swifts", "status": "idle"}),
            (APPEND, row(run, 1, "second")),
        )
    assert await stored(database, run) == (*before[:3], ["hello"])


async def test_a_new_run_takes_one_statement_on_postgres(database: Database) -> None:
    statements: list[str] = []

    def note(*arguments: Any) -> None:
        statements.append(arguments[2])

    sa.event.listen(database._engine.sync_engine, "before_cursor_execute", note)
    await commit_turn(database, new_turn())
    sa.event.remove(database._engine.sync_engine, "before_cursor_execute", note)
    assert len(statements) == (4 if database.is_sqlite else 1)  # with BEGIN IMMEDIATE, which is ours there
