"""The provider `anthropic` through the real SDK: against the strict stand-in, and against bytes as they are."""

import asyncio
import gzip
import logging
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from typing import Any

import pytest
from tests.standin import (
    Answer,
    CutHow,
    Ending,
    Standin,
    cut,
    event,
    fail,
    finds,
    hold,
    ping_until,
    raw,
    redacts,
    refuses,
    says,
    thinks,
)

from runyard.errors import ModelNotConfigured, ProviderError, ProviderUnavailable
from runyard_workers.providers.demo import DemoProvider
from runyard_workers.providers.model import (
    Activity,
    ModelEvent,
    ModelRequest,
    Provider,
    TextDelta,
    ThinkingDelta,
    Turn,
    UsageSoFar,
)
from runyard_workers.providers.registry import Providers

pytestmark = pytest.mark.anyio

PROMPT = "what nobody may log"
KEY = "sk-ant-test-5f0e1d"
GUARD_S = 30
LOOKUP = {"name": "lookup", "description": "Look it up.", "input_schema": {"type": "object", "properties": {}}}


@asynccontextmanager
async def provider(url: str) -> AsyncIterator[Provider]:
    providers = Providers(environ={"ANTHROPIC_API_KEY": KEY, "ANTHROPIC_BASE_URL": url})
    try:
        yield providers.resolve("claude-sonnet-5-5")[0]
    finally:
        await providers.aclose()


def request(*messages: dict[str, Any], **fields: Any) -> ModelRequest:
    defaults: dict[str, Any] = {"model": "claude-sonnet-5-5", "system": None, "tools": [LOOKUP], "max_tokens": 100}
    return ModelRequest(messages=list(messages) or [said("hello")], **(defaults | fields))


def said(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


def answered(turn: Turn) -> dict[str, Any]:
    return {"role": "assistant", "content": turn.content}


def results_of(turn: Turn) -> dict[str, Any]:
    ids = [block["id"] for block in turn.content if block["type"] == "tool_use"]
    return said([{"type": "tool_result", "tool_use_id": one, "content": "found"} for one in ids])


async def read(model: Provider, asked: ModelRequest | None = None) -> list[ModelEvent]:
    async with asyncio.timeout(GUARD_S), aclosing(model.stream(asked or request())) as events:
        return [one async for one in events]


async def turn_of(model: Provider, asked: ModelRequest | None = None) -> Turn:
    last = (await read(model, asked))[-1]
    assert isinstance(last, Turn)
    return last


async def failure_of(model: Provider, asked: ModelRequest | None = None) -> ProviderError:
    with pytest.raises(ProviderError) as failure:
        await read(model, asked)
    return failure.value


# Requests -----------------------------------------------------------------------------------------------------------


async def test_the_request_holds_what_was_asked_and_no_more() -> None:
    async with Standin() as standin, provider(standin.base_url) as model:
        standin.answers(says("a"), says("b"))
        await read(model, request(tools=[]))
        options = {"stop_sequences": ["END"], "metadata": {"user_id": "u"}}
        await read(model, request(system="Be brief.", options=options))
        bare, full = standin.calls
        assert bare.body == {
            "model": "claude-sonnet-5-5",
            "messages": [said("hello")],
            "max_tokens": 100,
            "stream": True,
        }
        assert full.body == bare.body | {"system": "Be brief.", "tools": [LOOKUP]} | options
        assert bare.key_digest is not None


@pytest.mark.parametrize("key", ["model", "messages", "system", "tools", "max_tokens", "stream"])
def test_options_that_the_loop_decides_are_refused(key: str) -> None:
    with pytest.raises(ModelNotConfigured, match=key):
        request(options={key: 1})


# Streams ------------------------------------------------------------------------------------------------------------

EVERYTHING = (
    thinks("I must ", "look…", signature=("c2ln", "bmF0dXJl"))
    .redacts()
    .says("Let me ", "check 👩‍👩‍👧.\r\n")
    .calls("lookup", {"q": "pylon ✓", "n": [1, None]})
    .calls("lookup", deltas=("",))
    .uses({"output_tokens": 20, "input_tokens": None}, {"output_tokens": 47}, start={"input_tokens": 27})
)


@pytest.mark.parametrize("size", [None, 1, 7])
async def test_a_turn_arrives_whole_whatever_its_chunks(size: int | None) -> None:
    async with Standin() as standin, provider(standin.base_url) as model:
        standin.answers(EVERYTHING.in_pieces(size) if size else EVERYTHING)
        *shown, turn = await read(model)
        assert isinstance(turn, Turn)
        assert [type(block["type"]) and block["type"] for block in turn.content] == [
            "thinking",
            "redacted_thinking",
            "text",
            "tool_use",
            "tool_use",
        ]
        assert turn.content[0]["signature"] == "c2lnbmF0dXJl"
        assert [block["input"] for block in turn.content[3:]] == [{"q": "pylon ✓", "n": [1, None]}, {}]
        assert [one.text for one in shown if isinstance(one, TextDelta)] == ["Let me ", "check 👩‍👩‍👧.\r\n"]
        assert [one.text for one in shown if isinstance(one, ThinkingDelta)] == ["I must ", "look…"]
        assert (turn.stop_reason, turn.model, turn.broken_inputs) == ("tool_use", "claude-sonnet-5-5", {})
        assert (turn.usage.input_tokens, turn.usage.output_tokens) == (27, 47)


async def test_each_delta_is_shown_as_it_comes() -> None:
    words = [f"word{n} " for n in range(20)]
    async with Standin() as standin, provider(standin.base_url) as model:
        standin.answers(says(*words).each_delta("next"))
        heard = []
        async with asyncio.timeout(GUARD_S), aclosing(model.stream(request())) as events:
            await standin_ready(standin, events)
            async for one in events:
                if isinstance(one, TextDelta):
                    heard.append(one.text)
                    standin.gate("next").advance()
        assert heard == words


async def standin_ready(standin: Standin, events: AsyncIterator[ModelEvent]) -> None:
    await anext(events)
    standin.gate("next").advance()


async def test_pings_show_life_and_nothing_else() -> None:
    async with Standin() as standin, provider(standin.base_url) as model:
        standin.answers(says("a", ping_until("more"), "b").then(event("from_the_future", {"type": "from_the_future"})))
        pings = 0
        async with asyncio.timeout(GUARD_S), aclosing(model.stream(request())) as events:
            async for one in events:
                pings += one == Activity(ping=True)
                if pings == 3:
                    standin.gate("more").release()
        assert isinstance(one, Turn)
        assert one.content == [{"type": "text", "text": "ab"}]


@pytest.mark.parametrize(
    "thinking",
    [
        thinks("first ", "this"),
        thinks(),
        redacts(),
        thinks("split", signature=("AAAA", "BBBB")),
        thinks("one").redacts().says("", "").thinks("two"),
    ],
)
async def test_thinking_comes_back_exactly_as_it_was(thinking: Answer) -> None:
    async with Standin() as standin, provider(standin.base_url) as model:
        standin.answers(thinking.calls("lookup", {"q": "x"}), says("done"))
        turn = await turn_of(model)
        turn.content[:] = [block for block in turn.content if block.get("text") != ""]
        done = await turn_of(model, request(said("hello"), answered(turn), results_of(turn)))
        assert done.content == [{"type": "text", "text": "done"}]


async def test_a_paused_turn_goes_back_as_it_is() -> None:
    async with Standin() as standin, provider(standin.base_url) as model:
        tool = {"type": "web_search_20250305", "name": "web_search"}
        standin.answers(says("Searching.").searches("pylon").stops("pause_turn"), finds().says("Found."))
        paused = await turn_of(model, request(tools=[tool]))
        assert paused.content[1]["input"] == {"query": "pylon"}
        ended = await turn_of(model, request(said("hello"), answered(paused), tools=[tool]))
        assert ended.content[-1] == {"type": "text", "text": "Found."}
        assert (paused.usage + ended.usage).to_dict() == standin.usage()


async def test_a_run_of_the_demo_model_goes_on_with_a_real_one() -> None:
    async with Standin() as standin, provider(standin.base_url) as model:
        standin.answers(says("done"))
        begun = await turn_of(DemoProvider(delay_ms=0))
        await read(model, request(said("hello"), answered(begun), results_of(begun)))
        assert [block["type"] for block in standin.calls[0].messages[1]["content"]] == ["text", "tool_use"]


async def test_many_streams_at_once() -> None:
    """More than the 100 connections that the HTTP clients open by themselves: only the worker's slots limit them."""
    many = 120
    async with Standin() as standin, provider(standin.base_url) as model:
        standin.answers(*(says("a", hold("all"), "b") for _ in range(many)))
        reading = [asyncio.create_task(turn_of(model)) for _ in range(many)]
        await standin.gate("all").reached(many)
        standin.gate("all").release()
        turns = await asyncio.gather(*reading)
        assert all(turn.content == [{"type": "text", "text": "ab"}] for turn in turns)


# Cancelling ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("held", [says("a", hold("g"), "b"), says("a").before("head", hold("g"))])
async def test_cancelling_closes_the_providers_connection(held: Answer) -> None:
    async with Standin() as standin, provider(standin.base_url) as model:
        standin.answers(held)
        reading = asyncio.create_task(read(model))
        await standin.gate("g").reached()
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        assert await (await standin.request(1)).ended() is Ending.CLIENT_CLOSED


async def test_breaking_off_closes_the_providers_connection() -> None:
    async with Standin() as standin, provider(standin.base_url) as model:
        standin.answers(says("a", hold("g"), "b"))
        async with aclosing(model.stream(request())) as events:
            async for one in events:
                if isinstance(one, TextDelta):
                    break
        assert await (await standin.request(1)).ended() is Ending.CLIENT_CLOSED


async def test_closing_the_provider_fails_its_open_streams() -> None:
    async with Standin() as standin:
        standin.answers(says("a", hold("g"), "b"))
        async with provider(standin.base_url) as model:
            events = model.stream(request())
            assert isinstance(await anext(events), UsageSoFar)
        with pytest.raises(ProviderUnavailable, match="ended early"):
            async with asyncio.timeout(GUARD_S):
                [_ async for _ in events]
        assert await (await standin.request(1)).ended() is Ending.CLIENT_CLOSED


# Failures -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [408, 409, 429, 500, 503, 529])
async def test_a_passing_refusal_is_told_as_one_and_left_to_the_loop(status: int) -> None:
    async with Standin() as standin, provider(standin.base_url) as model:
        standin.answers(refuses(status, headers={"retry-after": "7"}))
        error = await failure_of(model)
        assert isinstance(error, ProviderUnavailable)
        assert (error.fields["status"], error.fields["retry_after_s"]) == (status, 7.0)
        assert str(status) in error.message
        assert len(standin.calls) == 1


@pytest.mark.parametrize(("status", "word", "passes"), [(529, "false", False), (400, "true", True)])
async def test_the_providers_own_word_goes_before_its_status(status: int, word: str, passes: bool) -> None:
    async with Standin() as standin, provider(standin.base_url) as model:
        standin.answers(refuses(status, headers={"x-should-retry": word}))
        assert (await failure_of(model)).retryable is passes


@pytest.mark.parametrize(
    ("status", "said_so", "told"),
    [
        (400, "messages.0: bad\0", "messages.0: bad�"),
        (400, "max_tokens: too many", "max_tokens: too many.*agent's model.*'claude-sonnet-5-5'.*RUNYARD_MODEL"),
        (405, "not allowed", "405: not allowed.*ANTHROPIC_BASE_URL"),
        (401, f"invalid key {KEY}", "ANTHROPIC_API_KEY"),
        (402, "billing", "billing"),
        (403, f"not with {KEY}", "ANTHROPIC_API_KEY"),
        (404, "model: claude-sonnet-5-5", "'claude-sonnet-5-5'.*RUNYARD_MODEL"),
        (413, "too large", "413: too large"),
        (400, f"you sent {KEY}", r"you sent \[redacted\]"),
        (400, "x" * 5000, r"\[truncated\]"),
    ],
)
async def test_a_lasting_refusal_is_told_at_once(
    status: int, said_so: str, told: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with Standin() as standin, provider(standin.base_url) as model:
        standin.answers(refuses(status, message=said_so))
        with pytest.raises(ProviderError, match=told) as failure:
            await read(model, request(said(PROMPT)))
        error = failure.value
        assert (error.retryable, error.fields["status"], len(standin.calls)) == (False, status, 1)
        assert len(error.message) < 1200
        written = "".join(traceback.format_exception(error)) + caplog.text
        assert KEY not in written
        assert PROMPT not in written


@pytest.mark.parametrize(
    "broken",
    [
        says("never").before(1, fail()),
        says(*"twenty deltas and no more", fail()),
        says("a").calls("lookup", deltas=('{"q": "ha', fail())),
    ],
)
async def test_an_error_event_inside_a_200(broken: Answer) -> None:
    async with Standin() as standin, provider(standin.base_url) as model:
        standin.answers(broken)
        error = await failure_of(model)
        assert isinstance(error, ProviderUnavailable)
        assert error.fields == {"status": 200, "type": "overloaded_error"}
        assert "Overloaded" in error.message
        assert len(standin.calls) == 1


async def test_a_lasting_error_event_inside_a_200() -> None:
    async with Standin() as standin, provider(standin.base_url) as model:
        standin.answers(says("a", fail("invalid_request_error", "no")))
        assert not (await failure_of(model)).retryable


@pytest.mark.parametrize("how", CutHow)
@pytest.mark.parametrize("place", ["delta", "block", "call", "head", "end"])
async def test_a_cut_stream_is_no_end(how: CutHow, place: str) -> None:
    cuts = {
        "delta": says("a", cut(how), "b"),
        "block": says("a").then(cut(how)),
        "call": says("a").calls("lookup", deltas=('{"q": "ha', cut(how))),
        "head": says("a").before(0, cut(how)),
        "end": says("a").before("message_stop", cut(how)),
    }
    async with Standin() as standin, provider(standin.base_url) as model:
        standin.answers(cuts[place])
        error = await failure_of(model)
        assert isinstance(error, ProviderUnavailable)
        assert "ended early" in error.message


async def test_bytes_that_are_no_events_are_a_failure() -> None:
    async with Standin() as standin, provider(standin.base_url) as model:
        standin.answers(says("a", raw(b"event: content_block_delta\ndata: {oops}\n\n"), "b"))
        assert "malformed" in (await failure_of(model)).message


# Bytes as they are --------------------------------------------------------------------------------------------------

BODY = (
    b'event: message_start\r\ndata: {"type":"message_start","message":{"model":"m","usage":{"input_tokens":1}}}\r\n\r\n'
    b'event: content_block_start\rdata: {"type":"content_block_start","index":0,'
    b'"content_block":{"type":"text","text":""}}\r\r'
    b'event: content_block_delta\ndata: {"type":"content_block_delta","index":0,'
    b'"delta":{"type":"text_delta","text":"h\xc3\xa9"}}\n\n'
    b'event: content_block_stop\ndata: {"type":"content_block_stop","index":0}\n\n'
    b'event: message_delta\ndata: {"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{}}\n\n'
    b'event: message_stop\ndata: {"type":"message_stop"}\n\n'
)
Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def listening(handler: Handler) -> AsyncIterator[str]:
    server = await asyncio.start_server(handler, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()


def plays(body: bytes, *, status: str = "200 OK", headers: str = "", then: asyncio.Event | None = None) -> Handler:
    """Answers each connection's first request, then closes it, at once or after an event."""

    async def play(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(f"HTTP/1.1 {status}\r\nconnection: close\r\n{headers}\r\n".encode() + body)
        if then is not None:
            await then.wait()
        writer.close()

    return play


async def read_request(reader: asyncio.StreamReader) -> None:
    head = await reader.readuntil(b"\r\n\r\n")
    await reader.readexactly(int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0]))


async def test_a_compressed_stream() -> None:
    async with (
        listening(plays(gzip.compress(BODY), headers="content-encoding: gzip\r\n")) as url,
        provider(url) as model,
    ):
        assert (await turn_of(model)).content == [{"type": "text", "text": "hé"}]


async def test_a_connection_serves_one_call_after_another() -> None:
    connections = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        for _ in range(3):
            await read_request(reader)
            writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
            writer.write(b"%x\r\n%b\r\n" % (len(BODY), BODY))
            await writer.drain()
            await asyncio.sleep(0)  # the end of the body comes in a packet of its own
            writer.write(b"0\r\n\r\n")
        writer.close()

    async with listening(serve) as url, provider(url) as model:
        for _ in range(3):
            await read(model)
        assert connections == 1


async def test_a_body_without_an_end_holds_no_turn_back() -> None:
    over = asyncio.Event()
    async with listening(plays(BODY, then=over)) as url, provider(url) as model:
        assert (await turn_of(model)).stop_reason == "end_turn"
        over.set()


async def test_a_body_whose_framing_breaks_is_no_end() -> None:
    """The client says nothing to a reader that waits as it breaks: that one is left to the loop's watch of silence."""
    broken, begun = asyncio.Event(), asyncio.Event()

    async def break_off(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        half = BODY[: len(BODY) // 2]
        writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n%x\r\n%b\r\n" % (len(half), half))
        await begun.wait()
        writer.write(b"no length\r\n" + BODY)
        await reader.read()  # the client has closed its end
        broken.set()
        writer.close()

    async with listening(break_off) as url, provider(url) as model, asyncio.timeout(GUARD_S):
        events = model.stream(request())
        await anext(events)
        begun.set()
        await broken.wait()
        with pytest.raises(ProviderUnavailable, match="ended early"):
            [_ async for _ in events]


async def test_an_answer_that_is_no_http() -> None:
    async with listening(plays(b"", status="what?")) as url, provider(url) as model:
        assert isinstance(await failure_of(model), ProviderUnavailable)


async def test_a_connection_that_closes_before_it_answers() -> None:
    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.close()

    async with listening(hang_up) as url, provider(url) as model:
        assert isinstance(await failure_of(model), ProviderUnavailable)


async def test_a_proxy_of_the_environment_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bytes] = []

    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readuntil(b"\r\n"))
        await plays(BODY)(reader, writer)

    async with listening(forward) as url:
        monkeypatch.setenv("HTTP_PROXY", url)
        async with provider("http://provider.example") as model:
            assert (await turn_of(model)).stop_reason == "end_turn"
    assert asked == [b"POST http://provider.example/v1/messages HTTP/1.1\r\n"]


async def test_a_proxy_that_refuses_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\ncontent-length: 0\r\n\r\n")
        writer.close()

    async with listening(refuse) as url:
        monkeypatch.setenv("HTTPS_PROXY", url)
        async with provider("https://provider.example") as model:
            error = await failure_of(model)
    assert isinstance(error, ProviderUnavailable)
    assert "ANTHROPIC_BASE_URL and the network" in error.message


async def test_a_refusal_that_is_not_the_apis() -> None:
    async with listening(plays(b"<html>no</html>", status="418 I'm a teapot")) as url, provider(url) as model:
        assert (await failure_of(model)).message == "the provider answered 418: I'm a teapot"


@pytest.mark.parametrize("media_type", ["text/html; charset=utf-8", "application/json"])
async def test_an_answer_that_is_no_stream(media_type: str) -> None:
    """A page of whoever has the address, or a server that cannot stream: asked again, they would say the same."""
    page = plays(b"<html>Welcome!</html>", headers=f"content-type: {media_type}\r\n")
    async with listening(page) as url, provider(url) as model:
        error = await failure_of(model)
        assert (error.retryable, error.fields["type"]) == (False, "no_stream")
        assert "ANTHROPIC_BASE_URL" in error.message
        assert "Welcome" not in error.message


async def test_a_provider_that_cannot_be_reached() -> None:
    async with listening(plays(b"")) as url:
        pass
    async with provider(url) as model:
        error = await failure_of(model)
        assert isinstance(error, ProviderUnavailable)
        assert "ANTHROPIC_BASE_URL" in error.message
