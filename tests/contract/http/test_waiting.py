"""What a caller sees of a call that waits: its place, and why its turn does not come."""

import asyncio

import pytest
from tests.contract.http.test_sse import told
from tests.integration.fixtures import on_sqlite
from tests.integration.stack import Stack
from tests.standin import calls, says

pytestmark = [pytest.mark.anyio, on_sqlite]


async def test_a_call_that_no_worker_takes_is_told_so_on_the_run(stack: Stack, unique: str) -> None:
    user = stack.gateway.user(tenant=unique)
    started = [await user.start("unserved") for _ in range(2)]
    shown = [(await user.get(f"/v1/runs/{run['runId']}")).json() for run in started]
    assert [(run["position"], run["waitReason"]) for run in shown] == [(1, "no_worker"), (2, "no_worker")]
    listed = (await user.get("/v1/runs")).json()["items"]
    assert {(run["position"], run["waitReason"]) for run in listed} == {(None, None)}
    for run in started:
        cancelled = await user.post(f"/v1/runs/{run['runId']}/cancel")
        assert cancelled.json()["status"] == "cancelled"
        settled = (await user.get(f"/v1/runs/{run['runId']}")).json()
        assert (settled["position"], settled["waitReason"]) == (None, None)


async def test_a_call_over_its_agents_limit_waits_says_so_and_can_be_cancelled(stack: Stack, unique: str) -> None:
    """Of an agent with one run at a time, on a worker with slots to spare, whose queue no other worker serves."""
    stack.standin.answers(calls("hold", {"gate": unique}), says("Done."), says("Done too."))
    user = stack.gateway.user(tenant=unique)
    async with stack.starting_worker(RUNYARD_QUEUES="nightly", RUNYARD_WORKER_SLOTS="4"):
        first = await user.start("nightly")
        await stack.gate_reached(unique)
        async with user.streaming("nightly") as second, user.streaming("nightly") as third:
            reading, ending = asyncio.create_task(second.next()), asyncio.create_task(third.next())
            assert await told(second, 1) == {"status": "queued", "position": 1, "waitReason": "agent_limit"}
            assert await told(third, 1) == {"status": "queued", "position": 2, "waitReason": "agent_limit"}
            run_id = third.response.headers["x-run-id"]
            run = (await user.get(f"/v1/runs/{run_id}")).json()
            assert (run["status"], run["position"], run["waitReason"]) == ("queued", 2, "agent_limit")
            cancelled = await user.post(f"/v1/runs/{run_id}/cancel")
            assert cancelled.json()["status"] == "cancelled"
            await ending
            stack.open_gate(unique)
            await user.settled(first["invocationId"])
            begun = await reading
            assert begun is not None
            assert (begun.type, begun.id) == ("status", "1"), "a frame of its worker"
            last = (await user.get(f"/v1/runs/{second.response.headers['x-run-id']}")).json()
            await user.settled(last["invocationId"])
