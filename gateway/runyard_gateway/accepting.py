"""Accepting a call: committed to the database, then announced to the workers. Nothing else is needed to accept it."""

import asyncio

import structlog

from runyard.db.accept import NewTurn, accept_turn
from runyard.db.reads import accepted_run
from runyard.errors import CommitUnknown, StoreUnavailable
from runyard.ids import RunId
from runyard_gateway.gateway import Gateway

LOOK_AGAIN_S = (0.1, 0.5, 1.0, 2.0, 4.0)

log = structlog.get_logger()


async def accept(gateway: Gateway, turn: NewTurn) -> RunId:
    """The id of the run that holds the turn now.

    Raises:
        StoreUnavailable: nothing was stored, as far as can be told.
        RunNotFound, AgentMismatch, RunBusy: see `accept_turn`.
    """
    try:
        run_id = await gateway.database.write(accept_turn, turn)
    except CommitUnknown:
        log.warning("acceptance has an unknown outcome", invocation_id=turn.invocation_id)
        run_id = await _look_up(gateway, turn)
    gateway.publisher.wake(run_id=run_id, invocation_id=turn.invocation_id, queue=turn.queue)
    log.info("run queued", run_id=run_id, invocation_id=turn.invocation_id, agent=turn.agent)
    return run_id


async def _look_up(gateway: Gateway, turn: NewTurn) -> RunId:
    """Whether the commit happened: a caller that is told "failed" must not have a run."""
    for delay_s in LOOK_AGAIN_S:
        try:
            run_id = await gateway.database.read(accepted_run, turn.invocation_id)
        except StoreUnavailable:
            await asyncio.sleep(delay_s)
            continue
        if run_id is None:
            raise StoreUnavailable("the database did not take the call")
        return run_id
    raise StoreUnavailable("the database does not answer: look for the run before you send the call again")
