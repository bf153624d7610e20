"""What a tool gets: `ctx.stream`, `ctx.cancelled`."""

import asyncio
import threading
from decimal import Decimal

import anyio
import pytest

from runyard.authoring.cancellation import Cancellation
from runyard.authoring.json_values import Unserializable
from runyard.authoring.stream import Stream
from runyard.frames import RESERVED_EVENTS


class Recorder:
    """A sink that keeps what it was given."""

    def __init__(self) -> None:
        self.taken = []

    def output(self, text: str) -> None:
        self.taken.append(text)

    def event(self, name, data) -> None:
        self.taken.append((name, data))


@pytest.fixture
def sink():
    return Recorder()


@pytest.fixture
def stream(sink):
    return Stream(sink)


def test_a_call_takes_effect_at_once_without_being_awaited(stream, sink):
    stream.write("one")
    stream.event("progress", {"done": 1})
    assert sink.taken == ["one", ("progress", {"done": 1})]


@pytest.mark.anyio
async def test_a_call_may_be_awaited(stream, sink):
    assert await stream.write("one") is None
    assert await stream.event("progress") is None
    assert sink.taken == ["one", ("progress", None)]


def test_text_is_cleaned_and_empty_text_is_no_frame(stream, sink):
    stream.write("a\0b\ud800")
    stream.write("")
    assert sink.taken == ["a\N{REPLACEMENT CHARACTER}b\N{REPLACEMENT CHARACTER}"]
    with pytest.raises(TypeError, match="takes a string, not bytes"):
        stream.write(b"bytes")


def test_data_becomes_json_as_results_do(stream, sink):
    stream.event("progress", {"amount": Decimal("1.10"), "ratio": float("nan"), 1: {2}, "t\0": "\0"})
    marked = "\N{REPLACEMENT CHARACTER}"
    assert sink.taken == [("progress", {"amount": "1.10", "ratio": None, "1": [2], f"t{marked}": marked})]
    with pytest.raises(Unserializable, match="object"):
        stream.event("progress", {"thing": object()})
    assert len(sink.taken) == 1


@pytest.mark.parametrize("name", sorted(RESERVED_EVENTS))
def test_the_systems_own_events_are_reserved(stream, sink, name):
    with pytest.raises(ValueError, match="reserved"):
        stream.event(str(name), {})
    assert sink.taken == []


@pytest.mark.parametrize("name", ["", "a b", "a:b", "a\nb", "a\rb", "ä", "a\0", "x" * 65, "a\n", None, 5], ids=repr)
def test_an_event_name_is_one_token(stream, sink, name):
    with pytest.raises(ValueError, match="event name"):
        stream.event(name, {})
    assert sink.taken == []


@pytest.mark.parametrize("name", ["a", "x" * 64, "tool.progress", "step-1/2"])
def test_good_event_names(stream, sink, name):
    stream.event(name, 1)
    assert sink.taken == [(name, 1)]


@pytest.mark.anyio
async def test_a_cancel_from_another_thread_wakes_every_waiter():
    cancelled = Cancellation()
    woken = []

    async def wait() -> None:
        await cancelled.wait()
        woken.append(True)

    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(wait)
            await anyio.wait_all_tasks_blocked()
            assert not cancelled.is_set()
            await anyio.to_thread.run_sync(cancelled.set)
    assert woken == [True] * 3
    assert cancelled.is_set()
    with anyio.fail_after(30):
        await cancelled.wait()


@pytest.mark.anyio
async def test_a_waiter_that_is_gone_does_not_matter():
    cancelled = Cancellation()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(cancelled.wait)
        await anyio.wait_all_tasks_blocked()
        cancelled.set()
        tasks.cancel_scope.cancel()
    cancelled.set()
    assert cancelled.is_set()


def test_a_thread_sees_it():
    cancelled = Cancellation()
    seen = threading.Event()

    def work() -> None:
        while not cancelled.is_set():
            pass
        seen.set()

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    cancelled.set()
    assert seen.wait(30)
    thread.join(30)


@pytest.mark.anyio
async def test_a_waiter_whose_loop_is_closed_keeps_nobody_from_being_told():
    cancelled = Cancellation()
    loop = asyncio.new_event_loop()
    left = loop.create_task(cancelled.wait())
    loop.call_soon(loop.stop)
    await asyncio.to_thread(loop.run_forever)
    loop.close()
    cancelled.set()
    with anyio.fail_after(30):
        await cancelled.wait()
    assert not left.done()
    left._log_destroy_pending = False
