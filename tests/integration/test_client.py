"""The Python client against a real gateway, over links that are cut, answers that are lost and frames that are gone."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

import anyio
import httpx2
import pytest
from tests.clients.tokens import token
from tests.integration.fixtures import on_sqlite
from tests.integration.processes import eventually
from tests.integration.stack import Stack
from tests.relay import Relay, relay_before
from tests.standin import Gate, fail, hold, says

from runyard.client import Client, Ended, Queued, Rewind, Stream, StreamCut, SyncClient, Text, ToolEnd
from runyard.client import client as client_module
from runyard.client.patience import Patience
from runyard.client.transport import Transport
from runyard.errors import AgentNotFound, RunNotFound, StreamGone, StreamNotFound, Unauthenticated

pytestmark = [pytest.mark.anyio, on_sqlite]

GUARD_S = 30.0
HASTE_S = 0.02


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """The waits are those of `tests/unit/test_client_patience.py`; here nobody waits for them."""

    async def sleep(_delay_s: float) -> None:
        await asyncio.sleep(HASTE_S)  # others need a moment to come back

    monkeypatch.setattr(Transport, "patience", lambda transport: Patience(transport.patience_s, sleep=sleep))


@pytest.fixture
def relay(stack: Stack) -> Iterator[Relay]:
    with relay_before(f"http://{stack.gateway.host}:{stack.gateway.port}") as relay:
        yield relay


@pytest.fixture
async def client(relay: Relay, unique: str) -> AsyncIterator[Client]:
    """As a user of its own, through the relay."""
    async with asyncio.timeout(GUARD_S), Client(relay.url, token=token(unique)) as client:
        yield client


async def transcript(client: Client, run_id: str | None) -> str:
    assert run_id is not None
    return "".join([row.text async for row in client.messages(run_id) if row.role == "assistant"])


async def until(stream: Stream, text: str) -> None:
    while stream.text != text:
        frame = await anext(stream)
        assert text.startswith(stream.text), (stream.text, frame)


async def trim(stack: Stack, stream_id: str, *, first: int) -> None:
    """As if the frames before this one had outgrown the stream's budget, once it is there."""
    key = f"{stack.backing.prefix}:stream:{stream_id}"
    await eventually(lambda: int(stack.redis.hget(f"{key}:meta", "last") or 0) >= first, f"frame {first}")
    assert stack.redis.xtrim(key, minid=f"{first}-0", approximate=False)
    stack.redis.hset(f"{key}:meta", "first", first)


# Links that are cut ------------------------------------------------------------------------------------------------


async def test_links_are_cut_in_the_middle_of_an_answer(
    stack: Stack, relay: Relay, client: Client, unique: str
) -> None:
    words = [f"w\u00f6rd {number}\r\n" for number in range(12)]
    stack.standin.answers(says(*words[:6]).calls("narrate", {"parts": ["a", "b"]}), says(*words[6:]).each_delta(unique))
    gate = stack.standin.gate(unique)
    frames = []
    async with client.stream("clerk", input="go") as stream:
        async for frame in stream:
            frames.append(frame)
            gate.advance()
            match len(frames):
                case 3 | 12:
                    relay.cut()
                case 8:
                    relay.refuse()
                    asyncio.get_running_loop().call_later(5 * HASTE_S, relay.recover)
    numbered = [frame.seq for frame in frames if frame.seq is not None]
    assert numbered == list(range(1, len(numbered) + 1))
    assert stream.text == "".join(words) == await transcript(client, stream.run_id)
    assert stream.result.status == "completed"
    assert [type(frame) for frame in frames].count(Ended) == 1
    assert [frame.name for frame in frames if isinstance(frame, ToolEnd)] == ["narrate"]


async def test_a_link_that_falls_silent_is_taken_for_dead(stack: Stack, relay: Relay, unique: str) -> None:
    stack.standin.answers(says("one ", hold(unique), "two"))
    client = Client(relay.url, token=token(unique), silence_s=0.5)
    async with asyncio.timeout(GUARD_S), client, client.stream("talker", input="go") as stream:
        await until(stream, "one ")
        relay.fall_silent()
        stack.standin.gate(unique).release()
        asyncio.get_running_loop().call_later(1, relay.recover)
        assert (await stream.read()).text == stream.text == "one two"


async def test_a_gateway_that_is_killed_is_gone_on_from_at_another(stack: Stack, unique: str) -> None:
    stack.standin.answers(says("one ", hold(unique), "two"))
    async with stack.starting_gateway() as mortal:
        with relay_before(f"http://{mortal.host}:{mortal.port}") as relay:
            client = Client(relay.url, token=token(unique))
            async with asyncio.timeout(GUARD_S), client, client.stream("talker", input="go") as stream:
                await until(stream, "one ")
                relay.lead_to(f"http://{stack.gateway.host}:{stack.gateway.port}")
                mortal.process.kill()
                stack.standin.gate(unique).release()
                assert (await stream.read()).text == stream.text == "one two"


async def test_whoever_does_not_resume_goes_on_by_hand(stack: Stack, relay: Relay, client: Client, unique: str) -> None:
    stack.standin.answers(says("one ", hold(unique), "two"))
    async with client.stream("talker", input="go", resume=False) as stream:
        await until(stream, "one ")
        relay.cut()
        with pytest.raises(StreamCut) as cut:
            await stream.read()
    stack.standin.gate(unique).release()
    again = client.resume_stream(cut.value.fields["streamId"], since=cut.value.fields["cursor"])
    assert (await again.read()).status == "completed"
    assert again.text == "two"


class LosesAnswers(httpx2.AsyncHTTPTransport):
    """The gateway has answered, the caller never hears it."""

    def __init__(self, times: int) -> None:
        super().__init__()
        self.left = times

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        response = await super().handle_async_request(request)
        if self.left:
            self.left -= 1
            await response.aclose()
            raise httpx2.ReadError("the answer was lost", request=request)
        return response


@pytest.mark.parametrize(
    ("call", "rows"),
    [
        (lambda client: client.run("talker", "go"), 2),
        (lambda client: client.stream("talker", input="go").read(), 2),
        (lambda client: client.start("talker", "go"), 2),
        (lambda client: client.function("add", {"first": 1, "second": 2}), 3),
    ],
    ids=["run", "stream", "start", "function"],
)
async def test_a_call_whose_answer_was_lost_starts_one_run(
    stack: Stack, unique: str, call: Callable[[Client], Awaitable[object]], rows: int
) -> None:
    stack.standin.answers(says("hello"))
    async with httpx2.AsyncClient(transport=LosesAnswers(2)) as http:
        url = f"http://{stack.gateway.host}:{stack.gateway.port}"
        async with asyncio.timeout(GUARD_S), Client(url, token=token(unique), http=http) as client:
            await call(client)
            (run,) = [run async for run in client.runs()]
            assert run.invocation_id is not None
            assert (await client.invocation(run.invocation_id, wait_s=30)).status == "completed"
            assert (await client.get_run(run.id)).message_count == rows


# What is withdrawn -------------------------------------------------------------------------------------------------


async def test_text_that_is_withdrawn_across_a_cut_is_gone(
    stack: Stack, relay: Relay, client: Client, unique: str
) -> None:
    stack.standin.answers(
        says("Kept. ").calls("look_up", {"order": "1"}), says("Wrong ", hold(unique), fail()), says("Right.")
    )
    async with client.stream("clerk", input="go") as stream:
        await until(stream, "Kept. Wrong ")
        relay.cut()
        stack.standin.gate(unique).release()
        frames = [frame async for frame in stream]
    assert [frame.length for frame in frames if isinstance(frame, Rewind)] == [len("Kept. ")]
    assert stream.text == "Kept. Right." == await transcript(client, stream.run_id)


async def test_frames_that_redis_lost_are_made_good(stack: Stack, relay: Relay, client: Client, unique: str) -> None:
    stack.standin.answers(says("Kept. ").calls("hold", {"gate": unique}), says("Lost ", hold(unique), "and found."))
    async with client.stream("clerk", input="go") as stream:
        await until(stream, "Kept. ")
        stack.open_gate(unique)
        await until(stream, "Kept. Lost ")
        relay.cut()
        stack.drop_frames(stream.stream_id)
        stack.standin.gate(unique).release()
        await stream.read()
    assert stream.text == "Kept. Lost and found." == await transcript(client, stream.run_id)
    assert (stream.cursor or 0) > 1_000_000


async def test_frames_that_are_no_longer_kept_are_begun_anew(
    stack: Stack, relay: Relay, client: Client, unique: str
) -> None:
    stack.standin.answers(says("one ", "two ").calls("hold", {"gate": unique}), says("three"))
    async with client.stream("clerk", input="go") as stream:
        await until(stream, "one ")
        await stack.gate_reached(unique)
        relay.cut()
        await trim(stack, stream.stream_id, first=6)
        with pytest.raises(StreamGone) as gone:
            await client.resume_stream(stream.stream_id, since=1, resume=False).read()
        assert gone.value.fields["oldestSeq"] == 6
        stack.open_gate(unique)
        await stream.read()
        late = client.resume_stream(stream.stream_id, since=2)
        frames = [frame async for frame in late]
    assert stream.text == late.text == "one two three" == await transcript(client, stream.run_id)
    assert isinstance(frames[0], Rewind)


async def test_a_stream_that_has_ended_is_read_from_anywhere(stack: Stack, client: Client) -> None:
    stack.standin.answers(says("one ", "two"))
    first = client.stream("talker", input="go")
    result = await first.read()
    whole = client.resume_stream(result.stream_id)
    assert (await whole.read(), whole.text) == (result, "one two")
    for since in (first.cursor, 10**9):
        tip = client.resume_stream(result.stream_id, since=since)
        assert [type(frame) for frame in [frame async for frame in tip]] == [Ended]
        assert tip.result == result
    stack.drop_frames(result.stream_id)
    from_rows = client.resume_stream(result.stream_id, since=3)
    assert (await from_rows.read()).text == from_rows.text == "one two"


# Calls -----------------------------------------------------------------------------------------------------------


async def test_a_run_is_waited_for_beyond_what_one_answer_waits(
    stack: Stack, relay: Relay, client: Client, unique: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "WAIT_S", 1)
    stack.standin.answers(says(hold(unique), "patience"))
    running = asyncio.create_task(client.run("talker", "go"))
    await eventually(lambda: relay.sent.count(b"GET /v1/invocations/") >= 2, "second wait")
    relay.cut()
    stack.standin.gate(unique).release()
    assert (await running).text == "patience"


async def test_a_run_is_steered_listed_and_cancelled(stack: Stack, client: Client, unique: str) -> None:
    stack.standin.answers(says("first "), says("second ", hold(unique), "never"))
    run = await client.run("talker", "go", session_id="s", title="T", metadata={"customer": unique})
    async with client.stream("talker", input="more", session_id="s") as stream:
        await until(stream, "second ")
        steered = await client.steer(run.run_id, "and more")
        assert (steered.queued, steered.invocation_id) == (1, stream.invocation_id)
        async with client.stream("talker", input="and yet more", run_id=run.run_id) as joined:
            queued = await anext(joined)
            assert isinstance(queued, Queued)
            assert (queued.queued, joined.stream_id) == (2, stream.stream_id)
            waiting = await client.get_run(run.run_id)
            assert [item.text for item in waiting.pending_input] == ["and more", "and yet more"]
            cancelled = await client.cancel(run.run_id, wait_s=30)
            assert (cancelled.status, cancelled.cancel_requested) == ("cancelled", False)
            assert (await joined.read()).status == (await stream.read()).status == "cancelled"
    assert stream.text == "second "
    (listed,) = [found async for found in client.runs(agent="talker", metadata={"customer": unique})]
    assert (listed.id, listed.session_id, listed.title, listed.status) == (run.run_id, "s", "T", "cancelled")
    assert [row.role async for row in client.messages(run.run_id, limit=2)] == ["user", "assistant"]
    invocation = await client.invocation(run.invocation_id)
    assert [step.finish_reason for step in invocation.step_records] == ["end_turn"]


async def test_agents_and_functions(stack: Stack, client: Client, unique: str) -> None:
    agents = {agent.name: agent for agent in await client.agents()}
    assert "narrate" in [tool.name for tool in agents["clerk"].tools]
    assert (await client.function("add", {"first": 1, "second": 2})).output == 3
    assert [type(frame) async for frame in client.stream_function("add", {"first": 1, "second": 2})] == [Ended]
    reciting = client.stream_function("recite", {"words": ["a ", "b"], "gate": unique})
    await until(await reciting, "a ")
    stack.open_gate(unique)
    assert (await reciting.read()).output == {"count": 2}
    assert reciting.text == "a b"


async def test_refusals_are_typed(stack: Stack, relay: Relay, client: Client) -> None:
    with pytest.raises(AgentNotFound) as unknown:
        await client.run("nobody", "go")
    assert (unknown.value.status, unknown.value.fields) == (404, {"agent": "nobody"})
    assert str(unknown.value.request_id).startswith("req_")
    with pytest.raises(RunNotFound):
        await client.cancel("run_none")
    with pytest.raises(StreamNotFound):
        await client.resume_stream("st_none").open()
    async with Client(relay.url, token="none") as stranger:
        with pytest.raises(Unauthenticated) as refused:
            await stranger.agents()
    assert refused.value.fields == {"reason": "invalid"}


async def test_the_same_without_an_event_loop(stack: Stack, relay: Relay, unique: str) -> None:
    stack.standin.answers(says("one ", hold(unique), "two"))

    def script() -> str:
        with SyncClient(relay.url, token=token(unique)) as client, client.stream("talker", input="go") as stream:
            for frame in stream:
                if isinstance(frame, Text) and frame.text == "one ":
                    relay.cut()
                    anyio.from_thread.run_sync(gate.release)
            assert [run.id for run in client.runs()] == [stream.run_id]
            assert client.run("talker", "again", run_id=stream.run_id).text == "three"
            return stream.text

    gate: Gate = stack.standin.gate(unique)
    stack.standin.answers(says("three"))
    assert await anyio.to_thread.run_sync(script) == "one two"
