"""One connection that is subscribed to many channels: its read loop, and what keeps it subscribed."""

import asyncio
import contextlib
import math
from collections import Counter
from collections.abc import Callable
from typing import Any

import structlog
from redis.asyncio import Redis
from redis.asyncio.connection import AbstractConnection
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError

from runyard.streams.connect import REPLY_TIMEOUT_S, redis_backoff

PING_S = 10.0
"""If nothing came between two pings the connection is dead, which is found out after 20 s at most."""

CHANNELS_A_COMMAND = 500

log = structlog.get_logger()


class Subscription:
    """Keeps one connection, outside the client's pool, subscribed to the wanted channels.

    `on_message(channel, data)` is called for each published message, in order. `on_subscribed(channel)` is called
    whenever the server has confirmed a subscription, also after a reconnect: what is published from then on arrives,
    what was published before may not have. Both are called on the event loop and must not raise. redis-py's PubSub
    could do this, at 2 to 3 times the cost of a message.
    """

    def __init__(
        self, client: Redis, *, on_message: Callable[[bytes, bytes], None], on_subscribed: Callable[[bytes], None]
    ) -> None:
        self._make_connection: Callable[[], AbstractConnection] = client.connection_pool.make_connection
        self._on_message = on_message
        self._on_subscribed = on_subscribed
        self._wanted: set[bytes] = set()
        self._sent: set[bytes] = set()
        self._touched: set[bytes] = set()
        self._unconfirmed: Counter[bytes] = Counter()
        self._changed = asyncio.Event()
        self._heard = False
        self.connected = False

    def add(self, channel: bytes) -> None:
        self._wanted.add(channel)
        self._touch(channel)
        if channel in self._sent and channel not in self._unconfirmed:
            self._on_subscribed(channel)  # added again before its removal was sent

    def remove(self, channel: bytes) -> None:
        self._wanted.discard(channel)
        self._touch(channel)

    def _touch(self, channel: bytes) -> None:
        self._touched.add(channel)
        self._changed.set()

    async def run(self) -> None:
        """Until cancelled. It reconnects by itself, for as long as it takes."""
        backoff = redis_backoff()
        warned = False
        while True:
            connection = self._make_connection()
            try:
                async with asyncio.timeout(REPLY_TIMEOUT_S):
                    await connection.connect()  # type: ignore[no-untyped-call]  # redis-py has no annotation there
                log.info("subscription connected", channels=len(self._wanted))
                warned = False
                backoff.reset()
                await self._serve(connection)
            except (RedisError, OSError) as lost:
                if not warned:
                    log.warning("subscription lost", error=repr(lost))
                    warned = True
            finally:
                self.connected = False
                await connection.disconnect(nowait=True)
            await asyncio.sleep(backoff.next_s())

    async def _serve(self, connection: AbstractConnection) -> None:
        self._sent.clear()
        self._unconfirmed.clear()
        self._touched |= self._wanted
        self._changed.set()
        self.connected = True
        # No TaskGroup: one whose child has failed leaves its own task with a cancellation that nobody takes back, and
        # up to Python 3.11.3 the next asyncio.timeout to expire there would end the task (python/cpython#102780).
        both = [asyncio.create_task(self._send_changes(connection)), asyncio.create_task(self._receive(connection))]
        try:
            ended, _ = await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            for task in ended:
                task.result()
        finally:
            for task in both:
                task.cancel()
            await asyncio.gather(*both, return_exceptions=True)

    async def _receive(self, connection: AbstractConnection) -> None:
        while True:
            reply: Any = await connection.read_response(timeout=math.inf, disconnect_on_error=False)
            self._heard = True
            match reply:
                case [b"message", channel, data]:
                    self._on_message(channel, data)
                case [b"subscribe", channel, _]:
                    self._confirm(channel)

    def _confirm(self, channel: bytes) -> None:
        # One that was removed and added again in the meantime is confirmed by the last of its answers.
        self._unconfirmed[channel] -= 1
        if self._unconfirmed[channel] == 0:
            del self._unconfirmed[channel]
            self._on_subscribed(channel)

    async def _send_changes(self, connection: AbstractConnection) -> None:
        loop = asyncio.get_running_loop()
        ping_at = loop.time() + PING_S
        self._heard = True
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(ping_at):
                    await self._changed.wait()
            if loop.time() >= ping_at:
                if not self._heard:
                    raise RedisConnectionError("nothing came since the last ping")
                self._heard = False
                ping_at = loop.time() + PING_S
                await self._command(connection, "PING")
            self._changed.clear()
            touched, self._touched = self._touched, set()
            await self._send(connection, "UNSUBSCRIBE", list((touched - self._wanted) & self._sent))
            await self._send(connection, "SUBSCRIBE", list((touched & self._wanted) - self._sent))

    async def _send(self, connection: AbstractConnection, command: str, channels: list[bytes]) -> None:
        for at in range(0, len(channels), CHANNELS_A_COMMAND):
            some = channels[at : at + CHANNELS_A_COMMAND]
            if command == "SUBSCRIBE":
                self._sent.update(some)
                self._unconfirmed.update(some)
            else:
                self._sent.difference_update(some)
            await self._command(connection, command, *some)

    async def _command(self, connection: AbstractConnection, *arguments: str | bytes) -> None:
        async with asyncio.timeout(REPLY_TIMEOUT_S):
            await connection.send_command(*arguments, check_health=False)
