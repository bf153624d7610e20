"""JSON Web Tokens (RFC 7519): their claims become a principal."""

from collections.abc import Mapping
from typing import Any

import jwt

from runyard.errors import Unauthenticated
from runyard.rooms import ROOM, ROOM_RULE
from runyard.text import NAME_RULE, is_name
from runyard_gateway.auth.credentials import Lasting, UntilTime, expired
from runyard_gateway.auth.principal import DEFAULT_TENANT, SERVICE, Credential, Identity, Principal, Service
from runyard_gateway.auth.signing_keys import SigningKeys, no_such_key

CLOCK_SKEW_S = 30
"""How far the token's issuer and this machine may disagree about `exp` and `nbf`."""

_TIMES = ("exp", "nbf", "iat")

FAR_AWAY_S = 2**40
"""Later than any clock shows; a timer might not accept a number beyond it."""


class Tokens:
    """The claims: `sub` is the user, `tenant` their tenant (else `default`), `roles` a list of names.

    A token with the role `service` belongs to a program, which acts for the users of its tenant, as with a service key.
    """

    def __init__(self, keys: SigningKeys, *, audience: str | None, issuer: str | None) -> None:
        self._keys = keys
        self._audience = audience
        self._issuer = issuer

    async def principal(self, token: str) -> Principal:
        """Raises `Unauthenticated`, or `NotReady` while the key that the token names cannot be fetched."""
        claims = await self._verified(token)
        user_id = _name(claims["sub"], "sub")
        tenant_id = _name(claims.get("tenant", DEFAULT_TENANT), "tenant")
        roles = _roles(claims.get("roles", []))
        if SERVICE in roles:
            return Principal(caller=Service(name=user_id, tenants=(tenant_id,)), credential=_credential(claims))
        return Principal(
            caller=Identity(tenant_id=tenant_id, user_id=user_id, roles=roles, rooms=_rooms(claims.get("rooms", []))),
            credential=_credential(claims),
        )

    async def run(self) -> None:
        await self._keys.run()

    async def _verified(self, token: str) -> Mapping[str, Any]:
        try:
            header = jwt.get_unverified_header(token)
            key = await self._keys.find(header.get("kid"), header["alg"])
            claims: Mapping[str, Any] = jwt.decode(
                token,
                key.key,
                algorithms=key.algorithms,
                audience=self._audience,
                issuer=self._issuer,
                leeway=CLOCK_SKEW_S,
                options={"require": ["sub"], "verify_aud": self._audience is not None},
            )
        except jwt.ExpiredSignatureError as error:
            raise expired() from error
        # Beside the library's own: what is no token at all, in all the ways in which it can be none.
        except (jwt.PyJWTError, ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
            raise no_such_key() from error
        if not all(type(claims[name]) in {int, float} for name in _TIMES if name in claims):
            raise no_such_key()  # RFC 7519, section 2: a NumericDate is a number, where the library takes "5" for one
        return claims


def _credential(claims: Mapping[str, Any]) -> Credential:
    return UntilTime(min(int(claims["exp"]), FAR_AWAY_S) + CLOCK_SKEW_S) if "exp" in claims else Lasting()


def _name(value: object, claim: str) -> str:
    if not is_name(value):
        raise Unauthenticated(f"the token's claim {claim} must be {NAME_RULE}", reason="invalid")
    return value


def _roles(value: object) -> frozenset[str]:
    if not isinstance(value, list) or not all(map(is_name, value)):
        raise Unauthenticated(f"the token's claim roles must be a list, each item {NAME_RULE}", reason="invalid")
    return frozenset(value)


def _rooms(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(room, str) and ROOM.fullmatch(room) for room in value):
        raise Unauthenticated(f"the token's claim rooms must be a list, each item {ROOM_RULE}", reason="invalid")
    return tuple(value)
