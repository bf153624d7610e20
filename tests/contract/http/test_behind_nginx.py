"""A gateway behind an nginx as it comes (B7): frames arrive as they are made, silence is no end, a cut costs nobody."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import httpx2
import pytest
from scripts.proxy import NGINX
from scripts.services.service import Unusable
from tests.clients.api import GUARD_S, STREAM, Api, Reading
from tests.contract.http.inside import gateway_inside
from tests.integration.fixtures import on_sqlite
from tests.integration.stack import Stack
from tests.mortal_servers import MortalServer, mortal_nginx
from tests.standin import hold, says

from runyard_gateway.sse import HEARTBEAT_S, stream_sse

pytestmark = [pytest.mark.anyio, on_sqlite]

READ_TIMEOUT_DEFAULT_S = 60
"""https://nginx.org/en/docs/http/ngx_http_proxy_module.html#proxy_read_timeout"""

READ_TIMEOUT_S, SHORT_HEARTBEAT_S = 4, 0.5
"""The same with room for a machine that is busy with other things, in seconds that a test may take."""


@pytest.fixture(scope="module", autouse=True)
def _nginx() -> None:
    """Without an nginx the tests fail."""
    try:
        NGINX.find()
    except Unusable as error:
        pytest.fail(str(error), pytrace=False)


@pytest.fixture
def nginx(stack: Stack) -> Iterator[MortalServer]:
    with mortal_nginx(stack.gateway.port) as server:
        yield server


@asynccontextmanager
async def through(url: str, like: Api) -> AsyncIterator[Api]:
    """The same user, behind the proxy."""
    async with httpx2.AsyncClient(base_url=url, timeout=GUARD_S, trust_env=False) as http:
        yield Api(http, like.headers)


async def test_frames_arrive_as_they_are_made(stack: Stack, nginx: MortalServer, unique: str) -> None:
    """In every kind of answer. Each gate is opened when all that came before it has arrived."""
    gates = [f"{unique}-{at}" for at in range(2)]
    stack.standin.answers(says("one ", hold(gates[0]), "two ", hold(gates[1]), "three"))
    async with (
        through(nginx.url, stack.gateway.user()) as api,
        api.reading("GET", "/v1/feed") as feed,
        api.reading("GET", "/v1/rooms/lobby") as room,
        api.streaming("talker") as first,
    ):
        await feed.opened()
        await room.opened()
        await first.until_text("one ")
        pylon = api.reading("GET", f"/api/fn-streams/{first.stream_id}")
        async with api.resuming(first.stream_id) as second, pylon as third:
            for said, gate in (("one ", gates[0]), ("one two ", gates[1])):
                for reading in (first, second, third):
                    await reading.until_text(said)
                stack.standin.gate(gate).release()
            for reading in (first, second, third):
                await reading.rest()
                assert reading.text == "one two three"
        await feed.until(lambda event: event.type == "run" and json.loads(event.data)["status"] == "completed")


async def test_a_function_streams_its_first_words_through_it(stack: Stack, nginx: MortalServer, unique: str) -> None:
    async with through(nginx.url, stack.gateway.user()) as api:
        for path, body in (
            ("/v1/functions/recite", {"input": {"words": ["ready, ", "go"], "gate": f"{unique}-0"}}),
            ("/api/fn/recite", {"words": ["ready, ", "go"], "gate": f"{unique}-1"}),
        ):
            async with api.reading("POST", path, headers=STREAM, json=body) as reading:
                await reading.until_text("ready, ")
                stack.open_gate(body.get("input", body)["gate"])
                await reading.rest()
                assert reading.text == "ready, go"


async def test_a_silent_stream_outlives_its_patience(
    stack: Stack, unique: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a model thinks. All times are shortened, heartbeats more than nginx' patience, as they are in earnest."""
    assert 2 * HEARTBEAT_S < READ_TIMEOUT_DEFAULT_S
    monkeypatch.setitem(stream_sse.__kwdefaults__, "heartbeat_s", SHORT_HEARTBEAT_S)
    stack.standin.answers(says(hold(unique), "at last"))
    async with gateway_inside(stack, monkeypatch) as (_, port):
        with mortal_nginx(port, f"proxy_read_timeout {READ_TIMEOUT_S}s;") as impatient:
            async with through(impatient.url, stack.gateway.user()) as api, api.streaming("talker") as reading:
                began_s = time.monotonic()
                ended = asyncio.create_task(reading.until_text("at last"))
                await stack.standin.gate(unique).reached()
                while time.monotonic() < began_s + READ_TIMEOUT_S + 1:
                    assert not ended.done()
                    await asyncio.sleep(SHORT_HEARTBEAT_S)  # that nothing ends is seen by waiting alone
                assert len(reading.parser.comments) > 1
                stack.standin.gate(unique).release()
                await ended


async def test_a_proxy_that_goes_ends_no_run(stack: Stack, nginx: MortalServer, unique: str) -> None:
    """In the midst of a tool. Its readers come back behind what they have."""
    stack.standin.answers(says("one ").calls("hold", {"gate": unique}), says("two"))
    user = stack.gateway.user()
    async with through(nginx.url, user) as api:
        async with api.streaming("clerk") as reading:
            await reading.until_text("one ")
            await stack.gate_reached(unique)
            nginx.kill()
            await cut_off(reading)
        nginx.start()
        stack.open_gate(unique)
        async with api.resuming(reading.stream_id, reading.last_event_id) as resumed:
            *_, last = await resumed.rest()
    assert reading.text + resumed.text == "one two"
    assert json.loads(last.data)["status"] == "completed"


async def cut_off(reading: Reading) -> None:
    with pytest.raises(httpx2.TransportError):
        await reading.rest()
