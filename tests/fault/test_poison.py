"""A tool that kills its worker, each time it runs."""

import json

import pytest
from tests.clients.answer import is_terminal
from tests.fault.accounts import INTERRUPTED, account_of
from tests.fault.conftest import on_redis
from tests.fault.crew import Crew
from tests.fault.readers import run_of
from tests.integration.processes import GUARD_S
from tests.integration.stack import Stack
from tests.standin import hold, says

pytestmark = [pytest.mark.anyio, on_redis]

DEATHS = 3


async def test_a_tool_that_killed_three_workers_ends_its_run_and_no_other(
    stack: Stack, crew: Crew, unique: str
) -> None:
    stack.standin.answers(says("Watch: ").calls("die"), contains="<poison>")
    stack.standin.answers(says("I am ", hold(unique), "still here."), by="turn", contains="<bystander>")
    stack.standin.answers(says("Short."), by="turn", contains="<short>")
    api = stack.gateway.user()
    await crew.join(DEATHS + 1)
    async with api.streaming("talker", "<bystander>") as bystander, api.streaming("mortal", "<poison>") as poisoned:
        for _ in range(DEATHS):
            await crew.killed_itself()
            assert (await api.run("talker", "<short>"))["text"] == "Short."
        await poisoned.rest(guard_s=GUARD_S)
        stack.standin.gate(unique).release()
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
