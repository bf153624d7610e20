"""What a caller has shown ends while an answer goes on: the answer ends, the run does not, nothing is missing later."""

import asyncio
import contextlib
import json
import time
from typing import Any

import pytest
from tests.clients.api import STREAM, Api, Reading
from tests.clients.tokens import token
from tests.contract.http.keys import add_key, revoke_key
from tests.integration.fixtures import on_sqlite
from tests.integration.stack import Stack
from tests.standin import hold, says

pytestmark = [pytest.mark.anyio, on_sqlite]

SKEW_S = 30
LEFT_S = 8
"""Long enough to begin all that is to end, on a busy machine, too: it is waited for once."""


async def called(api: Api, function: str, **arguments: Any) -> Reading:
    """Its stream, read to the end."""
    async with api.reading("POST", f"/v1/functions/{function}", headers=STREAM, json={"input": arguments}) as reading:
        assert reading.response.status_code == 200, await reading.response.aread()
        await reading.rest()
    return reading


def check_ended(reading: Reading, reason: str) -> None:
    """The frame that says so has no number: the reader's cursor stays where it is."""
    *_, last = reading.events
    assert (last.type, last.id) == ("error", None)
    error = json.loads(last.data)["error"]
    assert (error["code"], error["reason"], error["retryable"]) == ("UNAUTHENTICATED", reason, False)
    assert error["requestId"] == reading.response.headers["x-request-id"]


async def test_what_is_read_with_a_token_ends_with_it_and_goes_on_with_another(stack: Stack, unique: str) -> None:
    """A wait that is longer ends with what is known then, as when its time is over; a call whose answer has not begun,
    like a stream: it is accepted, and must not look refused. A client of Pylon's, who knows no such answer, gets the
    value.
    """
    stack.standin.answers(says("one ", hold(unique), "two"))
    lasting = stack.gateway.user(unique)
    started = await lasting.start("unserved")
    wait: dict[str, Any] = {"headers": {"Prefer": "wait=60"}}  # the guard of the client is shorter
    api = stack.gateway.bearer(token(unique, exp=int(time.time() + LEFT_S) - SKEW_S))
    paths = (
        *(f"/v1/streams/{started['streamId']}", f"/v1/runs/{started['runId']}/stream"),
        *("/v1/feed", "/v1/rooms/lobby"),
    )
    undecided = asyncio.create_task(called(api, "recite", words=[], gate=f"{unique}-function"))
    pylon = asyncio.create_task(api.post("/api/fn/recite", {"words": [], "gate": f"{unique}-pylon"}))
    await stack.gate_reached(f"{unique}-pylon")
    async with api.streaming("talker") as reading, contextlib.AsyncExitStack() as exits:
        others = [await exits.enter_async_context(api.reading("GET", path)) for path in paths]
        waiting = asyncio.gather(
            api.post("/v1/agents/unserved/runs", {"input": "x"}, **wait),
            api.get(f"/v1/invocations/{started['invocationId']}", **wait),
        )
        await reading.until_text("one ")
        for each in (reading, *others):
            await each.rest()
            check_ended(each, "expired")
        function = await undecided
        check_ended(function, "expired")
        assert [(answer.status_code, answer.json()["status"]) for answer in await waiting] == [(202, "queued")] * 2
    stack.open_gate(f"{unique}-pylon")
    assert ((await pylon).status_code, (await pylon).json()) == (200, {"count": 0})
    stack.open_gate(f"{unique}-function")
    assert (await lasting.settled(function.response.headers["location"].rsplit("/", 1)[-1]))["output"] == {"count": 0}
    stack.standin.gate(unique).release()
    async with lasting.resuming(reading.stream_id, reading.last_event_id) as resumed:
        await resumed.rest()
    assert resumed.text == "two"
    numbers = [int(event.id) for event in [*reading.events, *resumed.events] if event.id]
    assert numbers == list(range(1, len(numbers) + 1))
    run = (await lasting.get(f"/v1/runs/{reading.response.headers['x-run-id']}")).json()
    assert run["status"] == "completed"


def service_of(stack: Stack, name: str) -> Api:
    return stack.gateway.bearer(add_key(stack, name, "acme"))


async def test_a_revoked_key_ends_what_is_read_with_it(stack: Stack, unique: str) -> None:
    ann: dict[str, Any] = {"as": {"userId": unique}}
    service = service_of(stack, unique)
    async with service.streaming("unserved", **ann) as reading:
        await reading.opened()
        revoke_key(stack, unique)
        await reading.rest()
        check_ended(reading, "invalid")
        refused = await service.get("/v1/runs")
        assert (refused.status_code, refused.json()["error"]["reason"]) == (401, "invalid")
        path = f"/v1/runs/{reading.response.headers['x-run-id']}"
    assert (await stack.gateway.user(unique, tenant="acme").get(path)).json()["status"] == "queued"


async def test_keys_of_others_go_on(stack: Stack, unique: str) -> None:
    """Only what was read with the revoked one ends."""
    ann: dict[str, Any] = {"as": {"userId": unique}}
    first, second = service_of(stack, f"{unique}-1"), service_of(stack, f"{unique}-2")
    started = await first.start("unserved", **ann)
    async with first.resuming(started["streamId"]) as ending, second.resuming(started["streamId"]) as going:
        await going.opened()
        revoke_key(stack, f"{unique}-1")
        await ending.rest()
        check_ended(ending, "invalid")
        await second.post(f"/v1/runs/{started['runId']}/cancel")
        *_, last = await going.rest()
        assert (last.type, json.loads(last.data)["status"]) == ("result", "cancelled")
