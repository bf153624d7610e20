"""The commands that call a gateway, as processes: what they print where, what Ctrl-C does, and how they exit."""

import asyncio
import json
import os
import signal
from asyncio.subprocess import PIPE
from pathlib import Path

import pytest
from tests.clients.api import Api
from tests.clients.tokens import token
from tests.integration.commands import CTRL_C, RUNYARD, Command, Here
from tests.integration.fixtures import on_sqlite
from tests.integration.stack import NOT_INHERITED, Stack
from tests.ports import free_port
from tests.standin import fail, hold, refuses, says

pytestmark = [pytest.mark.anyio, on_sqlite]


@pytest.fixture
def runyard(stack: Stack, unique: str, tmp_path: Path) -> Command:
    """As a user of its own."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(NOT_INHERITED)}
    url = f"http://{stack.gateway.host}:{stack.gateway.port}"
    return Command(
        environment={**inherited, "RUNYARD_URL": url, "RUNYARD_TOKEN": token(unique), "PYTHONWARNINGS": "error"},
        folder=tmp_path,
    )


@pytest.fixture
def here(runyard: Command, capsys: pytest.CaptureFixture[str]) -> Here:
    return Here(environment=runyard.environment, capture=capsys)


@pytest.fixture
def api(stack: Stack, unique: str) -> Api:
    """The same user."""
    return stack.gateway.user(unique)


async def test_an_answer_goes_to_stdout_and_the_rest_to_stderr(
    stack: Stack, runyard: Command, here: Here, unique: str
) -> None:
    stack.standin.answers(says("I look.").calls("look_up", {"order": unique}), says("Found ", "it.\n"))
    done = await runyard("run", "clerk", "-", "--session", "s", stdin=f"Where is {unique}?")
    assert (done.code, done.out) == (0, "I look.\nFound it.\n")
    run_id, start, end, summary = done.err.splitlines()
    assert (start, end.split(" ")[:2]) == (f'> look_up {{"order":"{unique}"}}', ["<", "look_up"])
    assert summary.startswith("completed: 2 steps, ")
    assert summary.endswith(f"({run_id})")
    request = await stack.standin.request(1)
    assert request.body["messages"][0]["content"] == f"Where is {unique}?"

    tail = await runyard("tail", run_id, "--json", "--since", "1")
    lines = [json.loads(line) for line in tail.out.splitlines()]
    assert [line["seq"] for line in lines] == list(range(2, len(lines) + 2))
    assert lines[-1]["event"] == "result"
    again = await runyard("tail", lines[-1]["data"]["streamId"])
    assert (again.code, again.out) == (0, done.out)

    listed = await here("runs", "--json", "--agent", "clerk", "--session", "s")
    assert [json.loads(line)["id"] for line in listed.out.splitlines()] == [run_id]
    table = (await here("runs")).out.splitlines()
    assert table[0].split() == ["RUN", "AGENT", "STATUS", "ACTIVE", "ROWS", "TITLE"]
    assert table[1].split()[:3] == [run_id, "clerk", "completed"]
    agents = (await here("agents")).out.splitlines()
    assert any(line.startswith("clerk ") and "look_up" in line for line in agents)
    assert "talker" in [json.loads(line)["name"] for line in (await here("agents", "--json")).out.splitlines()]


async def test_a_pipe_gets_no_word_that_is_withdrawn(stack: Stack, runyard: Command) -> None:
    stack.standin.answers(says("Wrong.", fail()), says("Right."))
    done = await runyard("run", "talker", "go")
    assert (done.code, done.out) == (0, "Right.\n")
    assert "* the model is asked again in" in done.err


async def test_exit_codes_tell_how_a_run_ended(stack: Stack, runyard: Command, here: Here, api: Api) -> None:
    stack.standin.answers(refuses(400), says("never"))
    failed = await runyard("run", "talker", "go")
    assert (failed.code, failed.out) == (1, "")
    assert "(PROVIDER_ERROR): " in failed.err
    started = await api.start("unserved")
    cancelled = await here("cancel", started["runId"])
    assert (cancelled.code, cancelled.out) == (0, f"{started['runId']} is cancelled\n")
    assert (await runyard("tail", started["runId"])).code == 3


async def test_a_run_is_left_alone_steered_and_cancelled(stack: Stack, here: Here, unique: str) -> None:
    stack.standin.answers(says("begun ", hold(unique)))
    left = await here("run", "talker", "go", "--detach")
    run_id = left.out.strip()
    assert left.err == f"it goes on; to see it again: runyard tail {run_id}\n"
    await stack.standin.gate(unique).reached()
    steered = await here("steer", run_id, "and more")
    assert (steered.code, steered.out) == (0, f"{run_id} reads it at its next step; 1 input waits\n")
    cancelled = json.loads((await here("cancel", run_id, "--json")).out)
    assert (cancelled["status"], cancelled["cancelRequested"]) == ("cancelled", False)
    nothing_left = await here("cancel", run_id)
    assert nothing_left.out == f"{run_id} is cancelled\n"


async def test_what_cannot_be_done_is_told_in_one_line(stack: Stack, here: Here) -> None:
    nobody = f"http://127.0.0.1:{free_port()}"
    for arguments, environment, said in (
        (("run", "nobody", "go"), {}, "error: no agent is named 'nobody' (AGENT_NOT_FOUND, req_"),
        (("tail", "run_none"), {}, "error: Run not found (RUN_NOT_FOUND, req_"),
        (("agents", "--url", nobody), {}, f"error: no answer from {nobody}: is it there? Start one with `runyard dev`"),
        (("runs",), {"RUNYARD_TOKEN": "none"}, "error: "),
        (("runs", "--url", "ftp://gateway"), {}, "error: the URL of a gateway begins with http://"),
    ):
        done = await here(*arguments, **environment)
        assert (done.code, done.out, done.err.count("\n")) == (2, "", 1), (arguments, done)
        assert done.err.startswith(said)
    assert "set RUNYARD_TOKEN" in (await here("runs", RUNYARD_TOKEN="none")).err
    usage = await here("runs", "--limit", "0")
    assert (usage.code, "Usage: " in usage.err) == (2, True)


async def test_a_pipe_that_is_closed_leaves_the_run_alone(
    stack: Stack, runyard: Command, unique: str, api: Api
) -> None:
    stack.standin.answers(says("one"), says("two ", hold(unique), "three"))
    reader, writer = os.pipe()
    process = await asyncio.create_subprocess_exec(
        *(*RUNYARD, "run", "talker", "go", "--json"), env=dict(runyard.environment), stdout=writer, stderr=PIPE
    )
    os.close(writer)
    os.close(reader)
    _, err = await process.communicate()
    assert process.returncode == 141
    (run,) = (await api.get("/v1/runs")).json()["items"]
    assert err.decode().splitlines() == [f"it goes on; to see it again: runyard tail {run['id']}"]
    assert (await api.settled(run["invocationId"]))["status"] == "completed"


async def test_an_output_that_cannot_be_written_is_told_and_leaves_the_run_alone(
    stack: Stack, runyard: Command, api: Api
) -> None:
    stack.standin.answers(says("one"), says("two"))
    full = os.open("/dev/full", os.O_WRONLY)
    process = await asyncio.create_subprocess_exec(
        *(*RUNYARD, "run", "talker", "go", "--json"), env=dict(runyard.environment), stdout=full, stderr=PIPE
    )
    os.close(full)
    _, err = await process.communicate()
    assert process.returncode == 2
    (run,) = (await api.get("/v1/runs")).json()["items"]
    assert err.decode().splitlines() == [
        f"it goes on; to see it again: runyard tail {run['id']}",
        "error: the output cannot be written: No space left on device",
    ]
    assert (await api.settled(run["invocationId"]))["status"] == "completed"


async def test_ctrl_c_where_nobody_can_be_asked_leaves_the_run_alone(
    stack: Stack, runyard: Command, unique: str, api: Api
) -> None:
    stack.standin.answers(says("begun ", hold(unique), "and ended"))
    process = await asyncio.create_subprocess_exec(
        *(*RUNYARD, "run", "talker", "go", "--json"),
        env=dict(runyard.environment),
        stdout=PIPE,
        stderr=PIPE,
        start_new_session=True,
    )
    assert process.stdout is not None
    assert json.loads(await process.stdout.readline())["event"] == "status"
    process.send_signal(signal.SIGINT)
    _, err = await process.communicate()
    (run,) = (await api.get("/v1/runs")).json()["items"]
    assert (process.returncode, err.decode()) == (130, f"it goes on; to see it again: runyard tail {run['id']}\n")
    assert run["status"] in {"queued", "running"}
    stack.standin.gate(unique).release()
    assert (await api.settled(run["invocationId"]))["text"] == "begun and ended"


# At a terminal -----------------------------------------------------------------------------------------------------


async def test_ctrl_c_asks_and_cancels(stack: Stack, runyard: Command, unique: str, api: Api) -> None:
    stack.standin.answers(says("begun ", hold(unique), "going on ", hold(f"{unique}-2"), "and never ended"))
    async with runyard.at_terminal("run", "talker", "go") as terminal:
        await terminal.shows("begun ")
        terminal.type(CTRL_C)
        await terminal.shows(r"\[c\]ancel the run, \[d\]etach from it")
        terminal.type("\n")
        stack.standin.gate(unique).release()
        await terminal.shows("going on ")
        terminal.type(CTRL_C)
        await terminal.shows(r"(?s)read on\? .*read on\? ")
        terminal.type("c\n")
        await terminal.shows("cancelled: ")
        assert await terminal.exited() == 130
    (run,) = (await api.get("/v1/runs")).json()["items"]
    assert run["status"] == "cancelled"


async def test_ctrl_c_twice_leaves_the_run_alone(stack: Stack, runyard: Command, unique: str, api: Api) -> None:
    stack.standin.answers(says("begun ", hold(unique), "\x1b[2Jand ended"))
    async with runyard.at_terminal("run", "talker", "go") as terminal:
        await terminal.shows("begun ")
        terminal.type(CTRL_C)
        await terminal.shows(r"read on\? ")
        terminal.type(CTRL_C)
        await terminal.shows(r"it goes on; to see it again: runyard tail run_\w+")
        assert await terminal.exited() == 130
    (run,) = (await api.get("/v1/runs")).json()["items"]
    assert run["status"] == "running"
    async with runyard.at_terminal("tail", run["id"]) as terminal:
        await terminal.shows("begun ")
        stack.standin.gate(unique).release()
        await terminal.shows(r"begun \N{REPLACEMENT CHARACTER}\[2Jand ended\ncompleted: ")
        assert await terminal.exited() == 0
