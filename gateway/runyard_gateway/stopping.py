"""Stopping a run: the cancel is committed, then announced to the worker that runs it."""

import structlog

from runyard.clock import now_ms
from runyard.db.scope import Scope
from runyard.lifecycle.cancelling import Cancelled, cancel_run
from runyard.runs import RunStatus
from runyard.streams.cancels import tell_cancel
from runyard_gateway import tracing
from runyard_gateway.closing import close_stream
from runyard_gateway.gateway import Gateway

log = structlog.get_logger()


async def stop(gateway: Gateway, run_id: str, scope: Scope, *, invocation_id: str | None = None) -> Cancelled:
    """Cancel a run. A running one is only asked to stop: its `status` in the answer is still running.

    `invocation_id`: cancel only this invocation; None: the newest one.

    Raises:
        RunNotFound: the run is unknown, or not this caller's; or it has no such invocation.
    """
    done = await gateway.database.write(cancel_run, run_id, scope, invocation_id=invocation_id, at=now_ms())
    tracing.of_run(done.run.id, done.invocation_id)
    if done.ending is not None:
        log.info("run cancelled", run_id=done.run.id, invocation_id=done.invocation_id)
        gateway.follow_ups.start(close_stream(gateway, done.ending))
    elif done.status is RunStatus.RUNNING:
        log.info("cancel requested", run_id=done.run.id, invocation_id=done.invocation_id)
        gateway.follow_ups.start(tell_cancel(gateway.redis, gateway.settings.prefix, done.run.id))
    return done
