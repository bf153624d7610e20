"""Service keys: looked up by their hashes and remembered for two seconds, so that a revoked one is soon refused."""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import structlog

from runyard.db.engine import Database
from runyard.db.service_keys import active_keys
from runyard.errors import InternalError, StoreUnavailable, Unauthenticated
from runyard.service_keys import PATTERN, ServiceKey, hash_of
from runyard_gateway.auth.credentials import Lasting
from runyard_gateway.auth.principal import Credential, Principal, Service

FRESH_S = 2.0
REMEMBERED_MAX = 1024
"""There are few real keys. More than this must be invented ones."""

Tell = Callable[[Unauthenticated], None]
log = structlog.get_logger()


class ServiceKeys:
    """The keys of `RUNYARD_SERVICE_KEYS` (`lasting`), valid as long as the process runs, and those in the database."""

    def __init__(self, database: Database, lasting: Sequence[ServiceKey]) -> None:
        self._database = database
        self._lasting = {key.hash: key for key in lasting}
        self._remembered: dict[str, tuple[float, ServiceKey | None]] = {}
        self._watched: dict[str, dict[object, Tell]] = {}

    async def principal(self, key: str) -> Principal:
        """Raises `Unauthenticated`, with the same answer for an unknown key and a revoked one."""
        if not PATTERN.fullmatch(key):
            raise _not_valid()
        return await self.recall(hash_of(key))

    async def recall(self, digest: str) -> Principal:
        """The same for a key that was shown before, by its hash."""
        found = self._lasting.get(digest)
        credential: Credential = _Given(digest)
        if found is None:
            found = await self._find(digest)
            credential = _Watched(self._watched, digest)
        if found is None:
            raise _not_valid()
        return Principal(caller=Service(name=found.name, tenants=found.tenants), credential=credential)

    async def run(self) -> None:
        """Until cancelled: end the answers whose key is revoked while they go on. One statement asks for all keys. A
        row that cannot be read must not end the gateway.
        """
        while True:
            await asyncio.sleep(FRESH_S)
            if not self._watched:
                continue
            try:
                active = await self._database.read(active_keys, list(self._watched))
            except StoreUnavailable as error:
                log.warning("service keys not checked", error=str(error))
                continue
            except Exception:
                log.exception("service keys unreadable", code=InternalError.code)
                continue
            for digest in self._watched.keys() - active.keys():
                self._remembered.pop(digest, None)
                for tell in self._watched.pop(digest).values():
                    tell(_not_valid())

    async def _find(self, digest: str) -> ServiceKey | None:
        read_at, found = self._remembered.get(digest, (-FRESH_S, None))
        if time.monotonic() - read_at < FRESH_S:
            return found
        began = time.monotonic()
        found = (await self._database.read(active_keys, [digest])).get(digest)
        if len(self._remembered) >= REMEMBERED_MAX:
            self._remembered.clear()
        self._remembered[digest] = (began, found)
        return found


@dataclass(frozen=True, slots=True)
class _Given(Lasting):
    """A key from the settings."""

    digest: str

    def to_dict(self) -> dict[str, Any]:
        return {"key": self.digest}


@dataclass(frozen=True, slots=True)
class _Watched:
    """A key in the database, valid until it is revoked."""

    watched: dict[str, dict[object, Tell]]
    digest: str

    def to_dict(self) -> dict[str, Any]:
        return {"key": self.digest}

    def on_end(self, tell: Tell) -> Callable[[], None]:
        watcher = object()
        self.watched.setdefault(self.digest, {})[watcher] = tell

        def take_back() -> None:
            tells = self.watched.get(self.digest, {})
            tells.pop(watcher, None)
            if not tells:
                self.watched.pop(self.digest, None)

        return take_back


def _not_valid() -> Unauthenticated:
    return Unauthenticated("the key is not valid", reason="invalid")
