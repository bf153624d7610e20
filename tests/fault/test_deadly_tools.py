"""Tools that take their process with them: one kills it, each time it runs; one never lets its event loop go."""

import asyncio
import json
from pathlib import Path

import pytest
from tests.clients.answer import is_terminal
from tests.fault.accounts import INTERRUPTED, account_of
from tests.fault.conftest import on_redis
from tests.fault.crew import Crew
from tests.fault.readers import run_of
from tests.integration.processes import GUARD_S
from tests.integration.stack import Stack
from tests.standin import hold, says

from runyard_workers.beat import STUCK_EXIT_CODE

pytestmark = [pytest.mark.anyio, on_redis]

DEATHS = 3

BLOCKER = """
import time

from runyard import agent, tool
from runyard_workers import beat

beat.STUCK_ROUNDS = 3  # of the minute that a process is given


@tool
async def block() -> None:
    time.sleep(600)  # a tool that holds the loop for longer than its process is given; nobody waits for it to end


blocker = agent(system="You block.", queue="blocked", tools=[block])
"""


async def test_they_end_their_own_runs_at_most(stack: Stack, crew: Crew, tmp_path: Path, unique: str) -> None:
    """Both at the same time, on workers and queues of their own: each waits for deaths to be noticed."""
    async with asyncio.TaskGroup() as both:
        both.create_task(a_tool_that_kills(stack, crew, f"{unique}-kill"))
        both.create_task(a_tool_that_blocks(stack, tmp_path, f"{unique}-block"))


async def a_tool_that_kills(stack: Stack, crew: Crew, gate: str) -> None:
    """When three workers have died of it, its run fails. All others go on."""
    stack.standin.answers(says("Watch: ").calls("die"), contains="<poison>")
    stack.standin.answers(says("I am ", hold(gate), "still here."), by="turn", contains="<bystander>")
    stack.standin.answers(says("Short."), by="turn", contains="<short>")
    api = stack.gateway.user()
    await crew.join(DEATHS + 1)
    async with api.streaming("talker", "<bystander>") as bystander, api.streaming("mortal", "<poison>") as poisoned:
        for _ in range(DEATHS):
            await crew.killed_itself()
            assert (await api.run("talker", "<short>"))["text"] == "Short."
        await poisoned.rest(guard_s=GUARD_S)
        stack.standin.gate(gate).release()
        await bystander.rest(guard_s=GUARD_S)

    run = (await api.get(f"/v1/runs/{run_of(poisoned)}")).json()
    told = json.loads(poisoned.events[-1].data)["error"]
    assert poisoned.events[-1].type == "error"
    assert sum(map(is_terminal, poisoned.events)) == 1
    assert run["status"] == "failed"
    assert run["error"] == {"code": "RUN_CRASHED", "message": told["message"]}
    assert (told["code"], told["message"]) == ("RUN_CRASHED", "3 workers died while the tool 'die' ran")
    account = await account_of(stack, api, run_of(poisoned))
    assert account.deaths == [["die"]] * DEATHS
    assert account.count("die") == DEATHS
    assert len({tuple(words) for words in account.effects}) == 1, "the same call and key"
    assert account.result("die") == (INTERRUPTED, True)
    assert poisoned.text == account.text == "Watch: "
    assert bystander.text == "I am still here."


async def a_tool_that_blocks(stack: Stack, agents: Path, gate: str) -> None:
    """Its process ends itself, and another worker goes on with its runs."""
    (agents / "blocker.py").write_text(BLOCKER)
    settings = {"RUNYARD_AGENTS": str(agents), "RUNYARD_QUEUES": "blocked"}
    stack.standin.answers(
        says("One. ").calls("block").stops("tool_use").before("message_stop", hold(f"{gate}-block")),
        says("Two."),
        contains="<blocking>",
    )
    stack.standin.answers(says("Half ", hold(gate)), says("A whole answer."), contains="<beside>")
    api = stack.gateway.user()
    async with (
        stack.starting_worker(**settings) as stuck,
        api.streaming("blocker", "<blocking>") as blocking,
        api.streaming("blocker", "<beside>") as beside,
    ):
        await beside.until_text("Half ")
        await blocking.until_text("One. ")
        stack.standin.gate(f"{gate}-block").release()
        assert await stuck.exited() == STUCK_EXIT_CODE
        assert [event["event"] for event in stuck.complaints()] == ["event loop is stuck: the process ends"]
        async with stack.starting_worker(**settings) as successor:
            for reading in (blocking, beside):
                await reading.rest(guard_s=GUARD_S)
            assert await successor.stop() == 0
            assert successor.complaints() == []
    assert (blocking.text, beside.text) == ("One. Two.", "A whole answer.")
    for reading in (blocking, beside):
        assert sum(map(is_terminal, reading.events)) == 1
        account = await account_of(stack, api, run_of(reading))
        assert account.text == reading.text
    assert (await account_of(stack, api, run_of(blocking))).result("block") == (INTERRUPTED, True)
