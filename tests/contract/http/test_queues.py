"""The depth of queues over HTTP and by the command, against the rows, while runs wait, run and workers leave."""

import asyncio
import json
import signal
import sys
from collections.abc import Callable
from typing import Any

import pytest
from tests.clients.api import Api
from tests.contract.http.keys import add_key
from tests.integration.fixtures import on_sqlite
from tests.integration.stack import Stack
from tests.standin import calls, says

pytestmark = pytest.mark.anyio

FIELDS = {
    *("queue", "ready", "delayed", "dead", "queued", "running", "waiting", "oldestQueuedMs"),
    *("workers", "draining", "slots", "priorities", "unservedAgents"),
}
RELAY = {"RUNYARD_QUEUES": "relay", "RUNYARD_WORKER_SLOTS": "3"}


async def queues_of(api: Api) -> dict[str, dict[str, Any]]:
    """With what the broker says: on a busy machine it may need more than the second that a look gives it."""
    while (body := await depth_of(api))["brokerError"] is not None:
        pass
    assert body["nextCursor"] is None
    assert all(item.keys() == FIELDS for item in body["items"])
    return {item["queue"]: item for item in body["items"]}


async def depth_of(api: Api) -> dict[str, Any]:
    response = await api.get("/v1/queues")
    assert response.status_code == 200, response.text
    body: dict[str, Any] = response.json()
    assert body.keys() == {"items", "nextCursor", "brokerError", "at"}
    return body


async def shows(api: Api, queue: str, holds: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """The first answer of which it holds: an answer may be a second old. The test's own time limit ends it."""
    while not holds(found := (await queues_of(api))[queue]):  # noqa: ASYNC110 - the gateway sets no event of ours
        await asyncio.sleep(0.05)
    return found


def rows(stack: Stack, tenant: str, status: str) -> int:
    statement = "SELECT count(*) FROM agent_runs WHERE tenant_id = :tenant AND status = :status"
    ((count,),) = stack.execute(statement, tenant=tenant, status=status)
    return int(count)


def admin(stack: Stack, tenant: str) -> Api:
    return stack.gateway.user(tenant=tenant, roles=("admin",))


async def test_queued_runs_are_shown_to_their_tenants_admins_and_services(stack: Stack, unique: str) -> None:
    user, stranger = stack.gateway.user(tenant=unique), stack.gateway.user(tenant=f"{unique}-2")
    started = [await user.start("unserved") for _ in range(3)] + [await stranger.start("unserved")]
    for api, queued in (
        (admin(stack, unique), 3),
        (stack.gateway.user(tenant=unique, roles=("service",)), 3),
        (admin(stack, f"{unique}-2"), 1),
        (stack.gateway.bearer(add_key(stack, unique, unique, f"{unique}-2")), 4),
    ):
        found = await shows(api, "unserved", lambda item, queued=queued: item["queued"] == queued)  # type: ignore[misc]
        assert found["unservedAgents"] == [{"agent": "unserved", "queued": queued}]
        assert found["oldestQueuedMs"] >= 0
        assert (found["running"], found["waiting"], found["workers"], found["slots"]) == (0, 0, 0, 0)
    assert (rows(stack, unique, "queued"), rows(stack, f"{unique}-2", "queued")) == (3, 1)
    for api, run in zip((user, user, user, stranger), started, strict=True):
        assert (await api.post(f"/v1/runs/{run['runId']}/cancel")).status_code == 200
    found = await shows(admin(stack, unique), "unserved", lambda item: item["queued"] == 0)
    assert (found["unservedAgents"], found["oldestQueuedMs"]) == ([], None)


@on_sqlite
@pytest.mark.parametrize("roles", [(), ("editor",)])
async def test_users_are_not_shown_the_depth(stack: Stack, roles: tuple[str, ...]) -> None:
    refused = await stack.gateway.user(roles=roles).get("/v1/queues")
    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "FORBIDDEN")


@on_sqlite
async def test_the_query_has_no_parameters(stack: Stack) -> None:
    refused = await admin(stack, "acme").get("/v1/queues", queue="default")
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "INVALID_ARGS")


async def test_a_worker_that_leaves_has_no_slots_while_its_run_goes_on(stack: Stack, unique: str) -> None:
    stack.standin.answers(calls("hold", {"gate": unique}), says("Done."))
    user, api = stack.gateway.user(tenant=unique), admin(stack, unique)
    async with stack.starting_worker(**RELAY) as worker:
        started = await user.start("relay", "act")
        await stack.gate_reached(unique)
        found = await shows(api, "relay", lambda item: item["running"] == 1 and item["workers"] == 1)
        assert (found["queued"], found["draining"], found["slots"]) == (0, 0, 3)
        worker.send(signal.SIGTERM)
        found = await shows(api, "relay", lambda item: item["draining"] == 1)
        assert (found["running"], found["workers"], found["slots"]) == (1, 1, 0)
        assert rows(stack, unique, "running") == 1
        stack.open_gate(unique)
        assert await worker.exited() == 0
    found = await shows(api, "relay", lambda item: item["workers"] == 0)
    assert (found["running"], found["queued"], found["draining"], found["slots"]) == (0, 1, 0, 0)
    assert rows(stack, unique, "queued") == 1
    assert (await user.post(f"/v1/runs/{started['runId']}/cancel")).status_code == 200


async def command(stack: Stack, *arguments: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "runyard.cli", "queues", *arguments),
        env={
            "RUNYARD_DATABASE_URL": stack.backing.database_url,
            "RUNYARD_BROKER_URL": stack.backing.broker_url,
            "RUNYARD_PREFIX": stack.backing.prefix,
        },
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


async def test_the_command_shows_every_tenants_runs(stack: Stack, unique: str) -> None:
    users = [stack.gateway.user(tenant=f"{unique}-{number}") for number in range(2)]
    started = [await user.start("unserved") for user in users]
    ((queued,),) = stack.execute("SELECT count(*) FROM agent_runs WHERE status = 'queued' AND queue = 'unserved'")
    both = [await command(stack, "--json"), await command(stack)]
    (out, error), (tables, other_error) = await asyncio.gather(*(process.communicate() for process in both))
    assert [(process.returncode, error + other_error) for process in both] == [(0, b"")] * 2
    found = {item["queue"]: item for item in json.loads(out)["items"]}
    assert found["unserved"]["queued"] == queued
    assert (found["default"]["workers"], found["default"]["slots"], found["default"]["dead"]) == (1, 32, 0)
    lines = tables.decode().splitlines()
    assert lines[0].split()[:2] == ["QUEUE", "READY"]
    assert f"unserved: {queued} queued for unserved, which no living worker of this queue has" in tables.decode()
    for user, run in zip(users, started, strict=True):
        await user.post(f"/v1/runs/{run['runId']}/cancel")


@on_sqlite
async def test_the_command_watches_until_it_is_interrupted(stack: Stack) -> None:
    process = await command(stack, "--watch", "--json")
    assert process.stdout is not None
    moments = [json.loads(await process.stdout.readline())["at"] for _ in range(2)]
    assert moments[0] < moments[1]
    process.send_signal(signal.SIGINT)
    _, error = await process.communicate()
    assert (process.returncode, error) == (0, b"")
