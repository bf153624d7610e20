"""A run is stopped whose worker is dead already, and nobody has noticed yet."""

import asyncio

import pytest
from tests.clients.answer import is_terminal
from tests.fault.accounts import INTERRUPTED, account_of
from tests.fault.conftest import on_redis
from tests.fault.crew import Crew
from tests.fault.readers import run_of
from tests.integration.processes import GUARD_S
from tests.integration.stack import Stack
from tests.standin import hold, says

from runyard.blocks import CANCELLED

pytestmark = [pytest.mark.anyio, on_redis]


async def test_a_run_whose_worker_is_dead_is_stopped_and_goes_on_later(stack: Stack, crew: Crew, unique: str) -> None:
    """One in its tools, one in the model's answer."""
    stack.standin.answers(
        says("Four. ")
        .calls("charge", {"order": "a"})
        .calls("wait", {"gate": f"never-{unique}"})
        .calls("book", {"order": "a"}),
        says("Back again."),
        contains="<tools>",
    )
    stack.standin.answers(says("Half ", hold(unique)), says("Back again."), contains="<answer>")
    api = stack.gateway.user()
    (dying,) = await crew.join()
    async with api.streaming("mortal", "<tools>") as tools, api.streaming("mortal", "<answer>") as answer:
        await tools.until(lambda event: event.type == "tool" and "charge" in event.data)
        await stack.gate_reached(f"never-{unique}")
        await answer.until_text("Half ")
        await crew.join()
        crew.kill(dying)
        paths = [f"/v1/runs/{run_of(reading)}/cancel" for reading in (tools, answer)]
        cancels = await asyncio.gather(*(api.post(path, headers={"Prefer": "wait=60"}) for path in paths))
        for reading in (tools, answer):
            await reading.rest(guard_s=GUARD_S)
    for reading, response in zip((tools, answer), cancels, strict=True):
        assert (response.status_code, response.json()["status"]) == (200, "cancelled")
        assert sum(map(is_terminal, reading.events)) == 1
        account = await account_of(stack, api, run_of(reading))
        assert reading.text == account.text == response.json()["text"]
        assert len(account.deaths) == 1
    assert (tools.text, answer.text) == ("Four. ", "")

    account = await account_of(stack, api, run_of(tools))
    results = account.rows[-1]["content"]
    assert [block["type"] for block in results] == ["tool_result"] * 3
    assert [block["tool_use_id"] for block in results] == list(account.calls())
    assert not account.result("charge").is_error
    assert account.result("wait") == (INTERRUPTED, True)
    assert account.result("book") == (CANCELLED, True)
    again = await api.run("mortal", "and now?", runId=run_of(tools))
    assert (again["status"], again["text"]) == ("completed", "Back again.")
    sent = [call for call in stack.standin.calls if call.conversation == "<tools>"][-1].messages
    assert sent[-1]["content"] == [*results, {"type": "text", "text": "and now?"}]
    assert (await api.run("mortal", "and now?", runId=run_of(answer)))["text"] == "Back again."
    assert sorted(effect.split()[0] for effect in stack.effects(run_of(tools))) == ["charge", "wait"]
