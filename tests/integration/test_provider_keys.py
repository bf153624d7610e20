"""A provider's key that is missing, refused or broken: the run fails at once and names the setting, never the key."""

import json
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from tests.integration.fixtures import on_sqlite
from tests.integration.processes import Process
from tests.integration.stack import BAD_KEY, Stack

pytestmark = pytest.mark.anyio

KEY, ADDRESS = "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL"
SETTINGS = {
    "keyless": {KEY: ""},
    "refused": {KEY: BAD_KEY},
    "broken": {KEY: f"{BAD_KEY}\n"},
    "misled": {KEY: BAD_KEY, ADDRESS: "http://127.0.0.1:port\n"},
}
EXPECTED = {
    "keyless": ("MODEL_NOT_CONFIGURED", KEY, 0),
    "refused": ("PROVIDER_ERROR", KEY, 1),
    "broken": ("MODEL_NOT_CONFIGURED", KEY, 0),
    "misled": ("MODEL_NOT_CONFIGURED", ADDRESS, 0),
}
"""The error's code, the setting that it names, and how often the provider was asked."""

AGENTS = """
from runyard import agent

{name} = agent(queue={name!r})
"""
WITH_FALLBACK = """
from runyard import agent

{name}_falls_back = agent(queue={name!r}, fallbacks=["demo:"])
"""


@pytest.fixture
async def workers(stack: Stack, tmp_path: Path) -> AsyncIterator[dict[str, Process]]:
    """One a case, each with an agent of that name, and another one with a model to fall back on."""
    with ExitStack() as exits:
        started = {
            name: exits.enter_context(worker_with(stack, tmp_path / name, name, settings))
            for name, settings in SETTINGS.items()
        }
        for worker in started.values():
            await worker.logged("worker registered")
        yield started


@contextmanager
def worker_with(stack: Stack, folder: Path, name: str, settings: Mapping[str, str]) -> Iterator[Process]:
    folder.mkdir()
    (folder / f"{name}.py").write_text(AGENTS.format(name=name))
    (folder / f"{name}_falls_back.py").write_text(WITH_FALLBACK.format(name=name))
    own = {"RUNYARD_AGENTS": str(folder), "RUNYARD_QUEUES": name}
    with stack.process("runyard_workers", **own, **settings) as process:
        yield process


@on_sqlite
async def test_the_run_fails_at_once_and_names_the_setting(stack: Stack, workers: dict[str, Process]) -> None:
    for name, (code, setting, asked) in EXPECTED.items():
        before = len(stack.standin.calls)
        api = stack.gateway.user()
        async with api.streaming(name) as reading:
            events = await reading.rest()
        assert events[-1].type == "error"
        told = json.loads(events[-1].data)["error"]
        assert told["code"] == code
        assert setting in told["message"]
        assert told["retryable"] is False
        run = (await api.get(f"/v1/runs/{told['runId']}")).json()
        assert run["status"] == "failed"
        assert run["error"] == {"code": code, "message": told["message"]}
        assert len(stack.standin.calls) - before == asked
        assert reading.text == ""
        seen = [*(event.data for event in events), json.dumps(run), workers[name].log.read_text()]
        assert not any(BAD_KEY in text for text in seen)
        assert (await api.run(f"{name}_falls_back"))["model"] == "demo"
    assert not [row for row in every_row(stack) if BAD_KEY in row]


def every_row(stack: Stack) -> list[str]:
    tables = ("agent_runs", "agent_invocations", "agent_messages", "agent_inputs", "agent_calls")
    return [str(row) for table in tables for row in stack.execute(f"SELECT * FROM {table}")]
