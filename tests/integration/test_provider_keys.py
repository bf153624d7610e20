"""A provider's key that is missing, refused or broken: the run fails at once and names the setting, never the key."""

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from tests.integration.fixtures import on_sqlite
from tests.integration.processes import Process
from tests.integration.stack import BAD_KEY, Stack

pytestmark = pytest.mark.anyio

KEYS = {"keyless": "", "refused": BAD_KEY, "broken": f"{BAD_KEY}\n"}
SETTING = "ANTHROPIC_API_KEY"
EXPECTED = {
    "keyless": ("MODEL_NOT_CONFIGURED", 0),
    "refused": ("PROVIDER_ERROR", 1),
    "broken": ("MODEL_NOT_CONFIGURED", 0),
}
"""The error's code, and how often the provider was asked."""


@pytest.fixture
async def workers(stack: Stack, tmp_path: Path) -> AsyncIterator[dict[str, Process]]:
    """One worker a key, each with an agent of that name."""
    with ExitStack() as exits:
        started = {
            name: exits.enter_context(worker_with(stack, tmp_path / name, name, key)) for name, key in KEYS.items()
        }
        for worker in started.values():
            await worker.logged("worker registered")
        yield started


@contextmanager
def worker_with(stack: Stack, folder: Path, name: str, key: str) -> Iterator[Process]:
    folder.mkdir()
    (folder / f"{name}.py").write_text(f"from runyard import agent\n{name} = agent(queue={name!r})\n")
    settings = {"RUNYARD_AGENTS": str(folder), "RUNYARD_QUEUES": name, SETTING: key}
    with stack.process("runyard_workers", **settings) as process:
        yield process


@on_sqlite
async def test_the_run_fails_at_once_and_names_the_setting(stack: Stack, workers: dict[str, Process]) -> None:
    for name, (code, asked) in EXPECTED.items():
        before = len(stack.standin.calls)
        api = stack.gateway.user()
        async with api.streaming(name) as reading:
            events = await reading.rest()
        assert events[-1].type == "error"
        told = json.loads(events[-1].data)["error"]
        assert told["code"] == code
        assert SETTING in told["message"]
        assert told["retryable"] is False
        run = (await api.get(f"/v1/runs/{told['runId']}")).json()
        assert run["status"] == "failed"
        assert run["error"] == {"code": code, "message": told["message"]}
        assert len(stack.standin.calls) - before == asked
        assert reading.text == ""
        seen = [*(event.data for event in events), json.dumps(run), workers[name].log.read_text()]
        assert not any(BAD_KEY in text for text in seen)
    assert not [row for row in every_row(stack) if BAD_KEY in row]


def every_row(stack: Stack) -> list[str]:
    tables = ("agent_runs", "agent_invocations", "agent_messages", "agent_inputs", "agent_calls")
    return [str(row) for table in tables for row in stack.execute(f"SELECT * FROM {table}")]
