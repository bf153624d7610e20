"""The stand-in's answers as the real SDK reads them: streams, choices, records, refusals."""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import anthropic
import httpx2
import pytest
from tests.standin import (
    Ending,
    InvalidTranscript,
    Request,
    Script,
    Standin,
    Unexpected,
    calls,
    event,
    hold,
    ping,
    raw,
    refuses,
    says,
    searches,
    silent,
    thinks,
)

pytestmark = pytest.mark.anyio

TOOLS: list[Any] = [
    {"name": "lookup", "input_schema": {"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]}}
]


def client_of(model: Standin, *, key: str = "sk-test") -> anthropic.AsyncAnthropic:
    return anthropic.AsyncAnthropic(base_url=model.base_url, api_key=key, max_retries=0)


@asynccontextmanager
async def served(**options: Any) -> AsyncIterator[tuple[Standin, anthropic.AsyncAnthropic]]:
    async with Standin(**options) as model, client_of(model) as client:
        yield model, client


def asking(*messages: Any, **more: Any) -> dict[str, Any]:
    return {
        "model": "claude-sonnet-5-5",
        "max_tokens": 64,
        "messages": list(messages) or [{"role": "user", "content": "go"}],
        **more,
    }


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


def back(message: Any) -> dict[str, Any]:
    """The answer as it goes into the next request."""
    content = [block.model_dump(mode="json", exclude_unset=True) for block in message.content]
    return {"role": "assistant", "content": content}


def results(message: Any) -> dict[str, Any]:
    calls = [block for block in message.content if block.type == "tool_use"]
    return user([{"type": "tool_result", "tool_use_id": call.id, "content": "3 hits"} for call in calls])


async def streamed(client: anthropic.AsyncAnthropic, **body: Any) -> Any:
    async with client.messages.stream(**body) as stream:
        return await stream.get_final_message()


async def test_a_conversation_with_a_tool() -> None:
    async with served() as (model, client):
        model.answers(
            says("Let me ", "check.").calls("lookup", {"q": "pylon"}).costs(20, 8),
            says("Found 3 hits.").costs(10, 5),
        )
        first = await streamed(client, **asking(tools=TOOLS))
        assert first.content[0].text == "Let me check."
        assert (first.content[1].name, first.content[1].input) == ("lookup", {"q": "pylon"})
        assert first.stop_reason == "tool_use"

        second = await streamed(client, **asking(user("go"), back(first), results(first), tools=TOOLS))
        assert second.content[0].text == "Found 3 hits."
        assert second.stop_reason == "end_turn"
        assert [request.turn for request in model.calls] == [0, 1]
        assert model.usage()["input_tokens"] == 30
        assert model.usage()["output_tokens"] == 13


async def test_without_streaming_it_is_the_same_message() -> None:
    async with served() as (model, client):
        model.answers(thinks("Hm.").says("Yes.").calls("lookup", {"q": "a"}), says("b"), says("c"))
        first = await client.messages.create(**asking(tools=TOOLS))
        assert [block.type for block in first.content] == ["thinking", "text", "tool_use"]
        assert first.usage.output_tokens == 5
        await client.messages.create(**asking(user("go"), back(first), results(first), tools=TOOLS))


async def test_thinking_goes_back_as_it_came() -> None:
    async with served(expects_refusals=True) as (model, client):
        model.answers(thinks("Hm.").redacts().calls("lookup", {"q": "a"}), says("b"))
        first = await streamed(client, **asking(tools=TOOLS))
        changed = back(first)
        changed["content"][0]["thinking"] = "Hm"
        with pytest.raises(anthropic.BadRequestError, match="Invalid `signature` in `thinking` block"):
            await streamed(client, **asking(user("go"), changed, results(first), tools=TOOLS))
        changed["content"] = changed["content"][2:]
        with pytest.raises(anthropic.BadRequestError, match="Expected `thinking` or `redacted_thinking`"):
            await streamed(client, **asking(user("go"), changed, results(first), tools=TOOLS))
        await streamed(client, **asking(user("go"), back(first), results(first), tools=TOOLS))
        assert len(model.refusals) == 2


async def test_a_paused_turn_goes_on() -> None:
    async with served() as (model, client):
        model.answers(says("I search.").searches(call_id="srvtoolu_1").stops("pause_turn"))
        first = await streamed(client, **asking())
        assert (first.stop_reason, first.content[1].input) == ("pause_turn", {"query": "pylon"})
        model.answers(silent.finds(call_id="srvtoolu_1").says("It is."))
        second = await streamed(client, **asking(user("go"), back(first)))
        whole = {"role": "assistant", "content": back(first)["content"] + back(second)["content"]}
        model.validate_transcript([user("go"), whole])


async def test_every_kind_of_event_reaches_the_client() -> None:
    script = (
        says("a", ping(), "b")
        .cites({"type": "search_result_location", "cited_text": "c", "search_result_index": 0, "source": "s",
                "start_block_index": 0, "end_block_index": 1, "title": None})
        .then(event("usage_hint", {"type": "usage_hint"}))
        .then(raw(b""), raw(b": a comment\n\n"))
    )  # fmt: skip
    async with served() as (model, client):
        model.answers(script)
        response = await client.messages.with_raw_response.create(**asking(stream=True))
        text = (await response.http_response.aread()).decode()
    assert 'event: ping\ndata: {"type":"ping"}\n\n' in text
    assert 'event: usage_hint\ndata: {"type":"usage_hint"}\n\n' in text
    assert ": a comment\n\n" in text
    assert '"citations_delta"' in text
    assert response.headers["content-type"] == "text/event-stream; charset=utf-8"


@pytest.mark.parametrize("size", [1, 3])
async def test_pieces_may_end_inside_a_character_and_a_line(size: int) -> None:
    words = "a\u00e4\u20ac\U0001f468\u200d\U0001f469\u200d\U0001f467 \u2028\r\n"
    async with served() as (model, client):
        model.answers(says(*words).in_pieces(size))
        answer = await streamed(client, **asking())
        assert answer.content[0].text == words


async def test_fifty_conversations_at_once() -> None:
    async def converse(client: anthropic.AsyncAnthropic, number: int) -> str:
        go = user(f"go {number}")
        first = await streamed(client, **asking(go, tools=TOOLS))
        second = await streamed(client, **asking(go, back(first), results(first), tools=TOOLS))
        return str(second.content[0].text)

    async with served() as (model, client):
        model.answers(thinks("Hm.").calls("lookup", {"q": "a"}).calls("lookup", {"q": "b"}), says("Done."), by="turn")
        answers = await asyncio.gather(*(converse(client, number) for number in range(50)))
        assert answers == ["Done."] * 50
        assert {len(requests) for requests in model.conversations().values()} == {2}
        assert len(model.conversations()) == 50
        model.validate_transcript([user("go"), {"role": "assistant", "content": "Done."}])


async def test_a_function_may_choose() -> None:
    def choose(request: Request) -> Script | None:
        return says(request.user_text.upper()) if "shout" in request.user_text else None

    async with served() as (model, client):
        model.answers_with(choose)
        model.answers(says("quiet"))
        assert (await streamed(client, **asking(user("shout")))).content[0].text == "SHOUT"
        assert (await streamed(client, **asking(user("hush")))).content[0].text == "quiet"


async def test_plans_are_for_what_they_match() -> None:
    async with served() as (model, client):
        model.answers(says("one"), contains="first")
        model.answers(says("two"), system="helper")
        model.answers(says("three"), model="other")
        assert (await streamed(client, **asking(user("the first")))).content[0].text == "one"
        assert (await streamed(client, **asking(system="a helper"))).content[0].text == "two"
        assert (await streamed(client, **asking() | {"model": "other"})).content[0].text == "three"


async def test_it_records_what_arrived() -> None:
    async with served() as (model, client):
        model.answers(says("a"))
        await streamed(client, **asking(system="s", metadata={"user_id": "u"}))
        request = await model.request(1)
        assert (request.path, request.model, request.system) == ("/v1/messages", "claude-sonnet-5-5", "s")
        assert request.body["metadata"] == {"user_id": "u"}
        assert request.headers["anthropic-version"] == "2026-10-21"
        assert not any("sk-test" in value for value in request.headers.values())
        assert request.key_digest
        assert (await request.ended(), request.client_closed, request.status) == (Ending.COMPLETE, False, 200)
        assert request.events_sent == 6
        assert request.usage == {
            "input_tokens": 10,
            "output_tokens": 5,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 0,
        }


async def test_it_counts_tokens_and_that_is_no_call() -> None:
    async with served() as (model, client):
        short = await client.messages.count_tokens(model="m", messages=[user("go")])
        long = await client.messages.count_tokens(model="m", messages=[user("go" * 1000)], tools=TOOLS)
        assert 0 < short.input_tokens < long.input_tokens
        assert (len(model.requests), model.calls) == (2, [])


async def test_a_connection_serves_one_request_after_another() -> None:
    async with served() as (model, client):
        model.answers(says("a"), refuses(500), says("b"), by="queue")
        await streamed(client, **asking())
        with pytest.raises(anthropic.InternalServerError):
            await streamed(client, **asking())
        await client.messages.create(**asking())
        assert len(model._connections) == 1


async def test_a_reader_that_begins_late_gets_all_of_it() -> None:
    words = "x" * 1000
    headers = {"x-api-key": "k", "anthropic-version": "2026-10-21"}
    async with Standin() as model, httpx2.AsyncClient() as http:
        model.answers(says(*[words] * 20_000))  # more than the sockets' buffers hold
        async with http.stream(
            "POST", f"{model.base_url}/v1/messages", json=asking(stream=True), headers=headers
        ) as response:
            assert model.requests[0].ending is None
            body = await response.aread()
        assert body.count(words.encode()) == 20_000
        assert (await model.requests[0].ended(), model.requests[0].bytes_sent) == (Ending.COMPLETE, len(body))


async def test_what_is_no_http_is_hung_up_on() -> None:
    async with Standin() as model:
        reader, writer = await asyncio.open_connection(*model.base_url.removeprefix("http://").split(":"))
        writer.write(b"hello\r\n\r\n")
        assert await reader.read() == b""
        writer.close()
        await writer.wait_closed()


async def test_a_reset_forgets_plans_gates_and_requests() -> None:
    async with served(expects_refusals=True) as (model, client), httpx2.AsyncClient() as http:
        model.answers(says("a"), says("b"))
        await client.messages.create(**asking())
        model.gate("g").release()
        (await http.post(f"{model.base_url}/_standin/reset")).raise_for_status()
        assert (model.requests, model.gate("g").is_open) == ([], False)
        with pytest.raises(anthropic.BadRequestError, match="no script is left"):
            await client.messages.create(**asking())


# Refusals ----------------------------------------------------------------------------------------------------------


async def test_an_invalid_transcript_is_a_400_in_the_apis_form() -> None:
    async with served(expects_refusals=True) as (model, client):
        with pytest.raises(anthropic.BadRequestError) as error:
            await client.messages.create(**asking(user("")))
        assert error.value.body == {
            "type": "error",
            "error": {
                "type": "invalid_request_error",
                "message": "messages.0: all messages must have non-empty content except for the optional final "
                "assistant message",
            },
            "request_id": error.value.request_id,
        }
        assert model.requests[0].refusal in model.refusals
        with pytest.raises(InvalidTranscript):
            model.validate_transcript([user("")])


async def refused() -> None:
    async with served() as (_, client):
        with pytest.raises(anthropic.BadRequestError):
            await client.messages.create(**asking(user("")))


async def unscripted() -> None:
    async with served() as (_, client):
        with pytest.raises(anthropic.BadRequestError, match="no script is left"):
            await client.messages.create(**asking())


async def unplayable() -> None:
    async with served() as (model, client):
        model.answers(says("a").at_byte(100_000, hold("g")))
        with pytest.raises(anthropic.APIConnectionError):
            await streamed(client, **asking())


@pytest.mark.parametrize(
    ("test", "why"),
    [
        (refused, "request 1 was refused: messages.0: all messages must have non-empty content"),
        (unscripted, "request 1 found no script"),
        (unplayable, "there is no byte 100000"),
    ],
)
async def test_a_test_that_passes_over_a_refusal_fails(test: Callable[[], Awaitable[None]], why: str) -> None:
    with pytest.raises(Unexpected, match=re.escape(why)):
        await test()


async def test_leniently_two_user_turns_are_one() -> None:
    async with served(strict=False) as (model, client):
        model.answers(says("a"))
        await streamed(client, **asking(user("one"), user("two")))


async def test_a_bad_key() -> None:
    async with served(bad_keys={"sk-bad"}) as (model, _), client_of(model, key="sk-bad") as client:
        with pytest.raises(anthropic.AuthenticationError, match="invalid x-api-key"):
            await client.messages.create(**asking())


@pytest.mark.parametrize(
    ("headers", "status", "message"),
    [
        ({"anthropic-version": "2026-10-21"}, 401, "x-api-key header is required"),
        ({"x-api-key": "k"}, 400, "anthropic-version: header is required"),
        ({"x-api-key": "k", "anthropic-version": "2020"}, 400, "anthropic-version: '2020' is not a valid version"),
    ],
)
async def test_the_headers_it_needs(headers: dict[str, str], status: int, message: str) -> None:
    async with Standin() as model, httpx2.AsyncClient() as http:
        response = await http.post(f"{model.base_url}/v1/messages", json=asking(), headers=headers)
        assert (response.status_code, response.json()["error"]["message"]) == (status, message)
        assert response.json()["request_id"] == response.headers["request-id"]


@pytest.mark.parametrize("header", [{"x-api-key": "k"}, {"authorization": "Bearer k"}])
async def test_a_key_comes_in_either_header(header: dict[str, str]) -> None:
    async with Standin() as model, httpx2.AsyncClient() as http:
        model.answers(says("a"))
        headers = {"anthropic-version": "2023-06-01", **header}
        response = await http.post(f"{model.base_url}/v1/messages", json=asking(temperature=0.5), headers=headers)
        assert response.status_code == 200


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "kind"),
    [
        ("POST", "/v1/complete", b"{}", 404, "not_found_error"),
        ("GET", "/v1/messages", b"", 405, "invalid_request_error"),
        ("POST", "/v1/messages", b'{"model": NaN}', 400, "invalid_request_error"),
        ("POST", "/v1/messages", b" " * (32 * 1024 * 1024 + 1), 413, "request_too_large"),
    ],
)
async def test_what_is_no_request(method: str, path: str, body: bytes, status: int, kind: str) -> None:
    headers = {"x-api-key": "k", "anthropic-version": "2026-10-21"}
    async with Standin(expects_refusals=True) as model, httpx2.AsyncClient() as http:
        response = await http.request(method, model.base_url + path, content=body, headers=headers)
        assert (response.status_code, response.json()["error"]["type"]) == (status, kind)


async def test_server_calls_beside_a_clients_end_in_a_later_answer() -> None:
    async with served() as (model, client):
        model.answers(searches().calls("lookup", {"q": "a"}))
        first = await streamed(client, **asking(tools=TOOLS))
        search, _ = first.content
        model.answers(silent.finds(call_id=search.id).says("Both."), calls("lookup", {"q": "b"}))
        turns = [user("go"), back(first), results(first)]
        second = await streamed(client, **asking(*turns, tools=TOOLS))
        await streamed(client, **asking(*turns, back(second), user("and?"), tools=TOOLS))
