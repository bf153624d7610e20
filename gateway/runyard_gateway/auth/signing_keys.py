"""The keys that verify tokens. The algorithms come from the key, never from the token (RFC 8725, section 3.1)."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import jwt

from runyard.errors import Unauthenticated

HMAC_MIN_BYTES = {"HS256": 32, "HS384": 48, "HS512": 64}
"""RFC 7518, section 3.2: a key of the hash's size or larger."""

PUBLIC_ALGORITHMS: Mapping[tuple[str, str | None], tuple[str, ...]] = {
    ("RSA", None): ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    ("EC", "P-256"): ("ES256",),
    ("EC", "P-384"): ("ES384",),
    ("EC", "P-521"): ("ES512",),
    ("OKP", "Ed25519"): ("EdDSA",),
}
"""By a public key's type and curve (RFC 7518, section 3.1; RFC 8037). Symmetric keys of a key set are ignored: a secret
that is published is none."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SigningKey:
    """A key; `id` is the `kid` in the header of its tokens."""

    id: str | None
    algorithms: tuple[str, ...]
    key: Any


class SigningKeys(Protocol):
    async def find(self, key_id: str | None, algorithm: str) -> SigningKey:
        """The key for a token whose header names these two; the token still has to be verified.

        Raises:
            Unauthenticated: there is none.
            NotReady: it cannot be found out yet.
        """
        ...

    async def run(self) -> None:
        """Keep the keys fresh, until cancelled."""
        ...


class SharedSecret:
    """A secret that issuer and gateway share, for those algorithms for which it is long enough."""

    def __init__(self, secret: str) -> None:
        size = len(secret.encode())
        algorithms = tuple(name for name, least in HMAC_MIN_BYTES.items() if size >= least)
        self._key = SigningKey(id=None, algorithms=algorithms, key=secret)

    async def find(self, key_id: str | None, algorithm: str) -> SigningKey:  # noqa: ARG002 - there is one
        return self._key

    async def run(self) -> None:
        pass


def choose(keys: Sequence[SigningKey], key_id: str | None, algorithm: str) -> SigningKey | None:
    """The key with this id for this algorithm. A token without a key id gets one only if there is exactly one that
    fits.
    """
    fitting = [key for key in keys if algorithm in key.algorithms and key_id in {None, key.id}]
    return fitting[0] if fitting and (key_id is not None or len(fitting) == 1) else None


def read_key_set(document: Any) -> tuple[SigningKey, ...]:
    """The usable keys of a JWK set (RFC 7517); others are ignored.

    Raises:
        ValueError: there are none.
    """
    found = document.get("keys") if isinstance(document, dict) else None
    keys = tuple(_usable(found)) if isinstance(found, list) else ()
    if not keys:
        raise ValueError("it has no usable key")
    return keys


def _usable(found: list[Any]) -> Iterator[SigningKey]:
    for item in found:
        if not isinstance(item, dict) or item.get("use", "sig") != "sig":
            continue
        kind = (item.get("kty"), item.get("crv"))  # whatever they are: compared, never looked up
        served = next((names for known, names in PUBLIC_ALGORITHMS.items() if known == kind), ())
        algorithms = tuple(name for name in served if item.get("alg", name) == name)
        if not algorithms:
            continue
        try:
            key = jwt.PyJWK(item, algorithms[0]).key
        except jwt.PyJWTError:
            continue
        key_id = item.get("kid")
        yield SigningKey(id=key_id if isinstance(key_id, str) else None, algorithms=algorithms, key=key)


def no_such_key() -> Unauthenticated:
    return Unauthenticated("the token is not valid", reason="invalid")
