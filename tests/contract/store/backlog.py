"""Fills a database as after long use: many settled runs, some queued in many groups, some running."""

from typing import Any

import sqlalchemy as sa

from runyard.db.engine import sync_engine
from runyard.db.tables import (
    Json,
    agent_calls,
    agent_deletions,
    agent_inputs,
    agent_invocations,
    agent_messages,
    agent_runs,
    idempotency_keys,
    workers,
)

RUNS = 20_000
GROUPS = 2 * 5 * 7  # queues, agents, tenants
WORKER = "wk_0"
OWNED_EVERY = 8  # of all runs, those that belong to one user
UNCLOSED = 11  # the run whose stream is still open though it is settled

_numbers = sa.select(sa.literal(0).label("n")).cte("numbers", recursive=True)
_numbers = _numbers.union_all(sa.select(_numbers.c.n + 1).where(_numbers.c.n < RUNS - 1))
_n = _numbers.c.n


def fill(database_url: str, *, tenant_id: str, user_id: str) -> None:
    """Every tenth run is queued, every tenth running on one of ten workers; `user_id` owns every eighth."""
    engine = sync_engine(database_url)
    try:
        _insert(engine, tenant_id, user_id)
    finally:
        engine.dispose()


def _insert(engine: sa.Engine, tenant_id: str, user_id: str) -> None:
    with engine.begin() as connection:
        if connection.dialect.name == "postgresql":
            # Pages whose rows are not on the disk yet are none that VACUUM marks as visible to all.
            connection.execute(sa.text("SET LOCAL synchronous_commit = on"))
        connection.execute(
            sa.insert(workers),
            [
                {"id": f"wk_{at}", "beat": 0, "host": "", "slots": 1, "queues": [], "agents": {}, "started_at": 0}
                for at in range(10)
            ],
        )
        for table, columns in _rows(tenant_id, user_id).items():
            connection.execute(sa.insert(table).from_select(list(columns), sa.select(*columns.values())))
    with engine.connect() as connection:
        if connection.dialect.name == "postgresql":  # autovacuum does it; nothing does it on SQLite
            connection.execution_options(isolation_level="AUTOCOMMIT").execute(sa.text("VACUUM ANALYZE"))


def _name(prefix: str, number: sa.ColumnElement[int]) -> sa.ColumnElement[str]:
    return sa.literal(prefix) + sa.cast(number, sa.Text)


def _rows(tenant_id: str, user_id: str) -> dict[sa.Table, dict[str, sa.ColumnElement[Any]]]:
    run, invocation = _name("run_", _n), _name("inv_", _n)
    status = sa.case((_n % 10 == 0, "queued"), (_n % 10 == 5, "running"), else_="completed")
    nothing, some = sa.literal({}, Json), sa.literal({"note": "x" * 400}, Json)
    counted: dict[str, sa.ColumnElement[Any]] = {
        "steps": sa.literal(1),
        "usage": nothing,
        "cost": nothing,
        "created_at": _n,
    }
    return {
        agent_runs: counted
        | {
            "id": run,
            "tenant_id": sa.case((_n % OWNED_EVERY == 1, tenant_id), else_=_name("tenant-", _n // 100 % 7)),
            "user_id": sa.case((_n % OWNED_EVERY == 1, user_id), else_=_name("user-", _n % 100)),
            "agent": _name("agent-", _n // 20 % 5),
            "cancel_requested": sa.false(),
            "queue": _name("queue-", _n // 700 % 2),
            "metadata": some,
            "status": status,
            "worker_id": sa.case((status == "running", _name("wk_", _n // 10 % 10))),
            "generation": sa.literal(0),
            "rank": _n,
            "invocation_id": invocation,
            "last_seq": sa.literal(1),
            "last_activity_at": _n,
        },
        agent_invocations: counted
        | {
            "id": invocation,
            "run_id": run,
            "stream_id": _name("st_", _n),
            "request_id": sa.literal("req"),
            "status": status,
            "roles": nothing,
            "options": some,
            "deaths": nothing,
            "stream_closed": _n != UNCLOSED,
            "settled_at": sa.case((status == "completed", 1)),
        },
        agent_messages: {
            "run_id": run,
            "seq": sa.literal(1),
            "invocation_id": invocation,
            "role": sa.literal("user"),
            "content": some,
            "created_at": _n,
        },
        agent_inputs: {
            "id": _name("in_", _n),
            "run_id": run,
            "invocation_id": invocation,
            "opens": sa.true(),
            "position": sa.literal(1),
            "content": some,
            "folded_in_seq": sa.case((_n % 10 != 0, 1)),
            "created_at": _n,
        },
        agent_calls: {
            "run_id": run,
            "assistant_seq": sa.literal(2),
            "index": sa.literal(0),
            "invocation_id": invocation,
            "call_id": _name("toolu_", _n),
            "name": sa.literal("search_docs"),
            "idempotent": sa.true(),
            "state": sa.literal("planned"),
        },
        idempotency_keys: {
            "tenant_id": sa.literal(tenant_id),
            "user_id": sa.literal(user_id),
            "key": _name("key-", _n),
            "request_hash": sa.literal("h"),
            "run_id": run,
            "invocation_id": invocation,
            "input_id": _name("in_", _n),
            "created_at": _n,
        },
        agent_deletions: {
            "run_id": _name("run_gone_", _n),
            "tenant_id": sa.literal(tenant_id),
            "user_id": sa.literal(user_id),
            "whole_run": sa.true(),
            "deleted_at": _n,
            "changed_xid": _n,
        },
    }
