"""Runs in each state of their life, made by the store's own transactions."""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection
from tests.databases import blocking_engine

from runyard.db.boundaries import Boundary, Settlement, end_turn
from runyard.db.claiming import claim_best
from runyard.db.claims import Claim
from runyard.db.engine import Database
from runyard.db.records import Invocation, Run
from runyard.db.scope import Scope
from runyard.db.tables import agent_runs, metadata
from runyard.db.transcripts import AssistantTurn
from runyard.db.turns import FinishedCall, Held, PlannedCall, Totals, load_invocation
from runyard.db.workers import Registration, register
from runyard.ids import (
    RunId,
    WorkerId,
    new_input_id,
    new_invocation_id,
    new_request_id,
    new_run_id,
    new_stream_id,
    new_worker_id,
)
from runyard.lifecycle.accept import commit_turn
from runyard.lifecycle.new_turn import NewTurn
from runyard.priorities import Priority
from runyard.runs import RunEvent

AT = 1_764_460_800_000
TENANT, USER = "acme", "ada"
OWNER = Scope.of_user(TENANT, USER)
AGENTS = {"researcher": "v1"}


def new_turn(**changes: Any) -> NewTurn:
    turn = NewTurn(
        tenant_id=TENANT,
        user_id=USER,
        scope=OWNER,
        roles=(),
        agent="researcher",
        queue="default",
        priority=Priority.INTERACTIVE,
        content="Where do swifts winter?",
        options={},
        run_id=new_run_id(),
        invocation_id=new_invocation_id(),
        input_id=new_input_id(),
        stream_id=new_stream_id(),
        request_id=new_request_id(),
        at=AT,
    )
    changed = replace(turn, **changes)
    return replace(changed, scope=changes.get("scope", Scope.of_user(changed.tenant_id, changed.user_id)))


async def accepted(database: Database, **changes: Any) -> Run:
    return await run_row(database, (await commit_turn(database, new_turn(**changes))).run_id)


def registration_of(**changes: Any) -> Registration:
    """A new worker's."""
    given = Registration(worker_id=new_worker_id(), host="host-1", slots=4, queues=("default",), manifests={})
    return replace(given, **changes)


def registered(database_url: str, **changes: Any) -> WorkerId:
    """A new worker's row."""
    registration = registration_of(**changes)
    with blocking_engine(database_url) as engine, engine.begin() as connection:
        register(connection, registration)
    return registration.worker_id


async def claim(database: Database, worker_id: WorkerId, **changes: Any) -> Claim | None:
    wanted: dict[str, Any] = {"queues": ["default"], "agents": AGENTS, "redis_run_id": "redis-1", "at": AT + 1}
    return await claim_best(database, worker_id=worker_id, **wanted | changes)


async def claimed(database: Database, worker_id: WorkerId, **changes: Any) -> Claim:
    found = await claim(database, worker_id, **changes)
    assert found is not None
    return found


def held(found: Claim) -> Held:
    return Held(run_id=found.run.id, invocation_id=found.invocation.id, generation=found.run.generation)


def assistant_turn(seq: int = 2, **changes: Any) -> AssistantTurn:
    turn = AssistantTurn(
        seq=seq,
        content=[{"type": "text", "text": "South of the Sahara."}],
        model="claude-sonnet-5-5",
        usage={"input_tokens": 12, "output_tokens": 5},
        cost={"amount": 0.25, "currency": "USD", "unpriced": False},
        stop_reason="end_turn",
        duration_ms=840,
        first_frame=1,
        last_frame=6,
    )
    return replace(turn, **changes)


CALLS = (
    PlannedCall(call_id="toolu_1", name="search_docs", idempotent=True),
    PlannedCall(call_id="toolu_2", name="send_mail", idempotent=False),
)
TOTALS = Totals(
    steps=1,
    usage={"input_tokens": 12, "output_tokens": 5},
    cost={"amount": 0.25, "currency": "USD", "unpriced": False},
    run_steps=3,
    run_usage={"input_tokens": 40, "output_tokens": 9},
    run_cost={"amount": 0.75, "currency": "USD", "unpriced": False},
)


def finished(index: int, content: Any = "three pages", *, is_error: bool = False) -> FinishedCall:
    return FinishedCall(index=index, content=content, is_error=is_error)


def completed(**changes: Any) -> Settlement:
    settlement = Settlement(
        event=RunEvent.COMPLETE,
        result={"text": "South of the Sahara.", "finishReason": "end_turn"},
        error=None,
        last_frame=7,
    )
    return replace(settlement, **changes)


async def settle(
    connection: AsyncConnection,
    held: Held,
    settlement: Settlement,
    *,
    turn: AssistantTurn | None = None,
    results: Sequence[dict[str, Any]] = (),
    at: int,
) -> Boundary:
    """The terminal boundary of an invocation that nothing steers."""
    boundary = await end_turn(
        connection,
        held,
        turn=turn,
        results=list(results),
        conclude=lambda _rows, _cancelled, _unanswered: settlement,
        totals=TOTALS,
        at=at,
    )
    assert boundary.settlement is settlement
    return boundary


async def settled(database: Database, database_url: str, **changes: Any) -> RunId:
    """The id of a run that has completed its first turn."""
    run = await accepted(database, **changes)
    found = await claimed(database, registered(database_url))
    await database.write(settle, held(found), completed(), at=AT + 2)
    return run.id


async def run_row(database: Database, run_id: RunId) -> Run:
    async def load(connection: Any) -> Run:
        row = (await connection.execute(sa.select(agent_runs).where(agent_runs.c.id == run_id))).one()
        return Run(**row._mapping)

    return await database.read(load)


async def run_and_invocation(database: Database, run_id: RunId) -> tuple[Run, Invocation]:
    """The run and its newest invocation."""
    run = await run_row(database, run_id)
    return run, await database.read(load_invocation, run.invocation_id)


async def contents(database: Database) -> dict[str, list[str]]:
    """Every row of every table: what a refused transaction must leave as it was."""

    async def load(connection: Any) -> dict[str, list[str]]:
        return {
            table.name: sorted(
                json.dumps(dict(row._mapping), sort_keys=True) for row in await connection.execute(sa.select(table))
            )
            for table in metadata.sorted_tables
        }

    return await database.read(load)
