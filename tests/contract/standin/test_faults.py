"""What the stand-in does wrong on purpose, and where it stands still: errors, cuts, stalls, gates, clients that go."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anthropic
import httpx2
import pytest
from tests.standin import (
    Answer,
    Ending,
    Standin,
    cut,
    fail,
    hold,
    pause,
    ping_until,
    refuses,
    says,
    thinks,
)

pytestmark = pytest.mark.anyio

ASKING: dict[str, Any] = {"model": "m", "max_tokens": 64, "messages": [{"role": "user", "content": "go"}]}


@asynccontextmanager
async def served() -> AsyncIterator[tuple[Standin, anthropic.AsyncAnthropic]]:
    async with (
        Standin() as model,
        anthropic.AsyncAnthropic(base_url=model.base_url, api_key="sk-test", max_retries=0) as client,
    ):
        yield model, client


async def read(client: anthropic.AsyncAnthropic, into: list[str]) -> None:
    """Collect the text of an answer piece by piece, so that what came before a fault is known."""
    async for event in await client.messages.create(**ASKING, stream=True):
        if event.type == "content_block_delta" and event.delta.type == "text_delta":
            into.append(event.delta.text)  # noqa: PERF401  # what came before a fault must not be lost with it


@pytest.mark.parametrize(
    ("status", "kind", "error"),
    [
        (400, "invalid_request_error", anthropic.BadRequestError),
        (401, "authentication_error", anthropic.AuthenticationError),
        (403, "permission_error", anthropic.PermissionDeniedError),
        (404, "not_found_error", anthropic.NotFoundError),
        (408, "timeout_error", anthropic.APIStatusError),
        (409, "conflict_error", anthropic.ConflictError),
        (413, "request_too_large", anthropic.APIStatusError),
        (429, "rate_limit_error", anthropic.RateLimitError),
        (500, "api_error", anthropic.InternalServerError),
        (529, "overloaded_error", anthropic.InternalServerError),
    ],
)
@pytest.mark.parametrize("stream", [True, False])
async def test_http_errors(status: int, kind: str, error: type[anthropic.APIStatusError], *, stream: bool) -> None:
    async with served() as (model, client):
        model.answers(refuses(status))
        with pytest.raises(error) as raised:
            await client.messages.create(**ASKING, stream=stream)
        assert (raised.value.status_code, raised.value.type) == (status, kind)
        assert raised.value.request_id == model.requests[0].request_id
        assert model.requests[0].status == status


async def test_an_error_has_the_headers_and_words_asked_for() -> None:
    async with served() as (model, client):
        model.answers(refuses(429, "rate_limit_error", "Slow down.", headers={"retry-after": "7"}))
        with pytest.raises(anthropic.RateLimitError, match="Slow down") as raised:
            await client.messages.create(**ASKING)
        assert raised.value.response.headers["retry-after"] == "7"


@pytest.mark.parametrize(
    ("script", "seen"),
    [
        (says("a").before("message_start", fail()), []),
        (says("a").before("content_block_start", fail()), []),
        (says("a", "b", fail(), "c"), ["a", "b"]),
        (says("a").then(fail()), ["a"]),
        (says("a").before("message_stop", fail()), ["a"]),
    ],
)
async def test_an_error_event_inside_a_200(script: Answer, seen: list[str]) -> None:
    async with served() as (model, client):
        model.answers(script)
        pieces: list[str] = []
        with pytest.raises(anthropic.APIStatusError) as raised:
            await read(client, pieces)
        assert (raised.value.status_code, raised.value.type, pieces) == (200, "overloaded_error", seen)
        assert await model.requests[0].ended() is Ending.CUT


async def test_an_error_event_without_streaming_is_an_http_error() -> None:
    async with served() as (model, client):
        model.answers(says("a", fail("api_error", "Broken.")))
        with pytest.raises(anthropic.InternalServerError, match="Broken"):
            await client.messages.create(**ASKING)


async def test_a_stream_may_end_politely_without_its_end() -> None:
    async with served() as (model, client):
        model.answers(says("a", "b", cut("end"), "c"))
        pieces: list[str] = []
        await read(client, pieces)
        assert pieces == ["a", "b"]
        assert await model.requests[0].ended() is Ending.CUT


@pytest.mark.parametrize("how", ["close", "reset"])
async def test_a_connection_may_break_between_events(how: str) -> None:
    async with served() as (model, client):
        model.answers(says("a", "b", hold("seen"), cut(how), "c"))
        pieces: list[str] = []
        reading = asyncio.ensure_future(read(client, pieces))
        await model.gate("seen").reached()
        model.gate("seen").release()
        with pytest.raises(httpx2.TransportError):
            await reading
        assert await model.requests[0].ended() is Ending.CUT


@pytest.mark.parametrize("byte", [0, 1, 6, 7, 300, 480])
async def test_a_connection_may_break_at_any_byte(byte: int) -> None:
    async with Standin() as model, httpx2.AsyncClient() as http:
        model.answers(says("\u20ac" * 40).at_byte(byte, cut("close")))
        headers = {"x-api-key": "k", "anthropic-version": "2026-10-21"}
        received = b""
        with pytest.raises(httpx2.RemoteProtocolError):  # noqa: PT012  # what came before is compared
            async with http.stream(
                "POST", f"{model.base_url}/v1/messages", json=ASKING | {"stream": True}, headers=headers
            ) as response:
                async for chunk in response.aiter_raw():
                    received += chunk
        assert len(received) == byte == model.requests[0].bytes_sent


@pytest.mark.parametrize("how", ["end", "close", "reset"])
@pytest.mark.parametrize("stream", [True, False])
async def test_a_connection_may_break_before_there_is_an_answer(how: str, *, stream: bool) -> None:
    async with served() as (model, client):
        model.answers(says("a").before("head", cut(how)))
        with pytest.raises(anthropic.APIConnectionError):
            await client.messages.create(**ASKING, stream=stream)


async def test_what_broke_off_was_not_sent() -> None:
    async with served() as (model, client):
        model.answers(thinks("All of it.").thinks("Half", cut("end")))
        await read(client, [])
        (sent,) = model._state.ledger.messages
        assert [block["thinking"] for block in sent.blocks] == ["All of it."]
        assert (sent.complete, sent.stop_reason) == (False, None)
        assert model.requests[0].usage["output_tokens"] == 1


# Gates --------------------------------------------------------------------------------------------------------------


async def test_an_answer_stands_still_until_its_gate_opens() -> None:
    async with served() as (model, client):
        model.answers(says("a", hold("middle"), "b"))
        pieces: list[str] = []
        reading = asyncio.ensure_future(read(client, pieces))
        gate = model.gate("middle")
        await gate.reached()
        assert (gate.holders, gate.arrivals, model.requests[0].ending) == (1, 1, None)
        gate.release()
        await reading
        assert pieces == ["a", "b"]
        assert (gate.holders, gate.is_open) == (0, True)


@pytest.mark.parametrize("where", ["head", "message_start", "message_stop", "end"])
async def test_a_gate_may_stand_anywhere(where: str) -> None:
    async with served() as (model, client):
        model.answers(says("a").before(where, hold("g")))
        reading = asyncio.ensure_future(read(client, pieces := []))
        await model.gate("g").reached()
        model.gate("g").release()
        await reading
        assert pieces == ["a"]


async def test_without_streaming_gates_hold_the_answer_back() -> None:
    async with served() as (model, client):
        model.answers(says("a", hold("g")))
        asking = asyncio.ensure_future(client.messages.create(**ASKING))
        await model.gate("g").reached()
        assert model.requests[0].bytes_sent == 0
        model.gate("g").release()
        assert (await asking).content[0].text == "a"


async def test_each_delta_waits_until_the_client_has_the_one_before() -> None:
    words = [f"{number} " for number in range(20)]
    async with served() as (model, client):
        model.answers(says(*words).each_delta("next"))
        gate = model.gate("next")
        seen = 0
        async for event in await client.messages.create(**ASKING, stream=True):
            if event.type == "content_block_start":
                gate.advance()
            elif event.type == "content_block_delta":
                seen += 1
                assert event.delta.text == words[seen - 1]
                assert gate.arrivals <= seen + 1
                gate.advance()
        assert seen == 20


async def test_many_answers_hold_at_one_gate() -> None:
    async with served() as (model, client):
        model.answers_with(lambda _: says(hold("all"), "a"))
        reading = [asyncio.ensure_future(read(client, [])) for _ in range(5)]
        gate = model.gate("all")
        await gate.reached(5)
        assert gate.holders == 5
        gate.advance(2)
        await asyncio.wait(reading, return_when=asyncio.FIRST_COMPLETED)
        gate.release()
        await asyncio.gather(*reading)


async def test_pings_go_on_while_a_gate_is_closed() -> None:
    async with served() as (model, client):
        model.answers(says("a", ping_until("g", every_ms=1), "b"))
        response = await client.messages.with_raw_response.create(**ASKING, stream=True)
        received = ""
        async for chunk in response.http_response.aiter_text():
            received += chunk
            if received.count("event: ping") >= 3:
                model.gate("g").release()
        assert received.rstrip().endswith('{"type":"message_stop"}')


async def test_a_gate_that_nobody_reaches_says_so() -> None:
    async with Standin() as model:
        with pytest.raises(TimeoutError, match="gate 'never' was reached 0 times, not 1"):
            await model.gate("never").reached(guard_s=0.01)
        with pytest.raises(TimeoutError, match="0 requests arrived, not 1"):
            await model.request(1, guard_s=0.01)


# Clients that go ------------------------------------------------------------------------------------------------------


async def test_it_sees_at_once_that_the_client_is_gone() -> None:
    async with served() as (model, client):
        model.answers(says("a", hold("g"), "b"))
        reading = asyncio.ensure_future(read(client, []))
        await model.gate("g").reached()
        reading.cancel()
        request = await model.request(1)
        assert await request.ended() is Ending.CLIENT_CLOSED
        assert request.client_closed
        assert model.gate("g").holders == 0


async def test_it_sees_it_while_time_passes_too() -> None:
    async with served() as (model, client):
        model.answers(says("a", pause(60_000), "b"))
        stream = await client.messages.create(**ASKING, stream=True)
        async for event in stream:
            if event.type == "content_block_delta":
                break
        await stream.close()
        assert await model.requests[0].ended() is Ending.CLIENT_CLOSED


async def test_stopping_breaks_off_what_is_under_way() -> None:
    async with anthropic.AsyncAnthropic(base_url="http://127.0.0.1:9", api_key="k", max_retries=0) as client:
        model = Standin()
        await model.start()
        client.base_url = model.base_url
        model.answers(says("a", hold("g"), "b"))
        reading = asyncio.ensure_future(read(client, []))
        await model.gate("g").reached()
        await model.stop()
        with pytest.raises(httpx2.TransportError):
            await reading
        assert model.requests[0].ending is Ending.ABORTED
