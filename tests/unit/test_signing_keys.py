"""What a token is verified with: the algorithms come from the key."""

import json
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

from runyard_gateway.auth.signing_keys import SharedSecret, choose, read_key_set

pytestmark = pytest.mark.anyio

RSA = RSAAlgorithm.to_jwk(rsa.generate_private_key(public_exponent=65537, key_size=2048).public_key(), as_dict=True)
CURVES = {
    "ES256": ec.SECP256R1(),
    "ES384": ec.SECP384R1(),
    "ES512": ec.SECP521R1(),
}
EC = {
    name: ECAlgorithm.to_jwk(ec.generate_private_key(curve).public_key(), as_dict=True)
    for name, curve in CURVES.items()
}
ED25519 = OKPAlgorithm.to_jwk(ed25519.Ed25519PrivateKey.generate().public_key(), as_dict=True)
OCT = {"kty": "oct", "k": "c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0LXNlY3JldA"}
RSA_ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")


@pytest.mark.parametrize(
    ("size", "algorithms"),
    [
        (32, ("HS256",)),
        (47, ("HS256",)),
        (48, ("HS256", "HS384")),
        (63, ("HS256", "HS384")),
        (64, ("HS256", "HS384", "HS512")),
    ],
)
async def test_a_secret_serves_what_it_is_long_enough_for(size: int, algorithms: tuple[str, ...]) -> None:
    assert (await SharedSecret("é" * (size // 2) + "x" * (size % 2)).find(None, "RS256")).algorithms == algorithms


@pytest.mark.parametrize(
    ("key", "algorithms"),
    [
        (RSA, RSA_ALGORITHMS),
        (RSA | {"use": "sig", "alg": "PS384"}, ("PS384",)),
        *((key, (name,)) for name, key in EC.items()),
        (ED25519, ("EdDSA",)),
    ],
    ids=str,
)
def test_a_public_keys_type_says_what_it_serves(key: dict[str, Any], algorithms: tuple[str, ...]) -> None:
    (found,) = read_key_set({"keys": [key | {"kid": "k1"}]})
    assert (found.id, found.algorithms) == ("k1", algorithms)


@pytest.mark.parametrize(
    "key",
    [
        OCT,
        OCT | {"alg": "HS256"},
        RSA | {"use": "enc"},
        RSA | {"alg": "HS256"},
        RSA | {"alg": "none"},
        RSA | {"alg": "RSA-OAEP"},
        EC["ES256"] | {"crv": "P-384"},
        EC["ES256"] | {"crv": "secp256k1"},
        {"kty": "RSA"},
        {"kty": 5},
        {},
        "no key",
        None,
    ],
    ids=str,
)
def test_a_key_that_cannot_be_used_is_passed_over(key: Any) -> None:
    assert [found.id for found in read_key_set({"keys": [key, RSA | {"kid": "good"}]})] == ["good"]


@pytest.mark.parametrize("document", [None, [], "keys", {}, {"keys": None}, {"keys": []}, {"keys": [OCT]}], ids=str)
def test_a_set_without_a_usable_key_is_none(document: Any) -> None:
    with pytest.raises(ValueError, match="no usable key"):
        read_key_set(json.loads(json.dumps(document)))


ODD = [None, 5, -1, 1.5, True, [], {}, "", "A", "####", "é", ["RS256"], {"a": 1}, "\x00", 10**400]


@pytest.mark.parametrize("key", [RSA, EC["ES256"], ED25519], ids=["RSA", "EC", "OKP"])
def test_a_key_of_odd_parts_does_no_harm(key: dict[str, Any]) -> None:
    """Whatever an issuer publishes, the gateway goes on with what it can use."""
    for name in (*key, "kid", "use", "alg", "x5c", "d", "p"):
        for odd in ODD:
            found = read_key_set({"keys": [key | {name: odd}, RSA | {"kid": "good"}]})
            assert choose(found, "good", "RS256") is found[-1]


def test_a_token_finds_its_key_by_its_name_and_what_it_serves() -> None:
    keys = read_key_set({"keys": [RSA | {"kid": "a"}, EC["ES256"] | {"kid": "b"}, EC["ES384"] | {"kid": "b"}]})
    assert choose(keys, "a", "RS256") is keys[0]
    assert choose(keys, "b", "ES384") is keys[2]
    assert choose(keys, "a", "ES256") is None
    assert choose(keys, "c", "RS256") is None
    assert choose(keys, "a", "HS256") is None
    assert choose(keys, "a", "none") is None


def test_a_token_that_names_no_key_has_the_only_one() -> None:
    one = read_key_set({"keys": [RSA | {"kid": "a"}, EC["ES256"] | {"kid": "b"}]})
    assert choose(one, None, "RS256") is one[0]
    two = read_key_set({"keys": [RSA | {"kid": "a"}, RSA | {"kid": "b"}]})
    assert choose(two, None, "RS256") is None


def test_pyjwt_still_makes_keys_as_we_ask_for_them() -> None:
    """`read_key_set` names an algorithm to `PyJWK` whose key serves all of its type."""
    assert jwt.PyJWK(RSA, "RS256").key_type == "RSA"
