"""An empty dramatiq message from one process to another: the least that any design over this broker costs."""

import asyncio
import contextlib
import signal
import sys
import time
from collections.abc import AsyncIterator

import dramatiq
from dramatiq.brokers.rabbitmq import RabbitmqBroker
from dramatiq.brokers.redis import RedisBroker

from benchmarks.processes import WORKSPACE

ACTOR = "empty"
POLL_MS = 1
"""dramatiq polls Redis with naps that grow to this long (1 s by default, which would be no floor)."""


def bare_broker(url: str, namespace: str) -> dramatiq.Broker:
    """dramatiq's own, as it comes."""
    if url.startswith("amqp"):
        return RabbitmqBroker(url=url, confirm_delivery=True)
    return RedisBroker(url=url, namespace=namespace)  # type: ignore[no-untyped-call]  # not annotated in dramatiq


class BareMessages:
    """Sends from this process. The receiver stands still between two measurements: its polling costs the others."""

    def __init__(self, broker: dramatiq.Broker, queue: str, receiver: asyncio.subprocess.Process) -> None:
        self._broker = broker
        self._queue = queue
        self._receiver = receiver

    async def latencies_s(self, count: int) -> list[float]:
        """From before the message is sent until its actor runs, so many times, one after another."""
        self._receiver.send_signal(signal.SIGCONT)
        latencies = [await self._latency_s() for _ in range(count + 1)][1:]
        self._receiver.send_signal(signal.SIGSTOP)
        return latencies

    async def _latency_s(self) -> float:
        assert self._receiver.stdout is not None
        message: dramatiq.Message[None] = dramatiq.Message(
            queue_name=self._queue, actor_name=ACTOR, args=(), kwargs={}, options={}
        )
        began_ns = time.monotonic_ns()
        self._broker.enqueue(message)
        return (int(await self._receiver.stdout.readline()) - began_ns) / 1e9


@contextlib.asynccontextmanager
async def bare_messages(url: str, prefix: str) -> AsyncIterator[BareMessages]:
    """On the same server as the system's messages, in a queue of their own."""
    queue = f"{prefix}-bare"
    receiver = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "benchmarks.floors.message_receiver", url, queue),
        cwd=WORKSPACE,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    broker = bare_broker(url, queue)
    broker.declare_queue(queue)
    try:
        messages = BareMessages(broker, queue, receiver)
        await messages.latencies_s(10)
        yield messages
    finally:
        receiver.send_signal(signal.SIGCONT)
        assert receiver.stdin is not None
        receiver.stdin.close()
        await receiver.wait()
        if isinstance(broker, RabbitmqBroker):
            for name in (queue, f"{queue}.DQ", f"{queue}.XQ"):
                broker.channel.queue_delete(name)
        broker.close()
