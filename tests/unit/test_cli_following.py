"""What Ctrl-C means while a stream is read."""

import asyncio

import pytest
from tests.fakes.scripted_gateway import STREAM, ScriptedGateway, refused, told

from runyard.cli import following
from runyard.cli.following import Followed, _Following
from runyard.cli.screen import Lines
from runyard.client import Client
from runyard.errors import RunNotFound

pytestmark = pytest.mark.anyio

GUARD_S = 20.0
FOLLOWED = Followed(run_id="run_1", invocation_id="inv_1")


@pytest.fixture
def gateway() -> ScriptedGateway:
    return ScriptedGateway()


@pytest.fixture(autouse=True)
def _cancels(monkeypatch: pytest.MonkeyPatch) -> None:
    async def answer(_interrupts: asyncio.Event) -> str:
        return following.CANCEL

    monkeypatch.setattr(following, "_asked", answer)


def reading(client: Client, interrupts: asyncio.Event) -> _Following:
    return _Following(client, client.resume_stream(STREAM), Lines(), FOLLOWED, interrupts)


async def test_a_second_one_leaves_though_no_gateway_takes_the_cancel(
    gateway: ScriptedGateway, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupts, asked = asyncio.Event(), asyncio.Event()

    async def never(_client: Client, _run_id: str, *, invocation_id: str) -> None:
        asked.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(Client, "cancel", never)
    leaving = asyncio.create_task(reading(gateway.client(), interrupts)._goes_on())
    async with asyncio.timeout(GUARD_S):
        await asked.wait()
        interrupts.set()
        assert not await leaving
    assert capsys.readouterr().err.endswith("it goes on; to see it again: runyard tail run_1\n")


async def test_a_cancel_that_is_taken_is_read_on_to_the_end(gateway: ScriptedGateway) -> None:
    gateway.answers = [told(202, {"runId": "run_1", "status": "running", "cancelRequested": True})]
    assert await reading(gateway.client(), asyncio.Event())._goes_on()
    assert gateway.bodies() == [{"invocationId": "inv_1"}], "what is followed is stopped, and nothing after it"


async def test_a_cancel_that_is_refused_is_told(gateway: ScriptedGateway) -> None:
    gateway.answers = [refused(404, "RUN_NOT_FOUND")]
    with pytest.raises(RunNotFound):
        await reading(gateway.client(), asyncio.Event())._goes_on()
