"""Tokens of an issuer with public keys, over a real key set: good ones, and all that a key does not serve."""

import base64
import hashlib
import hmac
import json
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from tests.clients.issuer import Issuer, serving_issuer
from tests.clients.tokens import SECRET, signed
from tests.integration.fixtures import on_sqlite
from tests.integration.stack import Gateway, Stack

pytestmark = [pytest.mark.anyio, on_sqlite]

AUDIENCE, NAME = "runyard", "https://issuer.example"
KEYS = {"rsa": "RS256", "p-256": "ES256", "p-384": "ES384", "ed25519": "EdDSA"}
SERVED = [
    *(("rsa", name) for name in ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")),
    *(("p-256", "ES256"), ("p-384", "ES384"), ("ed25519", "EdDSA")),
]
GOOD = {"aud": AUDIENCE, "iss": NAME}


@pytest.fixture(scope="module")
def issuer() -> Iterator[Issuer]:
    with serving_issuer() as serving:
        for key_id, algorithm in KEYS.items():
            serving.publish(key_id, algorithm)
        yield serving


@pytest.fixture(scope="module")
async def gateway(sqlite_stack: Stack, issuer: Issuer) -> AsyncIterator[Gateway]:
    settings = {
        "RUNYARD_JWT_SECRET": "",
        "RUNYARD_JWKS_URL": issuer.url,
        "RUNYARD_JWT_AUDIENCE": AUDIENCE,
        "RUNYARD_JWT_ISSUER": NAME,
    }
    async with sqlite_stack.starting_gateway(**settings) as started:
        yield started


async def status(gateway: Gateway, token: str) -> tuple[int, str | None]:
    """Of an answer to this token, and the reason of a refusal."""
    response = await gateway.bearer(token).get("/v1/runs")
    assert token not in response.text
    return response.status_code, response.json().get("error", {}).get("reason")


@pytest.mark.parametrize(("key_id", "algorithm"), SERVED)
async def test_an_issuers_keys_are_taken(
    stack: Stack, gateway: Gateway, issuer: Issuer, key_id: str, algorithm: str
) -> None:
    user = f"user-of-{algorithm}"
    token = issuer.token(key_id, algorithm, user=user, tenant="acme", **GOOD)
    started = await gateway.bearer(token).start("unserved")
    run = (await gateway.bearer(token).get(f"/v1/runs/{started['runId']}")).json()
    assert (run["userId"], run["tenantId"]) == (user, "acme")


@pytest.mark.parametrize(
    ("claims", "reason"),
    [
        ({"iss": NAME}, "invalid"),
        ({"aud": AUDIENCE}, "invalid"),
        ({"aud": "another", "iss": NAME}, "invalid"),
        ({"aud": ["another"], "iss": NAME}, "invalid"),
        ({"aud": AUDIENCE, "iss": f"{NAME}/"}, "invalid"),
        (GOOD | {"exp": 1}, "expired"),
        (GOOD | {"nbf": 2**40}, "invalid"),
        (GOOD | {"sub": ""}, "invalid"),
    ],
    ids=str,
)
async def test_claims_that_are_refused(
    stack: Stack, gateway: Gateway, issuer: Issuer, claims: dict[str, Any], reason: str
) -> None:
    token = issuer.token("p-256", "ES256", **({"user": "ann"} | claims))
    assert await status(gateway, token) == (401, reason)


async def test_one_of_several_audiences_is_enough(stack: Stack, gateway: Gateway, issuer: Issuer) -> None:
    token = issuer.token("p-256", "ES256", user="ann", aud=["another", AUDIENCE], iss=NAME)
    assert (await status(gateway, token))[0] == 200


def _hmac(key: bytes, header: dict[str, Any]) -> str:
    """A token that is signed with a public key as if that were a secret."""
    claims = GOOD | {"sub": "ann", "roles": ["admin"], "exp": int(time.time()) + 3600}
    parts = [base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=") for part in (header, claims)]
    head = b".".join(parts)
    signature = base64.urlsafe_b64encode(hmac.new(key, head, hashlib.sha256).digest()).rstrip(b"=")
    return b".".join((head, signature)).decode()


async def test_a_public_key_is_no_secret(stack: Stack, gateway: Gateway, issuer: Issuer) -> None:
    """RFC 8725, section 2.1: a gateway that let the token choose would take these."""
    public = issuer.private["rsa"].public_key()
    for encoding, form in (
        (Encoding.PEM, PublicFormat.SubjectPublicKeyInfo),
        (Encoding.PEM, PublicFormat.PKCS1),
        (Encoding.DER, PublicFormat.SubjectPublicKeyInfo),
    ):
        key = public.public_bytes(encoding, form)
        for header in ({"alg": "HS256", "kid": "rsa"}, {"alg": "HS256"}, {"alg": "HS256", "kid": ""}):
            assert await status(gateway, _hmac(key, header)) == (401, "invalid")
    entry = json.dumps(issuer.published["rsa"]).encode()
    assert await status(gateway, _hmac(entry, {"alg": "HS256", "kid": "rsa"})) == (401, "invalid")


async def test_a_key_serves_its_own_algorithms_alone(stack: Stack, gateway: Gateway, issuer: Issuer) -> None:
    refused = [
        signed(GOOD | {"sub": "ann"}, algorithm="none"),
        signed(GOOD | {"sub": "ann"}, algorithm="none", kid="rsa"),
        signed(GOOD | {"sub": "ann"}, kid="rsa"),
        signed(GOOD | {"sub": "ann"}, secret=SECRET),
        issuer.token("rsa", "RS256", user="ann", header={"kid": "p-256"}, **GOOD),
        issuer.token("p-256", "ES256", user="ann", header={"kid": "rsa"}, **GOOD),
        issuer.token("p-256", "ES256", user="ann", header={"kid": "p-384"}, **GOOD),
        issuer.token("rsa", "RS256", user="ann", header={"kid": "../../rsa"}, **GOOD),
    ]
    for token in refused:
        assert await status(gateway, token) == (401, "invalid")


async def test_a_key_that_a_token_brings_along_is_not_looked_at(stack: Stack, gateway: Gateway) -> None:
    with serving_issuer() as stranger:
        stranger.publish("rsa", "RS256")
        brought = {"jku": stranger.url, "x5u": stranger.url, "jwk": stranger.published["rsa"]}
        token = stranger.token("rsa", "RS256", user="ann", header=brought, **GOOD)
        assert await status(gateway, token) == (401, "invalid")
        assert stranger.asked == 0


async def test_foreign_keys_do_not_make_the_gateway_ask_again(stack: Stack, gateway: Gateway, issuer: Issuer) -> None:
    asked = issuer.asked
    for number in range(50):
        token = issuer.token("rsa", "RS256", user="ann", header={"kid": f"foreign-{number}"}, **GOOD)
        assert await status(gateway, token) == (401, "invalid")
    assert issuer.asked <= asked + 1


async def test_a_gateway_whose_issuer_is_away_says_so(stack: Stack) -> None:
    """503: the token may be good. It starts, serves who has a key, and finds the issuer later."""
    key = "ry_" + "ab" * 32
    with serving_issuer() as issuer:
        issuer.publish("k1", "ES256")
        issuer.status = 500
        settings = {"RUNYARD_JWT_SECRET": "", "RUNYARD_JWKS_URL": issuer.url, "RUNYARD_SERVICE_KEYS": f"bot:acme:{key}"}
        async with stack.starting_gateway(**settings) as gateway:
            response = await gateway.bearer(issuer.token("k1", "ES256", user="ann")).get("/v1/runs")
            assert (response.status_code, response.json()["error"]["code"]) == (503, "NOT_READY")
            assert response.headers["retry-after"] == "1"
            assert (await gateway.bearer(key).get("/v1/runs")).status_code == 200
            warning = await gateway.process.logged("signing keys not fetched")
            assert warning["setting"] == "RUNYARD_JWKS_URL"
