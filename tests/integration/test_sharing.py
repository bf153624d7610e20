"""Worker processes that several tenants and several queues share."""

import asyncio
import json
from collections import Counter

import pytest
from tests.clients.api import replay
from tests.integration.fixtures import on_sqlite
from tests.integration.stack import Stack
from tests.standin import By, calls, says

pytestmark = [pytest.mark.anyio, on_sqlite]

BACKLOG = 8


async def test_a_full_worker_makes_room_for_another_tenant(stack: Stack, unique: str) -> None:
    """Behind runs that have waited longer, and after one more step of the run that has the only slot."""
    first, second = f"{unique}-1", f"{unique}-2"
    large, small = stack.gateway.user(tenant=f"{unique}-large"), stack.gateway.user(tenant=f"{unique}-small")
    stack.standin.answers(
        calls("hold", {"gate": first}),
        calls("hold", {"gate": second}),
        says("Done at last."),
        contains="many",
        by=By.TURN,
    )
    stack.standin.answers(says("Hello."), contains="only one")
    async with (
        stack.starting_worker(RUNYARD_QUEUES="relay", RUNYARD_WORKER_SLOTS="1"),
        large.streaming("relay", "many") as reading,
    ):
        ending = asyncio.create_task(reading.rest())
        await stack.gate_reached(first)
        waiting = [await large.start("relay", "many") for _ in range(BACKLOG)]
        result = await small.post("/v1/agents/relay/runs", {"input": "only one"}, headers={"Prefer": "wait=0"})
        stack.open_gate(first)
        answered = await small.settled(result.json()["invocationId"])
        assert answered["text"] == "Hello."
        run_id = reading.response.headers["x-run-id"]
        assert stack.effects(run_id) == [f"hold {first}"], "it has made no step since"
        await stack.gate_reached(second)
        stack.open_gate(second)
        events = await ending
        for run in waiting:
            assert (await large.settled(run["invocationId"]))["status"] == "completed"
    assert stack.effects(run_id) == [f"hold {first}", f"hold {second}"]
    assert reading.text == "Done at last."
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert await replay(large, reading.stream_id) == events
    ((deaths,),) = stack.execute("SELECT deaths FROM agent_invocations WHERE run_id = :run", run=run_id)
    assert json.loads(deaths) == []


async def test_a_worker_takes_only_what_is_on_its_queues(stack: Stack, unique: str) -> None:
    """All of them have all agents. `relay` and `nightly` are queues of two worker classes, `unserved` of none."""
    stack.standin.answers(calls("hold", {"gate": unique}), says("Done."), by=By.TURN)
    user = stack.gateway.user(tenant=unique)
    started = [await user.start(agent) for agent in ("nightly", "relay", "unserved", "relay", "clerk")]

    def places() -> Counter[tuple[str, str]]:
        """The queues of runs that run, and those that their workers serve."""
        statement = """
            SELECT agent_runs.queue, workers.queues FROM agent_runs JOIN workers ON workers.id = agent_runs.worker_id
            WHERE agent_runs.tenant_id = :tenant
        """
        return Counter(
            (queue, ",".join(json.loads(queues))) for queue, queues in stack.execute(statement, tenant=unique)
        )

    async with (
        stack.starting_worker(RUNYARD_QUEUES="relay"),
        stack.starting_worker(RUNYARD_QUEUES="nightly,bulk"),
    ):
        expected = {("relay", "relay"): 2, ("nightly", "nightly,bulk"): 1, ("default", "default"): 1}
        async with asyncio.timeout(30):
            while places().total() < 4:  # noqa: ASYNC110 - a row sets no event
                await asyncio.sleep(0.05)
        assert places() == expected
        stack.open_gate(unique)
        for run in (started[0], started[1], started[3], started[4]):
            assert (await user.settled(run["invocationId"]))["status"] == "completed"
    run = (await user.get(f"/v1/runs/{started[2]['runId']}")).json()
    assert (run["status"], run["waitReason"]) == ("queued", "no_worker")
    assert (await user.post(f"/v1/runs/{run['id']}/cancel")).status_code == 200
