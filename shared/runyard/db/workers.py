"""Workers' rows: registration, the beat, and which runs a worker holds. Synchronous, for the beat's thread."""

from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from runyard.clock import now_ms
from runyard.db.now import now_ms_over
from runyard.db.tables import RUNNING, agent_manifests, agent_runs, workers
from runyard.errors import WorkerGone
from runyard.ids import RunId, WorkerId


@dataclass(frozen=True, kw_only=True, slots=True)
class Registration:
    """What a worker registers. `manifests`: `{"researcher": ("<version>", {...})}`."""

    worker_id: WorkerId
    host: str
    slots: int
    queues: tuple[str, ...]
    manifests: dict[str, tuple[str, dict[str, object]]]


_raise_beat = (
    sa.update(workers)
    .where(workers.c.id == sa.bindparam("worker"))
    .values(beat=workers.c.beat + 1, draining=sa.bindparam("leaves"))
)
_held = sa.select(agent_runs.c.id, agent_runs.c.generation, agent_runs.c.cancel_requested).where(
    agent_runs.c.worker_id == sa.bindparam("worker"), agent_runs.c.status == RUNNING
)


def register(connection: sa.Connection, registration: Registration) -> None:
    """Insert the worker's row and record its manifests."""
    see_manifests(connection, registration)
    connection.execute(
        sa.insert(workers),
        {
            "id": registration.worker_id,
            "beat": 0,
            "host": registration.host,
            "slots": registration.slots,
            "queues": list(registration.queues),
            "agents": {name: version for name, (version, _) in registration.manifests.items()},
            "started_at": now_ms(),
        },
    )


def see_manifests(connection: sa.Connection, registration: Registration) -> None:
    """Record that the worker's manifests are in use: raises `last_seen`, keeps `first_seen`. By the database's clock:
    a worker whose own is wrong would make its agents unknown.
    """
    at = now_ms_over(connection)
    insert = postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
    # Always in the order of names: two workers that start together must not deadlock.
    for name, (version, manifest) in sorted(registration.manifests.items()):
        statement = insert(agent_manifests).values(
            agent=name, version=version, manifest=manifest, first_seen=at, last_seen=at
        )
        connection.execute(statement.on_conflict_do_update(index_elements=["agent", "version"], set_={"last_seen": at}))


@dataclass(frozen=True, kw_only=True, slots=True)
class OwnRun:
    """A run that belongs to this worker by its row."""

    id: RunId
    generation: int
    cancel_requested: bool


def beat(connection: sa.Connection, worker_id: WorkerId, *, draining: bool = False) -> list[OwnRun]:
    """Raise the beat, and store whether the worker is leaving. Returns the runs that belong to it.

    Raises:
        WorkerGone: the row was deleted, since the other workers took this one for dead.
    """
    if connection.execute(_raise_beat, {"worker": worker_id, "leaves": draining}).rowcount != 1:
        raise WorkerGone(worker_id)
    return [OwnRun(**row._mapping) for row in connection.execute(_held, {"worker": worker_id})]


def unregister(connection: sa.Connection, worker_id: WorkerId) -> None:
    """Delete the row of a worker that holds no run."""
    connection.execute(sa.delete(workers).where(workers.c.id == worker_id))
