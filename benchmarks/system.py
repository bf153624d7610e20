"""The whole system as processes on one stack, and the calls that the benchmarks make on it."""

import asyncio
import contextlib
import os
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from tests.standin.process import RemoteStandin, standin_process

from benchmarks.processes import Process, started
from benchmarks.stacks import Stack
from benchmarks.wire import MODEL_TEXT, RUNYARD_TEXT, Answer, Connection
from runyard.db.migrate import upgrade

AGENTS = Path(__file__).parent / "agents"
AGENT = "writer"
API_KEY = "sk-ant-benchmark"
MODEL_HEADERS = f"x-api-key: {API_KEY}\r\nanthropic-version: 2023-06-01\r\n"
STREAM = "accept: text/event-stream\r\n"


@dataclass(kw_only=True)
class System:
    """`gateway` and the workers are measured; the stand-in, the database and Redis are not."""

    stack: Stack
    gateway: Process
    workers: Sequence[Process]
    gateway_url: str
    standin: RemoteStandin

    @property
    def standin_url(self) -> str:
        return self.standin.base_url

    def cpu_s(self) -> tuple[float, float]:
        """Of the gateway, and of all workers together, so far."""
        return self.gateway.cpu_s(), sum(worker.cpu_s() for worker in self.workers)

    async def caller(self) -> Connection:
        return await Connection.open(self.gateway_url)

    async def model_caller(self) -> Connection:
        return await Connection.open(self.standin_url)


async def run(connection: Connection, directive: str) -> Answer:
    """Start a run and read its stream to the end.

    Raises:
        RuntimeError: it did not complete.
    """
    answer = await connection.post(f"/v1/agents/{AGENT}/runs", {"input": directive}, text=RUNYARD_TEXT, headers=STREAM)
    last_event = answer.body.rpartition(b"\nevent: ")[2]
    if answer.status != 200 or b'"status":"completed"' not in last_event:
        raise RuntimeError(f"a run failed ({answer.status}): {last_event[:500]!r}")
    return answer


async def model_call(connection: Connection, directive: str) -> Answer:
    """The same call to the stand-in directly."""
    answer = await connection.post("/v1/messages", model_request(directive), text=MODEL_TEXT, headers=MODEL_HEADERS)
    if answer.status != 200:
        raise RuntimeError(f"the stand-in refused ({answer.status}): {answer.body!r}")
    return answer


def model_request(directive: str) -> dict[str, Any]:
    return {
        "model": "claude-sonnet-4-5",
        "max_tokens": 4096,
        "stream": True,
        "messages": [{"role": "user", "content": directive}],
    }


@contextlib.asynccontextmanager
async def running(
    stack: Stack, *, workers: int = 1, settings: Mapping[str, str] = MappingProxyType({})
) -> AsyncIterator[System]:
    """One gateway and so many workers on a migrated database, warm when the block begins.

    `settings` are environment variables of the workers.
    """
    upgrade(stack.database_url)
    async with contextlib.AsyncExitStack() as parts:
        folder = Path(parts.enter_context(tempfile.TemporaryDirectory(prefix="runyard-bench-")))
        standin = await parts.enter_async_context(standin_process())
        environment = _environment(stack, standin.base_url)
        gateway = await parts.enter_async_context(started("runyard_gateway", environment, folder / "gateway.log"))
        crew = [
            await parts.enter_async_context(
                started("runyard_workers", {**environment, **settings}, folder / f"worker-{number}.log")
            )
            for number in range(workers)
        ]
        listening = await gateway.logged("gateway listens")
        await asyncio.gather(*(worker.logged("worker registered") for worker in crew))
        system = System(
            stack=stack,
            gateway=gateway,
            workers=crew,
            gateway_url=f"http://127.0.0.1:{listening['port']}",
            standin=standin,
        )
        await _warm(system)
        yield system


async def _warm(system: System) -> None:
    """First calls import, connect and compile. Then Postgres plans each statement anew ten times a connection: five
    times until psycopg prepares it, five more until the plan is kept. A process that has run for a minute is past that.
    """
    callers = [await system.caller() for _ in range(16)]
    for _ in range(20 * len(system.workers)):
        await asyncio.gather(*(run(caller, "standin[deltas=20]") for caller in callers))
    for caller in callers:
        caller.close()


def _environment(stack: Stack, standin_url: str) -> dict[str, str]:
    inherited = {
        name: value for name, value in os.environ.items() if not name.startswith(("RUNYARD_", "ANTHROPIC_", "OPENAI_"))
    }
    return inherited | {
        "RUNYARD_DATABASE_URL": stack.database_url,
        "RUNYARD_REDIS_URL": stack.redis_url,
        "RUNYARD_BROKER_URL": stack.broker_url,
        "RUNYARD_PREFIX": stack.prefix,
        "RUNYARD_AUTH": "dev",
        "RUNYARD_STREAMS_PER_USER": "0",  # one user reads all streams
        "RUNYARD_PORT": "0",
        "RUNYARD_AGENTS": str(AGENTS),
        "ANTHROPIC_API_KEY": API_KEY,
        "ANTHROPIC_BASE_URL": standin_url,
    }


def frames_of(answer: Answer) -> int:
    return answer.body.count(b"\nid: ")
