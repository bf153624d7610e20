"""Who calls: tokens that are taken and refused, and what belongs to whom."""

import base64
import json
import time
from collections.abc import AsyncIterator
from contextlib import ExitStack
from typing import Any

import pytest
from tests.clients.api import Api
from tests.clients.tokens import SECRET, signed, token
from tests.integration.fixtures import on_sqlite
from tests.integration.stack import Gateway, Stack
from tests.standin import says

pytestmark = [pytest.mark.anyio, on_sqlite]

NOW = int(time.time())


def _part_of(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


GOOD = {"sub": "ann", "exp": NOW + 3600}
REFUSED = {
    "not yet valid": signed(GOOD | {"nbf": NOW + 3600}),
    "of another secret": signed(GOOD, secret=SECRET[::-1]),
    "of another algorithm": signed(GOOD, algorithm="HS512"),
    "unsigned": signed(GOOD, algorithm="none"),
    "cut off": signed(GOOD)[:-3],
    "changed": signed(GOOD).replace(".", ".e", 1),
    "no token": "sesame",
    "no JSON in it": "e30.e30.e30",
    "deeply nested": f"{_part_of('[' * 20_000)}.e30.x",
    "a number in its header": f"{_part_of('5')}.e30.x",
    "exp that is no time": signed(GOOD | {"exp": "soon"}),
    "exp that is null": signed(GOOD | {"exp": None}),
    "exp that is infinite": signed(GOOD | {"exp": float("inf")}),
    "kid that is a list": signed(GOOD, kid=["a"]),
    "a key that is none": "ry_" + "0" * 64,
    "a key cut short": "ry_" + "0" * 63,
    "a key that goes on": "ry_" + "0" * 65,
    "without sub": signed({"exp": NOW + 3600}),
    "empty sub": signed(GOOD | {"sub": ""}),
    "blank sub": signed(GOOD | {"sub": " \n"}),
    "sub that is a number": signed(GOOD | {"sub": 5}),
    "NUL in sub": signed(GOOD | {"sub": "a\0b"}),
    "long sub": signed(GOOD | {"sub": "a" * 257}),
    "null tenant": signed(GOOD | {"tenant": None}),
    "tenant that is a list": signed(GOOD | {"tenant": ["t1"]}),
    "roles that are a string": signed(GOOD | {"roles": "admin"}),
    "roles that are numbers": signed(GOOD | {"roles": [1]}),
    "a role that no store holds": signed(GOOD | {"roles": ["a\ud800"]}),
    "a role that nobody sees": signed(GOOD | {"roles": ["\0"]}),
}


def check_refused(response: Any, *secrets: str, reason: str = "invalid") -> None:
    assert response.status_code == 401
    challenge = "Bearer" if reason == "missing" else 'Bearer error="invalid_token"'
    assert response.headers["www-authenticate"] == challenge
    error = response.json()["error"]
    assert error["code"] == "UNAUTHENTICATED"
    assert error["reason"] == reason
    assert error["requestId"] == response.headers["x-request-id"]
    assert error["retryable"] is False
    assert not any(secret and secret in response.text for secret in secrets)


async def test_probes_ask_nobody(stack: Stack) -> None:
    nobody = stack.gateway.anonymous()
    assert (await nobody.get("/healthz")).json() == {"status": "ok"}
    assert (await nobody.get("/readyz")).json() == {"status": "ready"}


@pytest.mark.parametrize("given", REFUSED.values(), ids=REFUSED.keys())
async def test_tokens_that_are_refused(stack: Stack, given: str) -> None:
    check_refused(await stack.gateway.bearer(given).get("/v1/runs"), given, SECRET)


async def test_a_token_that_has_expired_is_told_apart(stack: Stack) -> None:
    """Its holder can get another one; of one that is not valid nothing more is told."""
    given = signed(GOOD | {"exp": NOW - 3600})
    check_refused(await stack.gateway.bearer(given).get("/v1/runs"), given, reason="expired")
    forged = signed(GOOD | {"exp": NOW - 3600}, secret=SECRET[::-1])
    check_refused(await stack.gateway.bearer(forged).get("/v1/runs"))


@pytest.mark.parametrize(("claim", "off_s"), [("exp", -5), ("nbf", 5)])
async def test_clocks_may_disagree_a_little(stack: Stack, claim: str, off_s: int) -> None:
    given = signed({"sub": "ann", claim: int(time.time()) + off_s})
    assert (await stack.gateway.bearer(given).get("/v1/runs")).status_code == 200


@pytest.mark.parametrize("header", ["Basic YW5uOnB3", "Bearer", "bearer", f"Token {signed(GOOD)}", "", "x"])
async def test_headers_without_a_bearer_token(stack: Stack, header: str) -> None:
    check_refused(await Api(stack.gateway.http, {"Authorization": header}).get("/v1/runs"), reason="missing")


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER"])
async def test_the_scheme_is_read_in_any_case(stack: Stack, scheme: str) -> None:
    response = await Api(stack.gateway.http, {"Authorization": f"{scheme} {signed(GOOD)}"}).get("/v1/runs")
    assert response.status_code == 200


async def test_a_token_in_the_query_is_no_token(stack: Stack) -> None:
    check_refused(await stack.gateway.anonymous().get("/v1/runs", access_token=signed(GOOD)), reason="missing")


async def test_a_token_without_a_tenant_is_of_the_tenant_default(stack: Stack, unique: str) -> None:
    stack.standin.answers(says("x"))
    run = await stack.gateway.user(unique).run("talker")
    path = f"/v1/runs/{run['runId']}"
    assert (await stack.gateway.user(unique, tenant="default").get(path)).status_code == 200
    assert (await stack.gateway.user(unique, tenant="t1").get(path)).status_code == 404


async def test_far_from_now_a_token_does_not_expire(stack: Stack, unique: str) -> None:
    """The time that a stream would end is beyond what a timer can be set to."""
    caller = stack.gateway.bearer(signed({"sub": unique, "exp": 10**400}))
    started = await caller.start("unserved")
    async with caller.resuming(started["streamId"]) as reading:
        await reading.opened()


async def test_agents_for_admins_are_hidden_from_others(stack: Stack) -> None:
    stack.standin.answers(says("x"))
    user, admin = stack.gateway.user(), stack.gateway.user(roles=("editor", "admin"))
    assert "treasurer" not in [agent["name"] for agent in (await user.get("/v1/agents")).json()["items"]]
    assert "treasurer" in [agent["name"] for agent in (await admin.get("/v1/agents")).json()["items"]]
    for response in (
        await user.get("/v1/agents/treasurer"),
        await user.post("/v1/agents/treasurer/runs", {"input": "give"}),
    ):
        assert response.status_code == 404
        assert response.json()["error"]["code"] == "AGENT_NOT_FOUND"
    assert (await admin.run("treasurer"))["status"] == "completed"
    assert (await user.get("/v1/runs")).json()["items"] == []


@pytest.fixture(scope="module")
async def dev_gateway(sqlite_stack: Stack) -> AsyncIterator[Gateway]:
    async with sqlite_stack.starting_gateway(RUNYARD_AUTH="dev") as gateway:
        yield gateway


async def test_dev_trusts_everybody_as_one_user_and_says_so(stack: Stack, dev_gateway: Gateway) -> None:
    stack.standin.answers(says("x"))
    run = await dev_gateway.anonymous().run("treasurer")
    for caller in (dev_gateway.bearer("whatever"), dev_gateway.user(), stack.gateway.user("dev")):
        response = await caller.get(f"/v1/runs/{run['runId']}")
        assert response.status_code == 200
    assert (await stack.gateway.user("dev", tenant="t1").get(f"/v1/runs/{run['runId']}")).status_code == 404
    (warning,) = dev_gateway.process.events("every caller is trusted as the user dev")
    assert warning["level"] == "warning"
    assert warning["setting"] == "RUNYARD_AUTH=dev"


async def test_a_gateway_that_could_not_tell_who_calls_does_not_start(stack: Stack) -> None:
    """One line each; all start at once, for the time that a start takes."""
    refused = {
        "RUNYARD_AUTH is not set": {"RUNYARD_AUTH": ""},
        "RUNYARD_HOST must be a loopback address": {"RUNYARD_AUTH": "dev", "RUNYARD_HOST": "0.0.0.0"},
        "RUNYARD_JWT_SECRET: must have 32 bytes": {"RUNYARD_AUTH": "jwt", "RUNYARD_JWT_SECRET": "too short"},
    }
    with ExitStack() as exits:
        starting = {
            line: exits.enter_context(stack.process("runyard_gateway", **settings))
            for line, settings in refused.items()
        }
        for line, process in starting.items():
            assert await process.exited() == 2
            (said,) = process.log.read_text().splitlines()
            assert said.startswith("error: ")
            assert line in said
            assert "too short" not in said


async def test_no_token_reaches_a_log(stack: Stack) -> None:
    given = token("secretive")
    for path in ("/v1/runs", "/v1/nowhere", f"/v1/runs?access_token={given}"):
        await stack.gateway.bearer(given).get(path)
    body = given.split(".")[1]
    assert body not in json.dumps(stack.gateway.process.events())
