"""A broker that is killed and comes back with what it had on disk."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest
import structlog
from tests.contract.queue.listening import Gate, listening, opening, publishing, sent, wake
from tests.contract.queue.queue_sides import rabbitmq_side, redis_side
from tests.integration.processes import eventually
from tests.mortal_servers import MortalServer, mortal_rabbitmq, mortal_redis

pytestmark = [pytest.mark.anyio, pytest.mark.services, pytest.mark.usefixtures("impatient")]

PREFIX = "runyard"


@pytest.mark.parametrize(
    ("mortal_broker", "side_of"),
    [
        pytest.param(mortal_redis, redis_side, id="redis"),
        pytest.param(mortal_rabbitmq, rabbitmq_side, id="rabbitmq"),
    ],
)
async def test_what_was_sent_before_a_kill_comes_after_it(
    mortal_broker: Callable[[], AbstractContextManager[MortalServer]],
    side_of: Callable[[str, str], AbstractContextManager[Any]],
) -> None:
    with mortal_broker() as broker, opening(Gate()) as gate, structlog.testing.capture_logs() as logged:
        async with (
            listening(broker.url, PREFIX, slots=20, claim=gate.hold) as worker,
            publishing(broker.url, PREFIX) as publisher,
        ):
            await sent(broker.url, PREFIX, 6)
            await worker.has_woken(1)
            broker.kill()
            gate.let_one_pass()  # claimed, and nobody there to acknowledge it to
            wake(publisher)
            await eventually(
                lambda: [event for event in logged if event["event"] == "wake-up not sent"], "the failure to send"
            )

            broker.start()
            for _ in range(20):
                gate.let_one_pass()
            await worker.has_woken(6)
            wake(publisher)
            await worker.has_woken(7)
            with side_of(broker.url, PREFIX) as side:
                await eventually(side.is_empty, "empty queue")
