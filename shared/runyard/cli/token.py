"""`runyard token`: a token to try a gateway with, signed with the secret that the gateway checks it with."""

import re
import time
from typing import Any

from runyard.errors import StartError
from runyard.settings import AuthSettings
from runyard.text import NAME_RULE, is_name

UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86_400}

_DURATION = re.compile(r"(\d{1,6})([smhd])")


def issue(*, user: str, tenant: str | None, roles: list[str], ttl: str) -> str:
    """Raises `StartError`: it cannot be made, or nobody would accept it."""
    settings = AuthSettings.load()
    if settings.jwt_secret is None:
        raise StartError("RUNYARD_JWT_SECRET is not set: tokens of another issuer cannot be made here")
    for option, name in (("--user", user), ("--tenant", tenant)):
        if name is not None and not is_name(name):
            raise StartError(f"{option} must be {NAME_RULE}")
    claims: dict[str, Any] = {
        "sub": user,
        "tenant": tenant,
        "roles": roles or None,
        "aud": settings.jwt_audience,
        "iss": settings.jwt_issuer,
        "exp": int(time.time()) + _seconds(ttl),
    }
    return _signed({name: value for name, value in claims.items() if value is not None}, settings)


def _signed(claims: dict[str, Any], settings: AuthSettings) -> str:
    try:
        import jwt
    except ImportError:
        raise StartError("tokens are made where the gateway is installed: pip install runyard-gateway") from None
    assert settings.jwt_secret is not None
    return jwt.encode(claims, settings.jwt_secret.get_secret_value(), algorithm="HS256")


def _seconds(ttl: str) -> int:
    found = _DURATION.fullmatch(ttl)
    if found is None or not int(found[1]):
        raise StartError("--ttl must be a number and a unit, like 30s, 15m, 1h, 7d")
    return int(found[1]) * UNITS_S[found[2]]
