"""JSON Web Tokens, made by hand (RFC 7515, RFC 7519): valid ones, and ones that must be refused."""

import base64
import hashlib
import hmac
import json
import time
from typing import Any

SECRET = "a-secret-of-the-tests-that-is-long-enough"


def token(user: str, *, tenant: str | None = None, roles: tuple[str, ...] | None = None, **claims: Any) -> str:
    """`tenant` and `roles` are left out where they are not given."""
    body: dict[str, Any] = {"sub": user, "exp": int(time.time()) + 3600}
    if tenant is not None:
        body["tenant"] = tenant
    if roles is not None:
        body["roles"] = list(roles)
    return signed(body | claims)


def signed(claims: dict[str, Any], *, secret: str = SECRET, algorithm: str = "HS256", **header: Any) -> str:
    """`algorithm` is what the header says; "none" goes without a signature."""
    head = f"{_part({'alg': algorithm, 'typ': 'JWT'} | header)}.{_part(claims)}"
    if algorithm == "none":
        return f"{head}."
    digest = {"HS256": hashlib.sha256, "HS384": hashlib.sha384, "HS512": hashlib.sha512}[algorithm]
    return f"{head}.{_base64(hmac.new(secret.encode(), head.encode(), digest).digest())}"


def _part(value: dict[str, Any]) -> str:
    return _base64(json.dumps(value, separators=(",", ":")).encode())


def _base64(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")
