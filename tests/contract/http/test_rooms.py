"""Rooms: what a tool says in one is heard by all who are there, at any gateway, and by nobody else."""

import asyncio
import json
import re
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.clients.api import GUARD_S, Api, Reading
from tests.clients.tokens import token
from tests.contract.http.keys import add_key, revoke_key
from tests.integration.fixtures import on_postgres, on_sqlite
from tests.integration.stack import Stack
from tests.relay import relay_before
from tests.standin import says

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def joined(api: Api, room: str, **query: str) -> AsyncIterator[Reading]:
    async with api.reading("GET", f"/v1/rooms/{room}", params=query) as reading:
        assert reading.response.status_code == 200, await reading.response.aread()
        await reading.opened()
        yield reading


async def members(api: Api, room: str) -> list[str]:
    response = await api.get(f"/v1/rooms/{room}/members")
    assert response.status_code == 200, response.text
    return [item["userId"] for item in response.json()["items"]]


async def until_members(api: Api, room: str, *expected: str) -> None:
    async with asyncio.timeout(GUARD_S):
        while await members(api, room) != sorted(expected):  # noqa: ASYNC110 - another process sets no event
            await asyncio.sleep(0.01)


async def announce(stack: Stack, api: Api, room: str, text: str, **more: Any) -> None:
    stack.standin.answers(says("").calls("announce", {"room": room, "text": text, **more}), says("Done."))
    result = await api.run("herald")
    assert result["text"] == "Done."


async def heard(stack: Stack, api: Api, room: str, *readings: Reading) -> None:
    """Speak until all of them have heard: a subscription that is on its way hears nothing yet."""
    for reading in readings:
        said = asyncio.ensure_future(reading.until(lambda event: event.type == "announced"))
        while not said.done():
            await announce(stack, api, room, "test")
        await said


def texts(reading: Reading, but: str = "test") -> list[str]:
    found = [json.loads(event.data)["text"] for event in reading.events if event.type == "announced"]
    return [text for text in found if text != but]


async def test_all_who_are_there_hear_it_at_any_gateway(stack: Stack, unique: str) -> None:
    room = f"floor:{unique}"
    speaker = stack.gateway.user(tenant="acme")
    async with stack.starting_gateway() as other:
        first, second = stack.gateway.user(tenant="acme"), other.user(tenant="acme")
        async with joined(first, room) as here, joined(first, room) as twice, joined(second, room) as there:
            await heard(stack, speaker, room, here, twice, there)
            await announce(stack, speaker, room, "fire", times=3)
            for reading in (here, twice, there):
                await reading.until(lambda event: event.type == "announced" and '"number":2' in event.data)
                assert texts(reading)[-3:] == ["fire"] * 3
                assert {event.id for event in reading.events} == {None}
        async with joined(second, room) as there:
            await heard(stack, speaker, room, there)
            stack.standin.answers(says("").calls("shout", {"room": room}), says("Done."))
            await speaker.run("herald")
            assert (await there.until(lambda event: event.type == "shouted")).data == "null"
            assert texts(there) == [], "nothing that was said before"


@on_sqlite
async def test_a_room_is_its_tenants(stack: Stack, unique: str) -> None:
    room = f"floor:{unique}"
    inside, outside = stack.gateway.user(tenant="acme"), stack.gateway.user(tenant="initech")
    async with joined(inside, room) as here, joined(outside, room) as elsewhere:
        await heard(stack, inside, room, here)
        await heard(stack, outside, room, elsewhere)
        await announce(stack, inside, room, "secret")
        await here.until(lambda event: "secret" in event.data)
        await announce(stack, outside, room, "end")
        await elsewhere.until(lambda event: "end" in event.data)
        assert texts(elsewhere) == ["end"]


@on_sqlite
async def test_who_may_join(stack: Stack, unique: str) -> None:
    """Whom a token names the room to, whom an agent opens it to; admins and services any of their tenants'."""
    gateway = stack.gateway

    def user(*rooms: str, **claims: Any) -> Api:
        return gateway.bearer(token(unique, rooms=list(rooms), **claims))

    service = gateway.bearer(add_key(stack, unique, "acme"))
    several = gateway.bearer(add_key(stack, f"{unique}-2", "acme", "initech"))
    admin = user(roles=("admin",))
    for api, room, query, status in (
        (user(), "lobby", {}, 200),
        (user(), "floor:1", {}, 200),
        (user(), "attic", {}, 404),
        (user("attic", "cellar:*"), "attic", {}, 200),
        (user("attic", "cellar:*"), "cellar:7", {}, 200),
        (user("attic", "cellar:*"), "cellar", {}, 404),
        (user("attic"), "attic2", {}, 404),
        (user("attic"), "attic", {"tenantId": "acme"}, 404),
        (user("*"), "anything", {}, 200),
        (user(), "vault", {}, 404),
        (admin, "vault", {}, 200),
        (admin, "attic", {}, 200),
        (admin, "with%20space", {}, 404),
        (admin, "x" * 201, {}, 404),
        (service, "attic", {}, 200),
        (service, "attic", {"tenantId": "initech"}, 404),
        (several, "attic", {}, 400),
        (several, "attic", {"tenantId": "initech"}, 200),
        (gateway.anonymous(), "lobby", {}, 401),
    ):
        for path in (f"/v1/rooms/{room}", f"/v1/rooms/{room}/members"):
            async with api.reading("GET", path, params=query) as reading:
                assert reading.response.status_code == status, (path, query)
                if status == 404:
                    await reading.response.aread()
                    assert reading.response.json()["error"]["code"] == "ROOM_NOT_FOUND"
    for wrong in ("lobby", [1], ["with space"], None):
        response = await gateway.bearer(token(unique, rooms=wrong)).get("/v1/rooms/lobby/members")
        assert (response.status_code, response.json()["error"]["reason"]) == (401, "invalid")


@on_sqlite
async def test_members_are_listed_while_they_are_there(stack: Stack, unique: str) -> None:
    """Over all gateways, each user once; services listen and are no members."""
    room = f"floor:{unique}"
    service = stack.gateway.bearer(add_key(stack, unique, "default"))
    async with stack.starting_gateway() as other:
        ann, ben = stack.gateway.user(f"{unique}-ann"), other.user(f"{unique}-ben")
        async with joined(ann, room), joined(service, room):
            await until_members(ben, room, f"{unique}-ann")
            async with joined(ben, room), joined(other.user(f"{unique}-ann"), room):
                await until_members(service, room, f"{unique}-ann", f"{unique}-ben")
            await until_members(ben, room, f"{unique}-ann")
        await until_members(ben, room)
        async with joined(ben, room) as reading:
            await until_members(ann, room, f"{unique}-ben")
            other.process.send(signal.SIGTERM)
            await reading.rest()
            assert await other.process.exited() == 0
        await until_members(ann, room)


@on_postgres  # whose Redis is reached over TCP
async def test_who_left_while_redis_was_away_is_listed_no_more(stack: Stack, unique: str) -> None:
    """Once it is back, whoever is reported next: not when their last report grows old."""
    room = f"floor:{unique}"
    listing = stack.gateway.user()
    with relay_before(stack.backing.redis_url) as relay:
        async with stack.starting_gateway(RUNYARD_REDIS_URL=relay.url) as other:
            ann, ben = other.user(f"{unique}-ann"), other.user(f"{unique}-ben")
            async with joined(ann, room):
                await until_members(listing, room, f"{unique}-ann")
                relay.refuse()
            await other.process.logged("members not told")
            relay.recover()
            async with joined(ben, room):
                await until_members(listing, room, f"{unique}-ben")


@on_sqlite
async def test_it_ends_with_the_key(stack: Stack, unique: str) -> None:
    async with joined(stack.gateway.bearer(add_key(stack, unique, "acme")), "lobby") as reading:
        revoke_key(stack, unique)
        *_, last = await reading.rest()
        assert (last.type, json.loads(last.data)["error"]["reason"]) == ("error", "invalid")


def opening(stack: Stack, api: Api, room: str) -> socket.socket:
    """A connection that has asked for the room, and whose answer is read by whoever reads it."""
    connection = socket.create_connection((stack.gateway.host, stack.gateway.port), timeout=GUARD_S)
    head = f"GET /v1/rooms/{room} HTTP/1.1\r\nHost: x\r\nAuthorization: {api.headers['Authorization']}\r\n\r\n"
    connection.sendall(head.encode())
    return connection


def received(connection: socket.socket, until: bytes) -> bytes:
    """All that comes, to the end of what ends with this."""
    found = bytearray()
    while until not in found[-200_000:]:
        found += connection.recv(1_048_576)
    return bytes(found)


@on_sqlite
async def test_one_who_is_too_slow_is_told_how_much_they_missed(stack: Stack, unique: str) -> None:
    """And holds nobody up: what waits for them is bounded."""
    room, number = f"floor:{unique}", 200
    api = stack.gateway.user(unique)
    channel = f"{stack.backing.prefix}:room:default\0{room}"

    def say(word: str, filler: str = "") -> None:
        assert stack.redis.publish(channel, json.dumps(["said", {"filler": filler, "word": word}])) == 1

    with opening(stack, api, room) as slow, opening(stack, api, room) as quick:
        for connection in (slow, quick):
            await asyncio.to_thread(received, connection, b": hb")
        async with asyncio.timeout(GUARD_S):
            while not stack.redis.pubsub_numsub(channel)[0][1]:  # noqa: ASYNC110 - the server sets no event
                await asyncio.sleep(0.01)
        all_of_it = b""
        for word, filler in (*((str(at), "x" * 60_000) for at in range(number)), ("last", "")):
            say(word, filler)
            all_of_it += await asyncio.to_thread(received, quick, b'"word":"%b"}' % word.encode())
        assert all_of_it.count(b"event: said") == number + 1
        some_of_it = await asyncio.to_thread(received, slow, b'"word":"last"}')
        missed = [int(count) for count in re.findall(rb'event: missed\ndata: {"messages":(\d+)}', some_of_it)]
        assert sum(missed) > 0
        assert some_of_it.count(b"event: said") + sum(missed) == number + 1
