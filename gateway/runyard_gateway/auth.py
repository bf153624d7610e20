"""From a request's `Authorization` header to a principal."""

from typing import Protocol

import jwt

from runyard.errors import StartError, Unauthenticated
from runyard.settings import Settings
from runyard_gateway.principal import DEFAULT_TENANT, Principal

CLOCK_SKEW_S = 30
"""How far the token's issuer and this machine may disagree about `exp` and `nbf`."""

SUBJECT_MAX = 256


class Authenticator(Protocol):
    def principal(self, authorization: str | None) -> Principal:
        """Raises `Unauthenticated` for a header that is missing or not valid."""
        ...


class TrustEverybody:
    """`RUNYARD_AUTH=dev`: every caller is the user `dev`; the settings bind such a gateway to loopback."""

    def principal(self, authorization: str | None) -> Principal:  # noqa: ARG002 - it looks at nothing
        return Principal(tenant_id=DEFAULT_TENANT, user_id="dev", roles=frozenset({"admin"}))


class JwtAuthenticator:
    """HS256 tokens with `sub` (the user), `tenant` (else `default`) and `roles` (a list of strings)."""

    def __init__(self, secret: str) -> None:
        self._secret = secret

    def principal(self, authorization: str | None) -> Principal:
        token = _bearer(authorization)
        try:
            # The algorithm is ours, never the token's: a token that says "none" is refused (RFC 8725, section 3.1).
            claims = jwt.decode(
                token,
                self._secret,
                algorithms=["HS256"],
                leeway=CLOCK_SKEW_S,
                options={"require": ["sub"], "verify_aud": False},
            )
        except jwt.ExpiredSignatureError as error:
            raise Unauthenticated("the token has expired") from error
        except jwt.InvalidTokenError as error:
            raise Unauthenticated("the token is not valid") from error
        return Principal(
            tenant_id=_name(claims.get("tenant", DEFAULT_TENANT), "tenant"),
            user_id=_name(claims["sub"], "sub"),
            roles=_roles(claims.get("roles", [])),
        )


def authenticator(settings: Settings) -> Authenticator:
    """The one that `RUNYARD_AUTH` names.

    Raises:
        StartError: the setting is missing.
    """
    match settings.auth:
        case "dev":
            return TrustEverybody()
        case "jwt":
            assert settings.jwt_secret is not None, "checked by the settings"
            return JwtAuthenticator(settings.jwt_secret.get_secret_value())
        case None:
            raise StartError("RUNYARD_AUTH is not set: jwt, or dev to trust every caller on this machine")


def _bearer(authorization: str | None) -> str:
    scheme, _, token = (authorization or "").partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        raise Unauthenticated("send a token: Authorization: Bearer <token>")
    return token.strip()


def _name(value: object, claim: str) -> str:
    if not isinstance(value, str) or not value.strip() or len(value) > SUBJECT_MAX or not value.isprintable():
        raise Unauthenticated(f"the token's claim {claim} is not a name of 1 to {SUBJECT_MAX} printable characters")
    return value


def _roles(value: object) -> frozenset[str]:
    if not isinstance(value, list) or not all(isinstance(role, str) for role in value):
        raise Unauthenticated("the token's claim roles is not a list of strings")
    return frozenset(value)
