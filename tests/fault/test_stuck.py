"""A tool that never lets the event loop go: its process ends itself, and another worker goes on with its runs."""

from pathlib import Path

import pytest
from tests.clients.answer import is_terminal
from tests.fault.accounts import INTERRUPTED, account_of
from tests.fault.conftest import on_redis
from tests.fault.readers import run_of
from tests.integration.processes import GUARD_S
from tests.integration.stack import Stack
from tests.standin import hold, says

from runyard_workers.beat import STUCK_EXIT_CODE

pytestmark = [pytest.mark.anyio, on_redis]

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


async def test_a_process_that_is_stuck_ends_itself(stack: Stack, tmp_path: Path, unique: str) -> None:
    (tmp_path / "blocker.py").write_text(BLOCKER)
    settings = {"RUNYARD_AGENTS": str(tmp_path), "RUNYARD_QUEUES": "blocked"}
    stack.standin.answers(
        says("One. ").calls("block").stops("tool_use").before("message_stop", hold(f"{unique}-block")),
        says("Two."),
        contains="<blocking>",
    )
    stack.standin.answers(says("Half ", hold(unique)), says("A whole answer."), contains="<beside>")
    api = stack.gateway.user()
    async with (
        stack.starting_worker(**settings) as stuck,
        api.streaming("blocker", "<blocking>") as blocking,
        api.streaming("blocker", "<beside>") as beside,
    ):
        await beside.until_text("Half ")
        await blocking.until_text("One. ")
        stack.standin.gate(f"{unique}-block").release()
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
