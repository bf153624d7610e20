"""An issuer's public keys (`RUNYARD_JWKS_URL`): fetched by one task, in a thread, and kept while the issuer is away."""

import asyncio
import contextlib
import time
from collections.abc import Callable
from typing import Any

import jwt
import structlog

from runyard.errors import NotReady
from runyard_gateway.auth.signing_keys import SigningKey, choose, no_such_key, read_key_set

REFRESH_S = 300.0
"""A key that the issuer withdrew is refused after this long."""

RETRY_S = 10.0
COOLDOWN_S = 10.0
"""A token with an unknown key makes the gateway fetch the set again, but only once in this time, so that nobody can
make it hammer the issuer. Issuers publish a key before they use it."""

TIMEOUT_S = 5.0

Fetch = Callable[[], Any]
log = structlog.get_logger()


def fetch_from(url: str) -> Fetch:
    """A function that blocks until it has the document. It follows no redirect: where keys come from is a setting."""
    return jwt.PyJWKClient(url, cache_jwk_set=False, timeout=TIMEOUT_S).fetch_data


class KeySet:
    """The keys as they were last fetched."""

    def __init__(self, fetch: Fetch, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._fetch = fetch
        self._clock = clock
        self._keys: tuple[SigningKey, ...] = ()
        self._failed = False
        self._tried_at_s: float | None = None
        self._asked = asyncio.Event()
        self._tried = asyncio.Event()  # another one for each try

    async def find(self, key_id: str | None, algorithm: str) -> SigningKey:
        found = choose(self._keys, key_id, algorithm)
        if found is None and self._may_ask():
            self._asked.set()
            await self._tried.wait()
            found = choose(self._keys, key_id, algorithm)
        if found is not None:
            return found
        if self._failed:
            raise NotReady("the token names a key that cannot be fetched now")
        raise no_such_key()

    async def run(self) -> None:
        while True:
            await self._try()
            self._asked.clear()  # who asked meanwhile has this answer
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(RETRY_S if self._failed else REFRESH_S):
                    await self._asked.wait()

    async def _try(self) -> None:
        try:
            self._keys = read_key_set(await asyncio.to_thread(self._fetch))
            self._failed = False
        except (jwt.PyJWTError, ValueError, OSError, RecursionError) as error:
            self._failed = True
            log.warning("signing keys not fetched", setting="RUNYARD_JWKS_URL", error=str(error), kept=len(self._keys))
        self._tried_at_s = self._clock()
        tried, self._tried = self._tried, asyncio.Event()
        tried.set()

    def _may_ask(self) -> bool:
        return self._tried_at_s is None or self._clock() - self._tried_at_s >= COOLDOWN_S
