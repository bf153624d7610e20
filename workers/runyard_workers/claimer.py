"""Takes queued runs into free slots: one claim for each message, and claims without a message when none comes.

A message may be lost, so with a free slot and no message for 2 s the worker claims anyway. If that finds a run, it
claims again, at once or when a slot becomes free, until nothing is queued or a message comes.
"""

import asyncio
import time

import structlog

from runyard.clock import now_ms
from runyard.db.claiming import claim_best
from runyard.db.claims import Claim, UnclaimableError
from runyard.db.limits import Limits
from runyard.errors import InternalError, StoreUnavailable, WorkerGone
from runyard.lifecycle.setting_aside import set_aside
from runyard_workers.beat import Beat
from runyard_workers.runner import Runner
from runyard_workers.services import Services
from runyard_workers.shares import Shares
from runyard_workers.slots import SlotPool

WITHOUT_MESSAGE_S = 2.0
FULL_POLL_S = 0.1
"""While all slots are taken: how soon a free one is noticed."""

log = structlog.get_logger()


class Claimer:
    def __init__(
        self,
        services: Services,
        beat: Beat,
        slots: SlotPool,
        runner: Runner,
        *,
        queues: tuple[str, ...],
        limits: Limits,
        shares: Shares,
    ) -> None:
        self._services = services
        self._beat = beat
        self._slots = slots
        self._runner = runner
        self._queues = queues
        self._limits = limits
        self._shares = shares
        self._agents = {name: loaded.version for name, loaded in services.catalog.loaded.items()}
        self._loop = asyncio.get_running_loop()
        self._last_message = time.monotonic()

    def on_wake(self) -> None:
        """Claim for a message, in the broker's thread that reserved a slot for it. Blocks until the claim is over."""
        self._last_message = time.monotonic()
        asyncio.run_coroutine_threadsafe(self.claim_into_slot(), self._loop).result()

    async def claim_into_slot(self) -> bool:
        """Claim a run into a reserved slot, or release the slot. Returns whether a run was found."""
        claim: Claim | None = None
        is_set_aside = False
        try:
            claim = await claim_best(
                self._services.database,
                worker_id=self._beat.worker_id,
                queues=self._queues,
                agents=self._agents,
                redis_run_id=self._services.frame_server.run_id,
                at=now_ms(),
                limits=self._limits,
                passing_over=self._shares.take_passed_over(),
            )
        except WorkerGone:
            log.info("claim refused: the worker's row is gone")
        except UnclaimableError as error:
            log.exception("run cannot be claimed", run_id=error.run.id)
            is_set_aside = await self._set_aside(error)
        except StoreUnavailable as error:
            # The run stays queued, or this worker's by a commit of unknown outcome: the beat tells which.
            log.warning("claim failed", error=str(error))
        except Exception:
            # A fault of ours must not end the process with all its runs; the next claim is 2 s away.
            log.exception("claim failed unexpectedly")
        finally:
            if claim is None:
                self._slots.release()
        if claim is None:
            return is_set_aside
        self._runner.start(claim)
        return True

    async def _set_aside(self, unclaimable: UnclaimableError) -> bool:
        try:
            error = InternalError("The rows of the run do not fit together")
            return await self._services.database.write(set_aside, unclaimable.run, error, at=now_ms())
        except StoreUnavailable as unavailable:
            log.warning("claim failed", error=str(unavailable))
            return False

    async def run(self) -> None:
        """Claim without messages, until cancelled. A claim that is under way is finished first."""
        while True:
            await asyncio.sleep(WITHOUT_MESSAGE_S)
            while time.monotonic() - self._last_message >= WITHOUT_MESSAGE_S:
                if not self._slots.reserve(0):
                    await asyncio.sleep(FULL_POLL_S)
                elif not await _finished(asyncio.create_task(self.claim_into_slot())):
                    break


async def _finished(claiming: asyncio.Task[bool]) -> bool:
    # Cut off in its commit, a claim may have happened: the row would name this worker, and nobody would run it.
    try:
        return await asyncio.shield(claiming)
    except asyncio.CancelledError:
        await claiming
        raise
