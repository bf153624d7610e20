"""What a gateway answers when a part of it is away or at fault: gateways of these tests' own, which complain."""

import asyncio
import json
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa
from psycopg import sql
from tests.clients.api import Api, Reading
from tests.clients.metrics import shows
from tests.databases import postgres_database, postgres_server
from tests.integration.fixtures import on_sqlite
from tests.integration.processes import eventually
from tests.integration.stack import Gateway, Stack
from tests.ports import free_port
from tests.standin import says

from runyard.db.migrate import upgrade
from runyard.service_keys import hash_of, new_key

pytestmark = pytest.mark.anyio


@dataclass(frozen=True, kw_only=True)
class OwnDatabase:
    """On the server that all tests share, a database that this test may break."""

    url: str

    @property
    def _name(self) -> sql.Identifier:
        return sql.Identifier(str(sa.make_url(self.url).database))

    @contextmanager
    def away(self) -> Iterator[None]:
        """Its links are cut and new ones refused."""
        with self._altered("ALLOW_CONNECTIONS false", "ALLOW_CONNECTIONS true"):
            yield

    @contextmanager
    def read_only(self) -> Iterator[None]:
        """Its links are cut and new ones cannot write, as after a failover."""
        with self._altered("SET default_transaction_read_only = on", "RESET default_transaction_read_only"):
            yield

    @contextmanager
    def _altered(self, change: str, back: str) -> Iterator[None]:
        with postgres_server() as server:
            server.execute(sql.SQL("ALTER DATABASE {} " + change).format(self._name))
            server.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s",
                [sa.make_url(self.url).database],
            )
            try:
                yield
            finally:
                server.execute(sql.SQL("ALTER DATABASE {} " + back).format(self._name))


@pytest.fixture(scope="module")
def own_database(postgres_stack: Stack) -> Iterator[OwnDatabase]:
    """It knows the stack's agents, and no worker looks for runs in it."""
    manifests = postgres_stack.execute(
        "SELECT agent, version, manifest::text, first_seen, last_seen FROM agent_manifests"
    )
    with postgres_database() as url:
        upgrade(url)
        with psycopg.connect(url) as link, link.cursor() as cursor:
            cursor.executemany("INSERT INTO agent_manifests VALUES (%s, %s, %s::json, %s, %s)", map(tuple, manifests))
        yield OwnDatabase(url=url)


@pytest.fixture(scope="module")
def metrics_port() -> int:
    return free_port()


@pytest.fixture(scope="module")
async def gateway(postgres_stack: Stack, own_database: OwnDatabase, metrics_port: int) -> AsyncIterator[Gateway]:
    settings = {"RUNYARD_DATABASE_URL": own_database.url, "RUNYARD_METRICS_PORT": str(metrics_port)}
    async with postgres_stack.starting_gateway(**settings) as gateway:
        yield gateway


def error_of(response: Any, status: int, code: str) -> dict[str, Any]:
    assert response.status_code == status, response.text
    error: dict[str, Any] = response.json()["error"]
    assert (error["code"], error["requestId"]) == (code, response.headers["x-request-id"])
    return error


@pytest.mark.postgres
async def test_a_database_that_is_away(gateway: Gateway, own_database: OwnDatabase, metrics_port: int) -> None:
    api = gateway.user()
    started = await api.start("unserved")
    await shows(metrics_port, "runyard_depth_known", 1)
    with own_database.away():
        await shows(metrics_port, "runyard_depth_known", 0)
        for method, path in (
            ("POST", "/v1/agents/unserved/runs"),
            ("POST", f"/v1/runs/{started['runId']}/cancel"),
            ("GET", f"/v1/runs/{started['runId']}"),
            ("GET", "/v1/runs"),
            ("GET", f"/v1/streams/{started['streamId']}"),
        ):
            response = await api.call(method, path, json={"input": "x"} if path.endswith("/runs") else None)
            assert error_of(response, 503, "STORE_UNAVAILABLE")["retryable"] is True
            assert response.headers["retry-after"] == "1"
        error_of(await gateway.anonymous().get("/readyz"), 503, "NOT_READY")
        assert (await gateway.anonymous().get("/healthz")).status_code == 200
    assert (await gateway.anonymous().get("/readyz")).status_code == 200
    await shows(metrics_port, "runyard_depth_known", 1)
    assert [run["id"] for run in (await api.get("/v1/runs")).json()["items"]] == [started["runId"]]


@pytest.mark.postgres
async def test_a_database_that_cannot_be_written(gateway: Gateway, own_database: OwnDatabase) -> None:
    api = gateway.user()
    with own_database.read_only():
        error = error_of(await api.post("/v1/agents/unserved/runs", {"input": "x"}), 503, "STORE_UNAVAILABLE")
        assert error["retryable"] is True
        assert "written" in error_of(await gateway.anonymous().get("/readyz"), 503, "NOT_READY")["message"]
        assert (await api.get("/v1/runs")).json()["items"] == []
    await api.start("unserved")


@pytest.mark.postgres
async def test_a_call_whose_database_goes_while_it_is_waited_for_was_accepted(
    gateway: Gateway, own_database: OwnDatabase
) -> None:
    """It is committed: an answer that it failed would make its caller send it once more. A machine may be slow: longer
    and longer waits.
    """
    for seconds in (2, 6, 18):
        api = gateway.user()
        async with asyncio.TaskGroup() as tasks:
            headers = {"Prefer": f"wait={seconds}"}
            waiting = tasks.create_task(api.post("/v1/agents/unserved/runs", {"input": "x"}, headers=headers))
            runs = await eventually_listed(api)
            with own_database.away():
                response = await waiting
        assert response.status_code == 202, response.text
        assert [response.json()["runId"]] == runs
        if gateway.process.events("accepted call not awaited"):
            break
    assert gateway.process.events("accepted call not awaited")


async def eventually_listed(api: Api) -> list[str]:
    while not (runs := [run["id"] for run in (await api.get("/v1/runs")).json()["items"]]):
        pass
    return runs


@on_sqlite
async def test_a_fault_of_ours_is_told_by_its_code_alone(stack: Stack) -> None:
    """A row that no code of ours writes. What went wrong is in the log, under the request's id."""
    async with stack.starting_gateway() as gateway:
        api = gateway.user()
        run_id = (await api.start("unserved"))["runId"]
        stack.execute("UPDATE agent_runs SET metadata = 'secret{' WHERE id = :id", id=run_id)
        response = await api.get(f"/v1/runs/{run_id}")
        error = error_of(response, 500, "INTERNAL")
        assert (error["message"], error["retryable"]) == ("Internal error", False)
        stack.execute("DELETE FROM agent_inputs WHERE run_id = :id", id=run_id)
        stack.execute("DELETE FROM agent_invocations WHERE run_id = :id", id=run_id)
        stack.execute("DELETE FROM agent_runs WHERE id = :id", id=run_id)
        (told,) = await eventually(gateway.process.complaints, "complaint")
    assert told["request_id"] == error["requestId"]
    assert "JSONDecodeError" in told["exception"]


def ends_by(reading: Reading, code: str) -> None:
    """By an error that is none of the stream's frames."""
    last = reading.events[-1]
    assert (last.type, last.id) == ("error", None)
    error = json.loads(last.data)["error"]
    assert (error["code"], error["requestId"]) == (code, reading.response.headers["x-request-id"])


@on_sqlite
async def test_a_stream_whose_rows_are_deleted_ends(stack: Stack) -> None:
    """As nothing of ours deletes them: a run at work is not erased."""
    api = stack.gateway.user()
    started = await api.start("unserved")
    async with api.resuming(started["streamId"]) as reading:
        await reading.opened()
        for table, column in (("agent_inputs", "run_id"), ("agent_invocations", "run_id"), ("agent_runs", "id")):
            stack.execute(f"DELETE FROM {table} WHERE {column} = :id", id=started["runId"])
        await reading.rest()
    ends_by(reading, "RUN_NOT_FOUND")


@on_sqlite  # Postgres takes no such row
async def test_a_row_that_cannot_be_read_ends_the_streams_of_its_own_readers_only(stack: Stack) -> None:
    """The gateway asks for the rows of all silent streams together."""
    async with stack.starting_gateway() as gateway:
        theirs, ours = gateway.user(), gateway.user()
        broken, whole = await theirs.start("unserved"), await ours.start("unserved")
        async with theirs.resuming(broken["streamId"]) as own, ours.resuming(whole["streamId"]) as other:
            await own.opened()
            await other.opened()
            options = "UPDATE agent_invocations SET options = :options WHERE id = :id"
            stack.execute(options, options="secret{", id=broken["invocationId"])
            await own.rest()
            ends_by(own, "INTERNAL")
            stack.execute(options, options="{}", id=broken["invocationId"])
            await ours.post(f"/v1/runs/{whole['runId']}/cancel", {})
            await other.rest()
            assert other.events[-1].type == "result"
        (told,) = gateway.process.complaints()
    assert (told["event"], told["code"]) == ("rows of a stream unreadable", "INTERNAL")
    assert told["stream_id"] == broken["streamId"]


@on_sqlite  # Postgres takes no such rows
async def test_rows_that_a_gateway_reads_for_itself_do_not_end_it(stack: Stack, unique: str, tmp_path: Path) -> None:
    """Of workers, agents and keys, in a database of this test's own. Its readers need none of them."""
    file = tmp_path / "own.db"
    upgrade(f"sqlite:///{file}")
    manifests = stack.execute("SELECT agent, version, manifest, first_seen, last_seen FROM agent_manifests")
    key = new_key()
    with changing(file) as own:
        own.executemany("INSERT INTO agent_manifests VALUES (?, ?, ?, ?, ?)", map(tuple, manifests))
        own.execute("INSERT INTO service_keys VALUES ('bot', ?, 'last', '[\"acme\"]', 0, NULL)", [hash_of(key)])
    async with stack.starting_gateway(RUNYARD_DATABASE_URL=f"sqlite:///{file}") as gateway:
        service, user = gateway.bearer(key), gateway.user(unique, tenant="acme")
        started = await service.start("unserved", **{"as": {"userId": unique}})
        async with service.resuming(started["streamId"]) as reading:
            await reading.opened()
            with changing(file) as own:
                own.execute("UPDATE agent_manifests SET manifest = 'secret{'")
                own.execute("UPDATE service_keys SET tenants = 'secret{'")
                own.execute("INSERT INTO workers VALUES ('w', 0, 'host', 1, 'secret{', '{}', 0, 0)")
            for event in ("workers unreadable", "service keys unreadable", "silent streams unreadable"):
                await gateway.process.logged(event)
            assert (await user.post(f"/v1/runs/{started['runId']}/cancel")).status_code == 200
            await reading.rest()
            assert reading.events[-1].type == "result"
        with changing(file) as own:
            whole = [(row.manifest, row.agent) for row in manifests]
            own.executemany("UPDATE agent_manifests SET manifest = ? WHERE agent = ?", whole)
            own.execute("DELETE FROM workers")
        await user.start("unserved")


@on_sqlite
async def test_a_gateway_that_looks_for_frames_elsewhere_says_so(stack: Stack, unique: str) -> None:
    """With another prefix than the worker's: its readers wait to the end, and get all of it from the rows."""
    stack.standin.answers(says("Hello."))
    async with stack.starting_gateway(RUNYARD_PREFIX=unique) as gateway:
        async with gateway.user().streaming("talker") as reading:
            await reading.rest()
        assert [event.type for event in reading.events] == ["rewind", "", "result"]
        told = await gateway.process.logged("frames not found")
    assert (told["stream_id"], told["settings"]) == (reading.stream_id, "RUNYARD_REDIS_URL, RUNYARD_PREFIX")


@contextmanager
def changing(file: Path) -> Iterator[sqlite3.Connection]:
    """What a person changes by hand in a database of SQLite."""
    with closing(sqlite3.connect(file)) as link, link:
        yield link


@on_sqlite
async def test_a_gateway_that_trusts_everybody_answers_its_loopback_address_only(stack: Stack) -> None:
    async with stack.starting_gateway(RUNYARD_AUTH="dev") as gateway:
        api = gateway.anonymous()
        for headers in ({"Host": "rebound.example"}, {"Origin": "https://evil.example"}):
            error = error_of(await api.get("/v1/runs", headers=headers), 403, "FORBIDDEN")
            assert error["retryable"] is False
        assert (await api.get("/v1/runs")).status_code == 200
