"""Names as long as tokens and bodies may have them. Postgres' indexes take rows of 2704 bytes."""

import random

import pytest
from tests.integration.stack import Stack

pytestmark = pytest.mark.anyio

RUN = "/v1/agents/unserved/runs"
IDLE = "/v1/runs"


def long_name(characters: int) -> str:
    """Of four bytes each, with nothing in it that a database could write shorter."""
    return "".join(chr(random.randrange(0x20000, 0x2A6E0)) for _ in range(characters))


async def test_a_session_that_no_index_takes_is_refused(stack: Stack) -> None:
    api = stack.gateway.user(long_name(256), tenant=long_name(256))
    session = long_name(100)
    idle = await api.post(IDLE, {"agent": "unserved", "sessionId": session})
    assert idle.status_code == 201
    started = await api.post(RUN, {"input": "x", "sessionId": session}, headers={"Idempotency-Key": "k" * 255})
    assert (started.status_code, started.json()["runId"]) == (202, idle.json()["id"])
    listed = (await api.get(IDLE, sessionId=session)).json()["items"]
    assert [run["sessionId"] for run in listed] == [session]
    for path, body in ((RUN, {"input": "x"}), (IDLE, {"agent": "unserved"})):
        refused = await api.post(path, body | {"sessionId": long_name(256)})
        assert refused.status_code == 400, refused.text
        error = refused.json()["error"]
        assert (error["code"], error["fields"]) == ("INVALID_ARGS", ["sessionId"])
        assert "too long" in error["message"]
