"""An issuer's keys: fetched when they are needed, never more often than is good, kept while the issuer is away."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from threading import Event
from typing import Any

import jwt
import pytest
import structlog
from cryptography.hazmat.primitives.asymmetric import ec
from jwt.algorithms import ECAlgorithm
from structlog.testing import capture_logs

from runyard.errors import NotReady, Unauthenticated
from runyard_gateway.auth import jwks
from runyard_gateway.auth.jwks import COOLDOWN_S, KeySet

pytestmark = pytest.mark.anyio

GUARD_S = 10.0
KEY = ECAlgorithm.to_jwk(ec.generate_private_key(ec.SECP256R1()).public_key(), as_dict=True)
AWAY = jwt.PyJWKClientConnectionError("nobody listens")


class Issuer:
    """`answers`: what it says next; the last one stays. `gate` holds an answer back until it is set."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.asked = 0
        self.gate = Event()
        self.gate.set()

    def __call__(self) -> Any:
        self.gate.wait(GUARD_S)
        self.asked += 1
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def published(*names: str) -> dict[str, Any]:
    return {"keys": [KEY | {"kid": name} for name in names]}


@pytest.fixture(autouse=True)
def logs() -> Iterator[list[Any]]:
    structlog.reset_defaults()
    with capture_logs() as captured:
        yield captured


@asynccontextmanager
async def running(issuer: Issuer, clock: Clock) -> AsyncIterator[KeySet]:
    keys = KeySet(issuer, clock=clock)
    task = asyncio.create_task(keys.run())
    try:
        async with asyncio.timeout(GUARD_S):
            yield keys
    finally:
        issuer.gate.set()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_the_first_token_waits_for_the_first_fetch() -> None:
    issuer = Issuer(published("a"))
    issuer.gate.clear()
    async with running(issuer, Clock()) as keys:
        finding = [asyncio.create_task(keys.find("a", "ES256")) for _ in range(20)]
        await asyncio.sleep(0)  # the loop goes on while a thread waits for the issuer
        assert not any(task.done() for task in finding)
        issuer.gate.set()
        assert {(await task).id for task in finding} == {"a"}
    assert issuer.asked == 1


async def test_a_known_key_costs_no_fetch() -> None:
    issuer, clock = Issuer(published("a", "b")), Clock()
    async with running(issuer, clock) as keys:
        for _ in range(100):
            await keys.find("a", "ES256")
            clock.now_s += COOLDOWN_S
            await keys.find("b", "ES256")
    assert issuer.asked == 1


async def test_an_unknown_key_is_fetched_once_in_a_while() -> None:
    issuer, clock = Issuer(published("a"), published("a"), published("a", "new")), Clock()
    async with running(issuer, clock) as keys:
        await keys.find("a", "ES256")
        for made_up in range(1000):
            with pytest.raises(Unauthenticated):
                await keys.find(f"foreign-{made_up}", "ES256")
        assert issuer.asked == 1
        clock.now_s += COOLDOWN_S
        for made_up in range(1000):
            with pytest.raises(Unauthenticated):
                await keys.find(f"foreign-{made_up}", "ES256")
        assert issuer.asked == 2
        clock.now_s += COOLDOWN_S
        assert (await keys.find("new", "ES256")).id == "new"
    assert issuer.asked == 3


async def test_many_tokens_of_a_new_key_share_one_fetch() -> None:
    issuer, clock = Issuer(published("a"), published("b")), Clock()
    async with running(issuer, clock) as keys:
        await keys.find("a", "ES256")
        clock.now_s += COOLDOWN_S
        found = await asyncio.gather(*(keys.find("b", "ES256") for _ in range(50)))
        assert {key.id for key in found} == {"b"}
        with pytest.raises(Unauthenticated):  # withdrawn
            await keys.find("a", "ES256")
    assert issuer.asked == 2


async def test_keys_are_kept_while_the_issuer_is_away(logs: list[Any]) -> None:
    issuer, clock = Issuer(published("a"), AWAY, {"keys": []}, ValueError("no JSON"), published("b")), Clock()
    async with running(issuer, clock) as keys:
        await keys.find("a", "ES256")
        for _ in range(3):
            clock.now_s += COOLDOWN_S
            with pytest.raises(NotReady):
                await keys.find("b", "ES256")
            assert (await keys.find("a", "ES256")).id == "a"
        clock.now_s += COOLDOWN_S
        assert (await keys.find("b", "ES256")).id == "b"
    assert [line["event"] for line in logs] == ["signing keys not fetched"] * 3
    assert {line["setting"] for line in logs} == {"RUNYARD_JWKS_URL"}


async def test_an_issuer_that_never_answered_is_told_apart_from_a_bad_token() -> None:
    async with running(Issuer(AWAY), Clock()) as keys:
        for _ in range(2):
            with pytest.raises(NotReady):
                await keys.find("a", "ES256")


async def test_keys_are_fetched_anew_by_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jwks, "REFRESH_S", 0.001)
    issuer = Issuer(published("a"), published("b"))
    async with running(issuer, Clock()) as keys:
        await keys.find("a", "ES256")
        for _ in range(2):
            await keys._tried.wait()
        assert (await keys.find("b", "ES256")).id == "b"
        with pytest.raises(Unauthenticated):
            await keys.find("a", "ES256")
