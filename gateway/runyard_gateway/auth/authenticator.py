"""Makes a principal of a request's `Authorization` header."""

import asyncio
import time
from collections.abc import Mapping
from typing import Any, Protocol

from runyard.db.engine import Database
from runyard.errors import StartError, Unauthenticated
from runyard.service_keys import PREFIX, parse_service_keys
from runyard.settings import AuthSettings
from runyard_gateway.auth.credentials import Lasting, UntilTime, expired
from runyard_gateway.auth.jwks import KeySet, fetch_from
from runyard_gateway.auth.principal import ADMIN, DEFAULT_TENANT, Credential, Identity, Principal
from runyard_gateway.auth.principal_json import caller_of
from runyard_gateway.auth.service_keys import ServiceKeys
from runyard_gateway.auth.signing_keys import SharedSecret, SigningKeys
from runyard_gateway.auth.tokens import Tokens


class Authenticator(Protocol):
    async def principal(self, authorization: str | None) -> Principal:
        """Find out who calls.

        Raises:
            Unauthenticated: the header is missing or not valid.
            NotReady, StoreUnavailable: it cannot be found out now.
        """
        ...

    async def recall(self, stored: Mapping[str, Any]) -> Principal:
        """The principal that `runyard_gateway.auth.principal_json` made JSON of, if still valid. Raises the same."""
        ...

    async def run(self) -> None:
        """Background work, until cancelled."""
        ...


class TrustEverybody:
    """`RUNYARD_AUTH=dev`: every caller is the user `dev`; the settings bind such a gateway to loopback."""

    async def principal(self, authorization: str | None) -> Principal:  # noqa: ARG002 - it looks at nothing
        dev = Identity(tenant_id=DEFAULT_TENANT, user_id="dev", roles=frozenset({ADMIN}))
        return Principal(caller=dev, credential=Lasting())

    async def recall(self, stored: Mapping[str, Any]) -> Principal:  # noqa: ARG002 - it looks at nothing
        return await self.principal(None)

    async def run(self) -> None:
        pass


class CheckBearer:
    """`RUNYARD_AUTH=jwt`: callers bring a token or a service key; a key is known by its prefix."""

    def __init__(self, tokens: Tokens, keys: ServiceKeys) -> None:
        self._tokens = tokens
        self._keys = keys

    async def principal(self, authorization: str | None) -> Principal:
        shown = _bearer(authorization)
        return await (self._keys if shown.startswith(PREFIX) else self._tokens).principal(shown)

    async def recall(self, stored: Mapping[str, Any]) -> Principal:
        if "key" in stored:  # it may have been revoked since
            return await self._keys.recall(stored["key"])
        credential: Credential = Lasting()
        if "endsAtS" in stored:
            if stored["endsAtS"] <= time.time():
                raise expired()
            credential = UntilTime(stored["endsAtS"])
        return Principal(caller=caller_of(stored), credential=credential)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._tokens.run())
            tasks.create_task(self._keys.run())


def require_auth(settings: AuthSettings) -> None:
    """Raises `StartError` if the settings name no way to authenticate callers."""
    if settings.auth is None:
        raise StartError("RUNYARD_AUTH is not set: set it to jwt, or to dev to trust every caller on this machine")


def authenticator(settings: AuthSettings, database: Database) -> Authenticator:
    """The authenticator that `RUNYARD_AUTH` names; the caller runs it."""
    require_auth(settings)
    if settings.auth == "dev":
        return TrustEverybody()
    tokens = Tokens(_signing_keys(settings), audience=settings.jwt_audience, issuer=settings.jwt_issuer)
    given = settings.service_keys
    return CheckBearer(tokens, ServiceKeys(database, parse_service_keys(given.get_secret_value()) if given else ()))


def _signing_keys(settings: AuthSettings) -> SigningKeys:
    if settings.jwt_secret is not None:
        return SharedSecret(settings.jwt_secret.get_secret_value())
    assert settings.jwks_url is not None, "checked by the settings"
    return KeySet(fetch_from(settings.jwks_url))


def _bearer(authorization: str | None) -> str:
    scheme, _, shown = (authorization or "").partition(" ")
    if scheme.lower() != "bearer" or not shown.strip():
        raise unauthenticated()
    return shown.strip()


def unauthenticated() -> Unauthenticated:
    """The error for a caller without a credential."""
    return Unauthenticated("send a token: Authorization: Bearer <token>", reason="missing")
