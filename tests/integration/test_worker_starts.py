"""How a process starts: in one line it says what it cannot do without, and what shows its metrics can work."""

import signal
from pathlib import Path

import httpx2
import pytest
from tests.clients.metrics import scraped, value
from tests.integration.fixtures import on_sqlite
from tests.integration.processes import eventually
from tests.integration.stack import Stack
from tests.ports import free_port

pytestmark = [pytest.mark.anyio, on_sqlite]

UNKNOWN = "setting is unknown: it has no effect"

AGENT = """
import asyncio
from pathlib import Path

from runyard import agent, lifespan

@lifespan
async def model():
    {before}
    yield {{"model": 1}}

late = agent(system="You are late.", queue="late")
"""

LOADS = """Path({begun!r}).touch()
    while not Path({done!r}).exists():
        await asyncio.sleep(0.02)"""


OPENS = """try:
        Path({begun!r}).touch()
        await asyncio.Event().wait()
    finally:
        Path({ended!r}).touch()"""


def agents(folder: Path, before: str) -> str:
    (folder / "agents").mkdir()
    (folder / "agents/late.py").write_text(AGENT.format(before=before))
    return str(folder / "agents")


async def test_what_it_cannot_do_without_is_told_in_one_line(stack: Stack, tmp_path: Path) -> None:
    folder = agents(tmp_path, "raise OSError('no such model')")
    with stack.process("runyard_workers", RUNYARD_AGENTS=folder) as worker:
        assert await worker.exited() == 2
        reason = "lifespan 'runyard_agents.late.model' failed to open: OSError: no such model"
        assert worker.log.read_text().splitlines() == [f"error: {reason}"]


@pytest.mark.parametrize("role", ["runyard_workers", "runyard_gateway"])
async def test_a_setting_that_is_misspelt_is_told_of_and_stops_nothing(stack: Stack, role: str) -> None:
    with stack.process(role, RUNYARD_WORKER_SLOT="3") as process:
        await process.logged("worker registered" if role == "runyard_workers" else "gateway listens")
        told = {event["setting"]: event.get("nearest") for event in process.events(UNKNOWN)}
        assert told["RUNYARD_WORKER_SLOT"] == "RUNYARD_WORKER_SLOTS"


async def test_a_broker_whose_name_leads_nowhere_is_one_that_is_away(stack: Stack) -> None:
    """As in a cluster, where the name of a broker without a ready pod is not known."""
    async with stack.starting_worker(RUNYARD_BROKER_URL="amqp://guest:guest@nowhere.invalid") as worker:
        told = await eventually(
            lambda: [event for event in worker.events() if event["event"].startswith("Consumer encountered")],
            "word of the broker",
        )
        assert told[0]["level"] == "warning"
        assert worker.complaints() == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("role", ["runyard_workers", "runyard_gateway"])
async def test_who_waits_for_the_schema_leaves_when_told(
    stack: Stack, tmp_path: Path, role: str, number: signal.Signals
) -> None:
    with stack.process(role, RUNYARD_DATABASE_URL=f"sqlite:///{tmp_path}/empty.db") as process:
        await process.logged("waiting for the schema")
        process.send(number)
        assert await process.exited() == 0
        assert process.events()[-1]["event"].endswith("left before it served")


async def test_who_opens_lifespans_leaves_when_told_and_closes_them(stack: Stack, tmp_path: Path) -> None:
    begun, ended = tmp_path / "begun", tmp_path / "ended"
    folder = agents(tmp_path, OPENS.format(begun=str(begun), ended=str(ended)))
    with stack.process("runyard_workers", RUNYARD_AGENTS=folder) as worker:
        await eventually(begun.exists, "lifespan that opens")
        worker.send(signal.SIGTERM)
        assert await worker.exited() == 0
    assert ended.exists()


FAILS_LATER = """
    async def refresh():
        while not Path({gate!r}).exists():
            await asyncio.sleep(0.02)
        raise OSError("the model is gone")

    async with asyncio.TaskGroup() as group:
        group.create_task(refresh())
        yield {{"model": 1}}
    return
"""


async def test_a_lifespan_whose_task_fails_is_no_quiet_end(stack: Stack, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    folder = agents(tmp_path, FAILS_LATER.format(gate=str(gate)).strip())
    with stack.process("runyard_workers", RUNYARD_AGENTS=folder) as worker:
        await worker.logged("worker registered")
        gate.touch()
        assert await worker.exited() == 1
        told = [event["event"] for event in worker.complaints()]
        assert told == ["lifespan not closed", "worker failed unexpectedly"]
        assert "the model is gone" in worker.log.read_text()
        assert "a lifespan cancelled the worker" in worker.log.read_text()


async def test_metrics_are_shown_as_soon_as_it_can_work_and_not_before(stack: Stack, tmp_path: Path) -> None:
    begun, done, port = tmp_path / "begun", tmp_path / "done", free_port()
    folder = agents(tmp_path, LOADS.format(begun=str(begun), done=str(done)))
    with stack.process("runyard_workers", RUNYARD_AGENTS=folder, RUNYARD_METRICS_PORT=str(port)) as worker:
        await eventually(begun.exists, "lifespan that opens")
        with pytest.raises(httpx2.ConnectError):
            scraped(port)
        done.touch()
        await worker.logged("worker registered")
        assert value(scraped(port), "runyard_slots") > 0
