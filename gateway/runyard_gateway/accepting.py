"""Accepting a call: it is committed to the database, then a worker is woken. The commit alone is the acceptance."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import structlog

from runyard.errors import CommitUnknown, StoreUnavailable
from runyard.lifecycle.accept import accept_turn, commit_turn
from runyard.lifecycle.new_turn import Accepted, NewTurn
from runyard.metrics import ACCEPTED
from runyard.streams.cancels import tell_cancel
from runyard_gateway import tracing
from runyard_gateway.closing import close_stream
from runyard_gateway.gateway import Gateway

TRY_AGAIN_S = (0.1, 0.5, 1.0, 2.0, 4.0)
"""The waits before each further try of a commit of unknown outcome. No try begins later than their sum, since with a
silent database each try itself takes long."""

T = TypeVar("T")

log = structlog.get_logger()


async def accept(gateway: Gateway, turn: NewTurn) -> Accepted:
    """Accept a turn; returns where its input went: into a new invocation, or into the one that runs.

    Raises:
        StoreUnavailable: nothing was stored, as far as can be told.
        RunNotFound, AgentMismatch, RunBusy, InputQueueFull, IdempotencyMismatch: see `accept_turn`.
    """
    accepted = await committed(
        lambda: commit_turn(gateway.database, turn), again=lambda: gateway.database.write(accept_turn, turn)
    )
    run_id, invocation_id = accepted.run_id, accepted.invocation_id
    tracing.of_run(run_id, invocation_id)
    if accepted.repeated:
        log.info("call repeated", run_id=run_id, invocation_id=invocation_id)
        return accepted
    if accepted.is_steering:
        ACCEPTED.labels(turn.agent).inc()
        log.info("input queued", run_id=run_id, invocation_id=invocation_id, input_id=turn.input_id)
        return accepted
    if accepted.waits_for_end:  # a worker is woken when the current invocation ends
        gateway.follow_ups.start(tell_cancel(gateway.redis, gateway.settings.prefix, run_id))
    else:
        gateway.publisher.wake(run_id=run_id, invocation_id=invocation_id, queue=turn.queue)
    ACCEPTED.labels(turn.agent).inc()
    log.info("run queued", run_id=run_id, invocation_id=invocation_id, agent=turn.agent)
    if accepted.ending is not None:
        gateway.follow_ups.start(close_stream(gateway, accepted.ending))
    return accepted


async def committed(commit: Callable[[], Awaitable[T]], *, again: Callable[[], Awaitable[T]]) -> T:
    """Commit the creation of a run. After a commit of unknown outcome, `again` is called until the outcome is known: it
    uses the same ids, and finds what the first try has stored. So no caller gets an error for a run that exists.
    """
    try:
        return await commit()
    except CommitUnknown:
        log.warning("acceptance has an unknown outcome")
    give_up_at = asyncio.get_running_loop().time() + sum(TRY_AGAIN_S)
    for delay_s in TRY_AGAIN_S:
        await asyncio.sleep(delay_s)
        try:
            return await again()
        except StoreUnavailable:
            if asyncio.get_running_loop().time() > give_up_at:
                break
    raise StoreUnavailable("the database does not answer: look for the run before you send the call again")
