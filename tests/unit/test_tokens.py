"""Whatever a token holds, it becomes a principal, or it is refused: nothing else comes of it."""

import json
import random
from typing import Any

import pytest
from tests.clients.tokens import SECRET, signed

from runyard.errors import Unauthenticated
from runyard_gateway.auth.principal import Identity, Principal, Service
from runyard_gateway.auth.signing_keys import SharedSecret
from runyard_gateway.auth.tokens import Tokens

pytestmark = pytest.mark.anyio

GOOD = {"sub": "ann", "aud": "runyard", "iss": "issuer"}
ODD: list[Any] = [None, True, 0, -1, 1.5, 2**40, 2**63, 10**400, -(10**30), float("inf"), float("nan"), 1e308]
ODD += ["", "5", "\0", "\ud800", "a" * 300, [], [5], ["x"], {}, {"a": 1}]
TOKENS = Tokens(SharedSecret(SECRET), audience="runyard", issuer="issuer")


async def principal_of(token: str) -> Principal | None:
    """None: refused, and the refusal does not show it."""
    try:
        found = await TOKENS.principal(token)
    except Unauthenticated as refused:
        said = json.dumps(refused.body())
    else:
        found.credential.on_end(lambda _: None)()
        return found
    assert not token or token not in said
    return None


@pytest.mark.parametrize("claim", ["sub", "exp", "nbf", "iat", "aud", "iss", "jti", "tenant", "roles"])
async def test_odd_claims(claim: str) -> None:
    for odd in ODD:
        found = await principal_of(signed(GOOD | {claim: odd}))
        if found is not None:
            assert isinstance(found.caller, Identity)
            assert all(
                isinstance(name, str) and name.isprintable() for name in (found.caller.user_id, *found.scope.tenants)
            )


@pytest.mark.parametrize("claim", ["exp", "nbf", "iat"])
async def test_a_time_is_a_number(claim: str) -> None:
    later = 2**33 if claim == "exp" else 5
    assert await principal_of(signed(GOOD | {claim: later})) is not None
    for odd in (str(later), True, None, [later]):
        assert await principal_of(signed(GOOD | {claim: odd})) is None


@pytest.mark.parametrize("part", ["typ", "kid", "crit", "b64", "cty", "jwk", "x5c", "zip"])
async def test_odd_headers(part: str) -> None:
    for odd in (*ODD, ["b64"], "none"):
        await principal_of(signed(GOOD, **{part: odd}))


@pytest.mark.parametrize(
    "token", ["", ".", "..", "....", "a.b.c", "é.é.é", "e30.e30.", "W10.W10.W10", "bnVsbA.bnVsbA.x"]
)
async def test_what_is_no_token(token: str) -> None:
    assert await principal_of(token) is None


async def test_a_changed_token_is_none() -> None:
    chance = random.Random(7)
    good = signed(GOOD)
    assert await principal_of(good) is not None
    for _ in range(1000):
        changed = list(good[: good.rindex(".") - 1])
        changed[chance.randrange(len(changed))] = chr(chance.randrange(33, 126))
        token = "".join(changed) + good[len(changed) :]
        assert token == good or await principal_of(token) is None


async def test_roles_make_the_principal() -> None:
    user = await principal_of(signed(GOOD | {"roles": ["admin", "editor"], "tenant": "acme"}))
    assert user is not None
    assert user.caller == Identity(tenant_id="acme", user_id="ann", roles=frozenset({"admin", "editor"}))
    assert (user.scope.tenants, user.scope.user_id) == (("acme",), None)
    plain = await principal_of(signed(GOOD))
    assert plain is not None
    assert (plain.scope.tenants, plain.scope.user_id) == (("default",), "ann")
    program = await principal_of(signed(GOOD | {"roles": ["service", "admin"], "tenant": "acme"}))
    assert program is not None
    assert program.caller == Service(name="ann", tenants=("acme",))
