"""Calls on one conversation at the same moment: one is taken, the others are told, if they ask for that."""

import asyncio
from typing import Any

import pytest
from tests.clients.api import Api
from tests.integration.stack import Stack
from tests.standin import hold, says

pytestmark = pytest.mark.anyio

CALLS = 10


async def test_calls_at_once_on_a_new_session_make_one_run(stack: Stack, unique: str) -> None:
    stack.standin.answers(says(hold(unique), "x"))
    api = stack.gateway.user()
    accepted = await one_of_many(api, sessionId=unique)
    runs = (await api.get("/v1/runs", sessionId=unique)).json()["items"]
    assert [run["id"] for run in runs] == [accepted["runId"]]
    stack.standin.gate(unique).release()
    await api.settled(accepted["invocationId"])
    assert len(await api.messages(accepted["runId"])) == 2


@pytest.mark.parametrize("name", ["runId", "sessionId"])
async def test_calls_at_once_on_a_settled_run_make_one_turn(stack: Stack, unique: str, name: str) -> None:
    stack.standin.answers(says("first"), says(hold(unique), "x"))
    api = stack.gateway.user()
    first = await api.run("talker", sessionId=unique)
    accepted = await one_of_many(api, **{name: first[name]})
    assert accepted["runId"] == first["runId"]
    stack.standin.gate(unique).release()
    await api.settled(accepted["invocationId"])
    assert len(await api.messages(first["runId"])) == 4
    invocations = (await api.get(f"/v1/runs/{first['runId']}/invocations")).json()["items"]
    assert [item["invocationId"] for item in invocations] == [accepted["invocationId"], first["invocationId"]]


async def one_of_many(api: Api, **named: str) -> dict[str, Any]:
    """The one call that was accepted. The model is held: it is still busy when the others are answered."""
    responses = await asyncio.gather(
        *(
            api.post("/v1/agents/talker/runs", {"input": f"call {number}", "ifBusy": "reject", **named})
            for number in range(CALLS)
        )
    )
    (accepted,) = [response.json() for response in responses if response.status_code == 202]
    refused = [response for response in responses if response.status_code != 202]
    assert len(refused) == CALLS - 1
    for response in refused:
        error = response.json()["error"]
        assert (response.status_code, error["code"]) == (409, "RUN_BUSY")
        assert error["retryable"] is True
        assert error["runId"] == accepted["runId"]
    return dict(accepted)
