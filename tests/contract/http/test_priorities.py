"""`priority` of a call: what it may be, whose default it is, and where it shows."""

import pytest
from tests.contract.http.test_queues import shows
from tests.integration.fixtures import on_sqlite
from tests.integration.stack import Stack

pytestmark = [pytest.mark.anyio, on_sqlite]


async def test_a_call_says_its_class_and_the_run_and_its_queue_show_it(stack: Stack, unique: str) -> None:
    user, admin = stack.gateway.user(tenant=unique), stack.gateway.user(tenant=unique, roles=("admin",))
    plain = await user.start("unserved")
    background = await user.start("unserved", priority="background")
    shown = {
        name: (await user.get(f"/v1/runs/{run['runId']}")).json()
        for name, run in (("plain", plain), ("background", background))
    }
    assert {name: run["priority"] for name, run in shown.items()} == {
        "plain": "interactive",
        "background": "background",
    }
    queue = await shows(admin, "unserved", lambda item: item["queued"] == 2)
    assert [(each["priority"], each["queued"]) for each in queue["priorities"]] == [
        ("interactive", 1),
        ("background", 1),
    ]
    assert all(each["oldestQueuedMs"] < 60_000 for each in queue["priorities"]), "its rank is in an hour"
    for run in (plain, background):
        await user.post(f"/v1/runs/{run['runId']}/cancel")


async def test_the_agent_says_the_class_of_calls_that_do_not(stack: Stack) -> None:
    user = stack.gateway.user()
    agent = (await user.get("/v1/agents/nightly")).json()
    assert (agent["priority"], agent["maxRunning"]) == ("background", 1)
    for given, expected in (({}, "background"), ({"priority": "interactive"}, "interactive")):
        started = await user.start("nightly", **given)
        assert (await user.get(f"/v1/runs/{started['runId']}")).json()["priority"] == expected
        await user.post(f"/v1/runs/{started['runId']}/cancel")
    idle = await user.post("/v1/runs", {"agent": "nightly"})
    assert idle.json()["priority"] == "background"


async def test_a_function_has_a_class_too(stack: Stack) -> None:
    user = stack.gateway.user()
    called = await user.post("/v1/functions/nowhere", {"priority": "background"})
    assert called.status_code == 202
    run = (await user.get(f"/v1/runs/{called.json()['runId']}")).json()
    assert run["priority"] == "background"
    await user.post(f"/v1/runs/{run['id']}/cancel")


@pytest.mark.parametrize("priority", ["urgent", "", 1, ["background"], {"class": "background"}, True])
@pytest.mark.parametrize("path", ["/v1/agents/unserved/runs", "/v1/functions/nowhere"])
async def test_no_other_class_is_taken(stack: Stack, path: str, priority: object) -> None:
    refused = await stack.gateway.user().post(path, {"input": "hi" if "agents" in path else {}, "priority": priority})
    assert refused.status_code == 400
    assert (refused.json()["error"]["code"], refused.json()["error"]["fields"]) == ("INVALID_ARGS", ["priority"])
