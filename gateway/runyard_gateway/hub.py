"""The streams that this gateway watches: one subscription for each, for any number of readers."""

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence

import structlog
from redis.asyncio import Redis

from runyard.errors import RunyardError, StoreUnavailable
from runyard.frames import Frame
from runyard.streams.batch import decode_batch
from runyard.streams.connect import redis_backoff
from runyard.streams.reader import FrameReader
from runyard.streams.subscription import Subscription
from runyard_gateway.sse import encode
from runyard_gateway.tail import Tail
from runyard_gateway.window import Window

CHECK_S = 15.0
"""A stream that was silent for this long is looked up. While its connection lasts Redis loses no message, and a new
connection looks all streams up; this finds losses that neither explains."""

TICK_S = 1.0
LOOKUPS_A_CALL = 250  # some milliseconds of the event loop's time

log = structlog.get_logger()


class Hub:
    """Published batches arrive on one connection, and are kept encoded for all readers of their stream.

    When its first reader comes, and after each reconnect, a stream is subscribed to and then looked up. So frames that
    were published before the subscription are noticed, and readers fetch them from Redis. The subscription takes a
    connection of its own from `client`, which `reader` uses too.
    """

    def __init__(self, reader: FrameReader, client: Redis) -> None:
        self._reader = reader
        self._subscription = Subscription(client, on_message=self._on_message, on_subscribed=self._look_up)
        self._windows: dict[bytes, Window] = {}
        self._others: dict[bytes, Callable[[bytes], None]] = {}
        self._unsure: set[bytes] = set()
        self._look = asyncio.Event()
        self._lookup_failed = False
        self.draining = False

    async def run(self) -> None:
        """Until cancelled. Until it runs, readers wait."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._subscription.run())
            tasks.create_task(self._look_up_forever())
            tasks.create_task(self._check_forever())

    def watch(self, stream_id: str, *, seeks: bool = False) -> Tail:
        """A reader's place in a stream, to be used as a block. When the last reader leaves, the subscription ends.

        The caller has checked who may read. A stream that Redis does not have counts as live and empty. `seeks`: the
        reader will first look up where the stream stands (`Tail.seek`), and needs no subscription if it has ended.
        """
        channel = self._channel(stream_id)
        window = self._windows.get(channel)
        if window is None:
            window = self._windows[channel] = Window(stream_id, time.monotonic())
        if not seeks:
            self._subscribe(channel, window)
        tail = Tail(window, self._reader, self)
        window.readers.add(tail)
        return tail

    def heed(self, window: Window) -> None:
        """Called by a tail: its reader waits for what is published."""
        if not window.is_subscribed:
            self._subscribe(self._channel(window.stream_id), window)

    def leave(self, window: Window, tail: Tail) -> None:
        """Called by a tail: its reader has left."""
        window.readers.discard(tail)
        if not window.readers:
            self._drop(self._channel(window.stream_id), window)

    def listen(self, channel: str, on_message: Callable[[bytes], None]) -> Callable[[], None]:
        """Hear what is published on another channel, over the same connection; `on_message` must not raise. What is
        published while the connection is away is lost. Returns a function that ends it.
        """
        name = channel.encode()
        self._others[name] = on_message
        self._subscription.add(name)

        def end() -> None:
            del self._others[name]
            self._subscription.remove(name)

        return end

    @property
    def redis_away(self) -> bool:
        return self._lookup_failed or not self._subscription.connected

    def silent(self, for_s: float) -> list[str]:
        """The watched streams that have had no frame for this long."""
        since_s = time.monotonic() - for_s
        return [window.stream_id for window in self._windows.values() if window.heard_at_s <= since_s]

    def nudge(self, stream_id: str) -> None:
        """Look up whether Redis has frames that were not received."""
        self._look_up(self._channel(stream_id))

    def tell(self, stream_id: str, frame: Frame, *, as_of_s: float) -> None:
        """Send all readers, including those that come later, an un-numbered frame, unless frames have come since."""
        window = self._windows.get(self._channel(stream_id))
        if window is not None and window.heard_at_s < as_of_s:
            window.tell(encode(frame))

    def finish(self, stream_id: str, frames: Sequence[Frame]) -> None:
        """Send all present readers these frames, whatever their cursors, and end their answers.

        This is for a settled invocation whose own frames are gone, with frames that were made from its rows. A frame
        with the number 0 leaves a reader's cursor where it is.
        """
        channel = self._channel(stream_id)
        window = self._windows.get(channel)
        if window is not None:
            window.end_with(b"".join(map(encode, frames)))
            self._drop(channel, window)

    def fail(self, stream_id: str, error: RunyardError) -> None:
        """End the answers of all present readers by this error."""
        channel = self._channel(stream_id)
        window = self._windows.get(channel)
        if window is not None:
            window.fail(error)
            self._drop(channel, window)

    def drain(self) -> None:
        """The process stops: all answers end without a terminal frame, and clients resume elsewhere."""
        self.draining = True
        for window in self._windows.values():
            window.wake()

    def _channel(self, stream_id: str) -> bytes:
        return self._reader.keys.channel(stream_id).encode()

    def _subscribe(self, channel: bytes, window: Window) -> None:
        if not window.is_subscribed and self._windows.get(channel) is window:
            window.is_subscribed = True
            self._subscription.add(channel)

    def _drop(self, channel: bytes, window: Window) -> None:
        if self._windows.get(channel) is window:
            del self._windows[channel]
            if window.is_subscribed:
                self._subscription.remove(channel)

    def _on_message(self, channel: bytes, message: bytes) -> None:
        window = self._windows.get(channel)
        if window is None:
            if (other := self._others.get(channel)) is not None:
                other(message)
            return
        try:
            window.absorb(decode_batch(message), time.monotonic())
        except ValueError as error:
            log.warning("batch of frames unreadable", stream_id=window.stream_id, error=str(error))
            self._look_up(channel)

    def _look_up(self, channel: bytes) -> None:
        if channel in self._others:
            return
        self._unsure.add(channel)
        self._look.set()

    async def _look_up_forever(self) -> None:
        backoff = redis_backoff()
        while True:
            await self._look.wait()
            channels = [self._unsure.pop() for _ in range(min(len(self._unsure), LOOKUPS_A_CALL))]
            if not self._unsure:
                self._look.clear()
            try:
                await self._learn(channels)
            except StoreUnavailable as error:
                if not self._lookup_failed:
                    log.warning("streams not looked up", error=str(error))
                self._lookup_failed = True
                self._unsure.update(channels)
                self._look.set()
                await asyncio.sleep(backoff.next_s())
            else:
                self._lookup_failed = False
                backoff.reset()

    async def _learn(self, channels: Iterable[bytes]) -> None:
        windows = {window.stream_id: window for channel in channels if (window := self._windows.get(channel))}
        infos = await self._reader.infos(windows.keys())
        now_s = time.monotonic()
        for stream_id, window in windows.items():
            window.learn(infos.get(stream_id), now_s)

    async def _check_forever(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            since_s = time.monotonic() - CHECK_S
            for channel, window in self._windows.items():
                window.forget()
                if window.known_at_s <= since_s:
                    self._look_up(channel)
