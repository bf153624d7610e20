"""`GET /v1/feed`: every device of a user hears of their runs and transcripts, at any gateway, and of nobody else's."""

import json
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import sqlalchemy as sa
from tests.clients.api import Api, Reading
from tests.clients.sse import Event
from tests.contract.http.keys import add_key
from tests.integration.fixtures import on_sqlite
from tests.integration.stack import Stack
from tests.standin import says

from runyard.db.tables import agent_runs
from runyard.lifecycle.creating import ZERO_COST

pytestmark = pytest.mark.anyio

OLD_MS = 2 * 86_400_000


@asynccontextmanager
async def feed(api: Api, last_event_id: str | None = None) -> AsyncIterator[Reading]:
    headers = {} if last_event_id is None else {"Last-Event-ID": last_event_id}
    async with api.reading("GET", "/v1/feed", headers=headers) as reading:
        assert reading.response.status_code == 200, await reading.response.aread()
        await reading.opened()
        yield reading


def data(event: Event) -> dict[str, Any]:
    parsed: dict[str, Any] = json.loads(event.data)
    return parsed


def settles(run_id: str, status: str = "completed") -> Any:
    return lambda event: event.type == "run" and data(event)["id"] == run_id and data(event)["status"] == status


def is_row(run_id: str, seq: int) -> Any:
    return lambda event: event.type == "message" and (data(event)["runId"], data(event)["seq"]) == (run_id, seq)


async def until_all(reading: Reading, *expected: Any) -> None:
    """Whatever their order."""
    for holds in expected:
        if not any(map(holds, reading.events)):
            await reading.until(holds)


def rows(events: list[Event]) -> list[dict[str, Any]]:
    return sorted((data(event) for event in events if event.type == "message"), key=lambda row: row["seq"])


async def test_a_run_is_heard_of_on_all_devices(stack: Stack, unique: str) -> None:
    """What is told is what the lists say: a device that read the list and then the feed knows all."""
    stack.standin.answers(says("Hello."))
    async with stack.starting_gateway() as other:
        phone, laptop = stack.gateway.user(unique), other.user(unique)
        async with feed(phone) as first, feed(laptop) as second:
            run_id = (await phone.run("talker", "hi"))["runId"]
            for reading in (first, second):
                await until_all(reading, settles(run_id), is_row(run_id, 2))
                assert rows(reading.events) == await phone.messages(run_id)
                newest = [data(event) for event in reading.events if event.type == "run"][-1]
                assert newest == (await phone.get(f"/v1/runs/{run_id}")).json()
            await laptop.call("PATCH", f"/v1/runs/{run_id}", json={"title": "Greeting"})
            await first.until(lambda event: event.type == "run" and data(event)["title"] == "Greeting")
            assert (await laptop.call("DELETE", f"/v1/runs/{run_id}/messages")).status_code in {200, 204}
            cleared = await first.until(lambda event: event.type == "deleted")
            assert (data(cleared)["runId"], data(cleared)["what"]) == (run_id, "messages")
            assert (await laptop.call("DELETE", f"/v1/runs/{run_id}")).status_code == 204
            erased = await first.until(lambda event: event.type == "deleted")
            assert (data(erased)["runId"], data(erased)["what"]) == (run_id, "run")


async def test_a_device_that_was_away_goes_on_where_it_was(stack: Stack, unique: str) -> None:
    """At another gateway, from what was its last id there, before the first event too."""
    stack.standin.answers(says("One."), says("Two."))
    async with stack.starting_gateway() as other:
        api = stack.gateway.user(unique)
        async with feed(api) as reading:
            began = reading.parser.last_event_id
            assert began.isdigit()
            assert not reading.events
        one = (await api.run("talker", "1"))["runId"]
        async with feed(other.user(unique), began) as reading:
            await until_all(reading, settles(one), is_row(one, 1), is_row(one, 2))
            seen = reading.parser.last_event_id
        two = (await api.run("talker", "2"))["runId"]
        gone = (await api.start("unserved"))["runId"]
        await api.call("DELETE", f"/v1/runs/{gone}?force")
        async with feed(api, seen) as reading:
            await until_all(
                reading,
                settles(two),
                is_row(two, 1),
                is_row(two, 2),
                lambda event: event.type == "deleted" and data(event)["runId"] == gone,
            )
        assert not [event for event in reading.events if event.type != "deleted" and one in event.data]
        async with feed(api, "0") as reading:
            await until_all(reading, settles(one), settles(two), is_row(one, 2), is_row(two, 2))


@on_sqlite
async def test_nobody_hears_of_what_is_not_theirs(stack: Stack, unique: str) -> None:
    owner = stack.gateway.user(unique, tenant="acme")
    strangers = [
        stack.gateway.user(tenant="acme"),
        stack.gateway.user(unique, tenant="initech"),
        stack.gateway.user(unique),
        stack.gateway.user(tenant="initech", roles=("admin",)),
        stack.gateway.bearer(add_key(stack, unique, "initech")),
    ]
    knows = [owner, stack.gateway.user(tenant="acme", roles=("admin",))]
    knows.append(stack.gateway.bearer(add_key(stack, f"{unique}-2", "acme", "initech")))
    run_id = (await owner.start("unserved"))["runId"]
    for api in knows:
        async with feed(api, "0") as reading:
            await reading.until(settles(run_id, "queued"))
    for api in strangers:
        agent, act_as = "unserved", {"as": {"userId": unique}} if api in strangers[-1:] else {}
        async with feed(api, "0") as reading:
            mine = (await api.start(agent, "mine", **act_as))["runId"]
            await reading.until(settles(mine, "queued"))
        assert not [event for event in reading.events if run_id in event.data]


@on_sqlite
async def test_a_cursor_that_is_too_old_is_told(stack: Stack, unique: str) -> None:
    """Or is none that this database gave. Deletions since may have been forgotten."""
    api = stack.gateway.user(unique)
    async with feed(api) as reading:
        old = reading.parser.last_event_id
    for number in (1, 2):
        stack.execute(
            "INSERT INTO agent_deletions (run_id, tenant_id, user_id, whole_run, deleted_at, changed_xid)"
            " VALUES (:run, 'nobody', 'nobody', true, :at, :mark)",
            run=f"{unique}-{number}",
            at=int(1000 * time.time()) - OLD_MS,
            mark=int(old) + number,
        )
    for cursor in (old, "0", str(2**62)):
        response = await api.get("/v1/feed", headers={"Last-Event-ID": cursor})
        assert (response.status_code, response.json()["error"]["code"]) == (410, "FEED_GONE")
    async with feed(api) as reading:
        run_id = (await api.start("unserved"))["runId"]
        await reading.until(settles(run_id, "queued"))
    stack.execute("DELETE FROM agent_deletions WHERE tenant_id = 'nobody'")
    for none in ("", "-1", "1.5", "abc", "9" * 400):
        async with feed(api, none) as reading:
            assert reading.parser.last_event_id.isdigit(), "what is no cursor counts as none"
    unknown = await api.get("/v1/feed", until="1")
    assert (unknown.status_code, unknown.json()["error"]["fields"]) == (400, ["until"])


async def test_a_row_that_cannot_be_read_ends_the_feed_of_its_readers_only(stack: Stack, unique: str) -> None:
    """No code of ours writes such a row. The others hear of all that changes, before it and behind it.

    Postgres takes no such JSON; there it is a row that cannot be told.
    """
    wrong = {"metadata": sa.literal_column("'secret{'")} if stack.name == "sqlite" else {"cost": {"secret{": 1}}
    async with stack.starting_gateway() as gateway:
        owner, admin = gateway.user(unique, tenant="acme"), gateway.user(tenant="acme", roles=("admin",))
        other, elsewhere = gateway.user(tenant="acme"), gateway.user(unique, tenant="initech")
        broken = (await owner.start("unserved"))["runId"]
        runs = sa.update(agent_runs).where(agent_runs.c.id == broken)
        async with feed(owner) as own, feed(admin) as whole, feed(other) as theirs, feed(elsewhere) as away:
            for number in range(2):
                for api, reading in ((other, theirs), (elsewhere, away)):
                    run_id = (await api.start("unserved"))["runId"]
                    await reading.until(settles(run_id, "queued"))
                if number == 0:
                    with stack.database.begin() as connection:  # the statement leaves its mark on the row
                        connection.execute(runs.values(wrong))
            for reading in (own, whole):
                await reading.rest()
                last = reading.events[-1]
                assert (last.type, last.id, data(last)["error"]["code"]) == ("error", None, "INTERNAL")
        with stack.database.begin() as connection:
            connection.execute(runs.values(metadata={}, cost=ZERO_COST))
        async with feed(owner, "0") as again:
            await again.until(settles(broken, "queued"))
        complaints = gateway.process.complaints()
    assert {(told["event"], told["code"]) for told in complaints} == {
        ("changes unreadable for all readers together", "INTERNAL"),
        ("changes unreadable", "INTERNAL"),
    }
    assert {told.get("user_id") for told in complaints} == {unique, None}
    assert not any("secret{" in told["event"] for told in complaints)


@on_sqlite
async def test_a_gateway_that_leaves_ends_it(stack: Stack, unique: str) -> None:
    async with stack.starting_gateway() as leaving, feed(leaving.user(unique)) as reading:
        run_id = (await stack.gateway.user(unique).start("unserved"))["runId"]
        await reading.until(settles(run_id, "queued"))
        leaving.process.send(signal.SIGTERM)
        assert await leaving.process.exited() == 0
        await reading.rest()
        assert [event.type for event in reading.events] == ["run"]


@on_sqlite
async def test_without_redis_it_looks_by_itself(stack: Stack, unique: str) -> None:
    async with (
        stack.starting_gateway(RUNYARD_REDIS_URL="redis://127.0.0.1:1") as lonely,
        feed(lonely.user(unique)) as reading,
    ):
        run_id = (await stack.gateway.user(unique).start("unserved"))["runId"]
        await reading.until(settles(run_id, "queued"))
