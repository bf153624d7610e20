"""Tickets and seats: how a browser's `EventSource` says who it is. One place, once or by one cookie, nothing else."""

import asyncio
import hashlib
import json
from http.cookies import Morsel, SimpleCookie
from typing import Any

import httpx2
import pytest
from tests.clients.api import GUARD_S, Api
from tests.clients.tokens import token
from tests.contract.http.keys import add_key, revoke_key
from tests.integration.fixtures import on_sqlite
from tests.integration.stack import Stack

from runyard_gateway.auth.tickets import SEAT_S, TICKET_S

pytestmark = [pytest.mark.anyio, on_sqlite]

COOKIE = "runyard_seat"


async def ticket_of(api: Api, stream_id: str) -> tuple[str, Morsel[str]]:
    response = await api.post(f"/v1/streams/{stream_id}/tickets")
    assert response.status_code == 201, response.text
    assert (response.json()["streamId"], response.headers["cache-control"]) == (stream_id, "no-store")
    return response.json()["ticket"], seat_in(response)


def seat_in(response: httpx2.Response) -> Morsel[str]:
    (given,) = response.headers.get_list("set-cookie")
    return SimpleCookie(given)[COOKIE]


def seated(seat: Morsel[str]) -> dict[str, str]:
    return {"Cookie": f"{COOKIE}={seat.value}"}


async def ticket_for(api: Api, path: str, **query: str) -> tuple[str, Morsel[str]]:
    """For the feed or a room."""
    response = await api.call("POST", f"{path}/tickets", params=query)
    assert response.status_code == 201, response.text
    assert (set(response.json()), response.headers["cache-control"]) == ({"ticket", "expiresAt"}, "no-store")
    return response.json()["ticket"], seat_in(response)


async def opened(api: Api, path: str, **headers: str) -> httpx2.Response:
    """The head of the answer; the body only of a refusal."""
    async with api.reading("GET", path, headers=headers) as reading:
        if reading.response.status_code != 200:
            await reading.response.aread()
        return reading.response


def refused(response: httpx2.Response, reason: str = "invalid") -> bool:
    return response.status_code == 401 and response.json()["error"]["reason"] == reason


@pytest.fixture
async def started(stack: Stack, unique: str) -> dict[str, Any]:
    """A run of the user `unique`, whose stream stays open."""
    return await stack.gateway.user(unique).start("unserved")


@pytest.fixture
def owner(stack: Stack, unique: str) -> Api:
    return stack.gateway.user(unique)


@pytest.fixture
def browser(stack: Stack) -> Api:
    """Which sends no header."""
    return stack.gateway.anonymous()


async def test_a_ticket_opens_its_stream_once_at_any_gateway(stack: Stack, owner: Api, started: dict[str, Any]) -> None:
    path = f"/v1/streams/{started['streamId']}"
    async with stack.starting_gateway() as other:
        ticket, _ = await ticket_of(owner, started["streamId"])
        at_once = [opened(gateway.anonymous(), f"{path}?ticket={ticket}") for gateway in (other, stack.gateway) * 4]
        answers = await asyncio.gather(*at_once)
        assert sorted(answer.status_code for answer in answers) == [200] + [401] * 7
        assert all(refused(answer) for answer in answers if answer.status_code != 200)


async def test_a_used_ticket_gives_a_seat(browser: Api, owner: Api, started: dict[str, Any]) -> None:
    """So the EventSource comes back: its URL is the same, and names a ticket that is used."""
    path = f"/v1/streams/{started['streamId']}"
    ticket, own = await ticket_of(owner, started["streamId"])
    answer = await opened(browser, f"{path}?ticket={ticket}")
    for seat in (own, seat_in(answer)):
        assert (seat["path"], seat["samesite"].lower(), seat["httponly"], seat["secure"]) == (path, "strict", True, "")
        for _ in range(2):
            assert (await opened(browser, f"{path}?ticket={ticket}", **seated(seat))).status_code == 200
            assert (await opened(browser, path, **seated(seat))).status_code == 200


async def test_over_https_the_cookie_is_secure(owner: Api, started: dict[str, Any]) -> None:
    """As a proxy in front tells it."""
    path = f"/v1/streams/{started['streamId']}/tickets"
    assert seat_in(await owner.post(path, headers={"X-Forwarded-Proto": "https"}))["secure"]


async def test_what_it_opens_is_that_stream(browser: Api, owner: Api, started: dict[str, Any]) -> None:
    """Not another one of the same user, nor another route of the same stream."""
    other = await owner.start("unserved")
    ticket, seat = await ticket_of(owner, started["streamId"])
    for path in (f"/v1/streams/{other['streamId']}", "/v1/streams/st_none"):
        assert refused(await opened(browser, f"{path}?ticket={ticket}", **seated(seat)))
    for path in (f"/v1/runs/{started['runId']}/stream", f"/v1/runs/{started['runId']}", "/v1/runs"):
        assert refused(await opened(browser, f"{path}?ticket={ticket}", **seated(seat)), "missing")
        with_header = await opened(owner, f"{path}?ticket={ticket}")
        assert (with_header.status_code, with_header.json()["error"]["fields"]) == (400, ["ticket"])
    for path in (f"/v1/streams/{started['streamId']}/tickets", f"/v1/runs/{started['runId']}/cancel"):
        assert refused(await browser.post(f"{path}?ticket={ticket}", headers=seated(seat)), "missing")
        assert (await owner.post(f"{path}?ticket={ticket}")).status_code == 400
    path = f"/v1/streams/{started['streamId']}?ticket={ticket}"
    assert (await browser.call("HEAD", path, headers=seated(seat))).status_code == 401
    assert (await opened(browser, path)).status_code == 200, "unused"


@pytest.mark.parametrize("name", ["token", "access_token", "authorization", "api_key"])
async def test_no_token_is_taken_from_the_query(browser: Api, started: dict[str, Any], unique: str, name: str) -> None:
    path = f"/v1/streams/{started['streamId']}?{name}={token(unique)}"
    response = await opened(browser, path)
    assert (response.status_code, response.json()["error"]["fields"]) == (400, [name])


async def test_they_end_by_themselves(stack: Stack, browser: Api, owner: Api, started: dict[str, Any]) -> None:
    stream_id = started["streamId"]
    ticket, seat = await ticket_of(owner, stream_id)
    ticket_key, seat_key = [
        f"{stack.backing.prefix}:{kind}:{hashlib.sha256(chr(0).join((stream_id, secret)).encode()).hexdigest()}"
        for kind, secret in (("ticket", ticket), ("seat", seat.value))
    ]
    assert TICKET_S - 30 < int(stack.redis.ttl(ticket_key)) <= TICKET_S
    left_s = int(stack.redis.ttl(seat_key))
    assert SEAT_S > 3700 >= left_s > 3500, "not longer than the token that it was got with, an hour and the clock skew"
    assert int(seat["max-age"]) == pytest.approx(left_s, abs=30)
    stack.redis.delete(ticket_key, seat_key)
    assert refused(await opened(browser, f"/v1/streams/{stream_id}?ticket={ticket}", **seated(seat)))


async def test_garbage_is_refused(browser: Api, started: dict[str, Any]) -> None:
    path = f"/v1/streams/{started['streamId']}"
    for ticket in ("", "x", "%00", "%ff", "%ED%A0%80", "x" * 5000, "*"):
        assert refused(await opened(browser, f"{path}?ticket={ticket}")), ticket
    assert refused(await opened(browser, path, Cookie=f"{COOKIE}=x"))


async def test_a_service_gets_them_for_a_browser(stack: Stack, browser: Api, unique: str) -> None:
    """Its key stays with it. When it is revoked, what is read by the ticket ends, and the seat is none."""
    service = stack.gateway.bearer(add_key(stack, unique, "acme"))
    stream_id = (await service.start("unserved", **{"as": {"userId": unique}}))["streamId"]
    ticket, _ = await ticket_of(service, stream_id)
    async with browser.reading("GET", f"/v1/streams/{stream_id}?ticket={ticket}") as reading:
        await reading.opened()
        revoke_key(stack, unique)
        *_, last = await reading.rest()
    assert (last.type, last.id) == ("error", None)
    assert refused(await opened(browser, f"/v1/streams/{stream_id}", **seated(seat_in(reading.response))))


async def test_they_say_who_calls_and_no_more(stack: Stack, browser: Api, owner: Api, started: dict[str, Any]) -> None:
    """Whether the run may be read is asked of its row."""
    ticket, seat = await ticket_of(owner, started["streamId"])
    stack.execute("UPDATE agent_runs SET user_id = 'somebody else' WHERE id = :run", run=started["runId"])
    path = f"/v1/streams/{started['streamId']}"
    for response in (await opened(browser, f"{path}?ticket={ticket}"), await opened(browser, path, **seated(seat))):
        assert (response.status_code, response.json()["error"]["code"]) == (404, "STREAM_NOT_FOUND")


# The feed and rooms ------------------------------------------------------------------------------------------------

PATHS = ("/v1/feed", "/v1/rooms/lobby", "/v1/rooms/floor%3A7")


@pytest.mark.parametrize("path", PATHS)
async def test_a_ticket_opens_the_feed_or_a_room_once_and_gives_a_seat(browser: Api, owner: Api, path: str) -> None:
    ticket, own = await ticket_for(owner, path)
    answers = await asyncio.gather(*(opened(browser, f"{path}?ticket={ticket}") for _ in range(4)))
    assert sorted(answer.status_code for answer in answers) == [200] + [401] * 3
    (answer,) = [answer for answer in answers if answer.status_code == 200]
    for seat in (own, seat_in(answer)):
        assert (seat["path"], seat["samesite"].lower(), seat["httponly"], seat["secure"]) == (path, "strict", True, "")
        for _ in range(2):
            assert (await opened(browser, f"{path}?ticket={ticket}", **seated(seat))).status_code == 200


async def test_what_it_shows_is_the_holders(stack: Stack, browser: Api, owner: Api, unique: str) -> None:
    """Also where another user of the same browser has the cookie by now."""
    stranger = stack.gateway.user()
    for path in PATHS:
        ticket, seat = await ticket_for(owner, path)
        other_ticket, other_seat = await ticket_for(stranger, path)
        second_ticket, second_seat = await ticket_for(owner, path)  # another tab
        async with browser.reading("GET", f"{path}?ticket={ticket}") as reading:
            await reading.opened()
            if path == PATHS[0]:
                run_id = (await owner.start("unserved"))["runId"]
                await stranger.start("unserved")
                event = await reading.until(lambda event: event.type == "run")
                assert json.loads(event.data)["id"] == run_id
            else:
                await until_member(owner, path, unique)
        for known in (seat, second_seat):
            assert (await opened(browser, f"{path}?ticket={ticket}", **seated(known))).status_code == 200
        assert refused(await opened(browser, f"{path}?ticket={ticket}", **seated(other_seat)))
        forged = f"{other_ticket.partition('.')[0]}.{ticket.partition('.')[2]}"
        assert refused(await opened(browser, f"{path}?ticket={forged}", **seated(seat)))
        assert refused(await opened(browser, path, **seated(seat)), "missing"), "nothing says whose feed is asked for"
        assert (await opened(browser, f"{path}?ticket={second_ticket}")).status_code == 200, "unused"


async def until_member(api: Api, path: str, user: str) -> None:
    async with asyncio.timeout(GUARD_S):
        while {"userId": user} not in (await api.get(f"{path}/members")).json()["items"]:  # noqa: ASYNC110 - no event
            await asyncio.sleep(0.01)


async def test_a_ticket_opens_no_other_place(
    stack: Stack, browser: Api, owner: Api, started: dict[str, Any], unique: str
) -> None:
    stream = f"/v1/streams/{started['streamId']}"
    places = (stream, *PATHS)
    given = {stream: await ticket_of(owner, started["streamId"])}
    given |= {path: await ticket_for(owner, path) for path in PATHS}
    for path, (ticket, seat) in given.items():
        for other in (*(place for place in places if place != path), "/v1/rooms/floor:8", "/v1/streams/feed"):
            assert refused(await opened(browser, f"{other}?ticket={ticket}", **seated(seat))), (path, other)
        for other in ("/v1/rooms/lobby/members", "/v1/runs", "/v1/queues"):
            assert refused(await opened(browser, f"{other}?ticket={ticket}", **seated(seat)), "missing")
        assert refused(await browser.post(f"{path}/tickets?ticket={ticket}", headers=seated(seat)), "missing")
        assert (await opened(browser, f"{path}?ticket={ticket}")).status_code == 200, "unused"

    several = stack.gateway.bearer(add_key(stack, unique, "acme", "initech"))
    path = "/v1/rooms/lobby"
    ticket, seat = await ticket_for(several, path, tenantId="acme")
    for tenant in ("?", "?tenantId=initech&"):
        assert refused(await opened(browser, f"{path}{tenant}ticket={ticket}", **seated(seat)))
    assert (await opened(browser, f"{path}?tenantId=acme&ticket={ticket}")).status_code == 200


async def test_a_ticket_is_for_who_may_be_there(stack: Stack, browser: Api, unique: str) -> None:
    """The rooms that a token names are remembered with it; whom none is open to gets no ticket."""
    granted = stack.gateway.bearer(token(unique, rooms=["attic:*"]))
    ticket, seat = await ticket_for(granted, "/v1/rooms/attic:1")
    for _ in range(2):
        assert (await opened(browser, f"/v1/rooms/attic:1?ticket={ticket}", **seated(seat))).status_code == 200
    for api, status, code in (
        (stack.gateway.user(), 404, "ROOM_NOT_FOUND"),
        (stack.gateway.anonymous(), 401, "UNAUTHENTICATED"),
    ):
        response = await api.post("/v1/rooms/attic:1/tickets")
        assert (response.status_code, response.json()["error"]["code"]) == (status, code)
    assert refused(await browser.post("/v1/feed/tickets"), "missing")


async def test_nothing_of_them_is_logged(stack: Stack, unique: str) -> None:
    """Nor is the header, at any level; and a page that was opened by such a URL tells no other site of it."""
    async with stack.starting_gateway(RUNYARD_LOG_LEVEL="debug") as gateway:
        api, browser = gateway.user(unique), gateway.anonymous()
        stream_id = (await api.start("unserved"))["streamId"]
        ticket, seat = await ticket_of(api, stream_id)
        path = f"/v1/streams/{stream_id}?ticket={ticket}"
        answers = [await opened(browser, path) for _ in range(2)]
        answers += [await opened(browser, path, **seated(seat)), await opened(browser, f"/v1/runs?ticket={ticket}")]
        assert [answer.status_code for answer in answers] == [200, 401, 200, 401]
        secrets = [ticket, seat.value, seat_in(answers[0]).value, api.headers["Authorization"].removeprefix("Bearer ")]
        for place in PATHS:
            ticket, seat = await ticket_for(api, place)
            answers += [await opened(browser, f"{place}?ticket={ticket}") for _ in range(2)]
            secrets += [ticket, seat.value, seat_in(answers[-2]).value]
        assert {answer.headers["referrer-policy"] for answer in answers} == {"no-referrer"}
        log = gateway.process.log.read_text()
    assert "gateway listens" in log
    assert not [secret for secret in secrets if secret in log]
