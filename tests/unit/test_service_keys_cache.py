"""A gateway's memory of service keys: one look at the database in a while, whether a key is there or not."""

import asyncio
from typing import Any

import pytest
import structlog
from structlog.testing import capture_logs

from runyard.errors import StoreUnavailable, Unauthenticated
from runyard.service_keys import ServiceKey, hash_of, new_key
from runyard_gateway.auth import service_keys
from runyard_gateway.auth.principal import Principal, Service
from runyard_gateway.auth.service_keys import ServiceKeys

pytestmark = pytest.mark.anyio

GUARD_S = 10.0


class FakeDatabase:
    """`active`: the keys that it has. `asked`: the hashes of each look. `away`: it answers none, and sets `refused`."""

    def __init__(self) -> None:
        self.active: dict[str, ServiceKey] = {}
        self.asked: list[list[str]] = []
        self.away = False
        self.refused = asyncio.Event()

    def add(self, name: str) -> str:
        key = new_key()
        self.active[hash_of(key)] = ServiceKey(name=name, hash=hash_of(key), tenants=("acme",))
        return key

    async def read(self, _work: Any, hashes: list[str]) -> dict[str, ServiceKey]:
        self.asked.append(hashes)
        if self.away:
            self.refused.set()
            raise StoreUnavailable("away")
        return {digest: self.active[digest] for digest in hashes if digest in self.active}


@pytest.fixture
def database() -> FakeDatabase:
    return FakeDatabase()


@pytest.fixture
async def keys(database: FakeDatabase) -> ServiceKeys:
    return ServiceKeys(database, ())  # type: ignore[arg-type]


async def test_a_key_is_looked_up_once_in_a_while(keys: ServiceKeys, database: FakeDatabase) -> None:
    key = database.add("billing")
    found = [await keys.principal(key) for _ in range(100)]
    assert {principal.caller for principal in found} == {Service(name="billing", tenants=("acme",))}
    assert database.asked == [[hash_of(key)]]


async def test_a_key_that_is_none_is_remembered_too(keys: ServiceKeys, database: FakeDatabase) -> None:
    key = new_key()
    for _ in range(100):
        with pytest.raises(Unauthenticated):
            await keys.principal(key)
    assert len(database.asked) == 1


async def test_what_is_no_key_is_not_looked_up(keys: ServiceKeys, database: FakeDatabase) -> None:
    for given in ("ry_", "ry_x", "ry_" + "0" * 63, "ry_" + "G" * 64, new_key() + "0", new_key().upper()):
        with pytest.raises(Unauthenticated):
            await keys.principal(given)
    assert database.asked == []


async def test_made_up_keys_take_no_memory(keys: ServiceKeys, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service_keys, "REMEMBERED_MAX", 8)
    for _ in range(100):
        with pytest.raises(Unauthenticated):
            await keys.principal(new_key())
    assert len(keys._remembered) <= 8


async def test_a_database_that_is_away_says_nothing_of_a_key(keys: ServiceKeys, database: FakeDatabase) -> None:
    key = database.add("billing")
    database.away = True
    with pytest.raises(StoreUnavailable):
        await keys.principal(key)
    database.away = False
    assert (await keys.principal(key)).is_service


def told_of(principal: Principal) -> "asyncio.Future[Unauthenticated]":
    told: asyncio.Future[Unauthenticated] = asyncio.get_running_loop().create_future()
    principal.credential.on_end(told.set_result)
    return told


async def test_readers_are_told_of_a_revoked_key(
    database: FakeDatabase, keys: ServiceKeys, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One statement for all of them; while the database is away, nobody is."""
    structlog.reset_defaults()
    monkeypatch.setattr(service_keys, "FRESH_S", 0.01)
    async with asyncio.timeout(GUARD_S):
        with capture_logs() as logs:
            running = asyncio.create_task(keys.run())
            first, second = database.add("first"), database.add("second")
            ending = [told_of(await keys.principal(first)) for _ in range(3)]
            staying = told_of(await keys.principal(second))
            left = (await keys.principal(first)).credential.on_end(lambda _: pytest.fail("it was taken back"))
            left()
            database.away = True
            database.active.pop(hash_of(first))
            await database.refused.wait()
            assert not any(told.done() for told in ending)
            database.away = False
            for told in ending:
                assert (await told).fields == {"reason": "invalid"}
            assert not staying.done()
            assert sorted(database.asked[-1]) == sorted([hash_of(first), hash_of(second)])
            with pytest.raises(Unauthenticated):
                await keys.principal(first)
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
    assert {line["event"] for line in logs} == {"service keys not checked"}


async def test_nothing_is_asked_while_nobody_reads(database: FakeDatabase, keys: ServiceKeys) -> None:
    take_back = (await keys.principal(database.add("billing"))).credential.on_end(lambda _: None)
    take_back()
    assert keys._watched == {}
