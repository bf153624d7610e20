"""What authors' code leaves in the worker's process: children that it forked, threads that do not end."""

import signal
from pathlib import Path

import pytest
from tests.clients.api import Api
from tests.integration.fixtures import on_sqlite
from tests.integration.stack import Stack

pytestmark = [pytest.mark.anyio, on_sqlite]

FUNCTIONS = """
import asyncio
import multiprocessing
import threading

from runyard import function

NEVER = threading.Event()

def wait():
    NEVER.wait()

@function
def forks():
    child = multiprocessing.get_context("fork").Process(target=wait)
    child.start()
    child.terminate()
    child.join()
    return child.exitcode

@function
async def leaves_a_thread():
    asyncio.get_running_loop().run_in_executor(None, wait)
"""


@pytest.fixture
def folder(tmp_path: Path) -> str:
    (tmp_path / "agents").mkdir()
    (tmp_path / "agents/leftovers.py").write_text(FUNCTIONS)
    return str(tmp_path / "agents")


async def outcome(api: Api, name: str) -> dict[str, object]:
    answer = await api.call("POST", f"/v1/functions/{name}", headers={"Prefer": "wait=60"}, json={})
    told: dict[str, object] = answer.json()
    return told


async def test_a_child_that_a_tool_ends_takes_no_worker_along(stack: Stack, folder: str) -> None:
    async with stack.starting_worker(RUNYARD_AGENTS=folder) as worker:
        for _ in range(5):
            assert (await outcome(stack.gateway.user(), "forks"))["output"] == -signal.SIGTERM
        assert worker.events("worker leaves") == []


async def test_no_thread_that_a_tool_leaves_keeps_a_worker_from_its_end(stack: Stack, folder: str) -> None:
    async with stack.starting_worker(RUNYARD_AGENTS=folder) as worker:
        assert (await outcome(stack.gateway.user(), "leaves_a_thread"))["status"] == "completed"
        assert await worker.stop() == 0
