"""What a harness runs on: the parts of a worker, with a database and a frame store of their own."""

import asyncio
import contextlib
import math
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from runyard.authoring.lifespan import Lifespan, open_resources
from runyard.db.engine import Database
from runyard.frames import Frame
from runyard.ids import StreamId
from runyard.streams.memory import MemoryFrames
from runyard_workers.author_code import contain_tasks
from runyard_workers.closer import Closer
from runyard_workers.flusher import Flusher
from runyard_workers.frame_server import FrameServer
from runyard_workers.liveness import Liveness
from runyard_workers.retries import RetryPolicy
from runyard_workers.services import Services
from runyard_workers.testing.fleet import Fleet
from runyard_workers.testing.model import Playback, ScriptedModel
from runyard_workers.testing.moments import Moments
from runyard_workers.testing.private_database import private_database
from runyard_workers.testing.rooms import RecordedRooms
from runyard_workers.testing.targets import LoadedTarget
from runyard_workers.testing.tools import Watch
from runyard_workers.threads import ToolThreads

T = TypeVar("T")

LINKS = 4
NO_WAITS = RetryPolicy(first_wait_s=0)
"""As many attempts as in production, without waits in between."""

THREADS = ToolThreads(32)
"""Shared by all harnesses of the process, since threads that wait for work never end; each is started by the first tool
that needs it."""


@dataclass(frozen=True, kw_only=True)
class Setup:
    """How to open a runtime. Without `lifespans` it opens the folder's, unless `resources` are given."""

    target: LoadedTarget
    resources: Mapping[str, Any] | None
    lifespans: Sequence[Lifespan] | None
    timeout_s: float

    @property
    def opens(self) -> Sequence[Lifespan]:
        if self.lifespans is not None:
            return self.lifespans
        return self.target.catalog.lifespans if self.resources is None else ()


@dataclass(frozen=True, kw_only=True)
class Runtime:
    target: LoadedTarget
    services: Services
    frames: MemoryFrames
    fleet: Fleet
    moments: Moments
    model: ScriptedModel
    watch: Watch
    rooms: RecordedRooms
    timeout_s: float

    def check(self) -> None:
        """Look whether all that the test planned has happened.

        Raises:
            ScriptError: something has not.
        """
        if self.fleet.fault.done():
            raise self.fleet.fault.result()
        self.moments.check()
        self.model.check()

    async def follow(self, stream_id: StreamId) -> AsyncIterator[Frame]:
        """A stream's frames as they come, until the terminal one.

        Raises:
            TimeoutError: it did not come in time.
            ScriptError: the test itself is wrong, so nothing more will come.
        """
        now, fault = asyncio.get_running_loop().time, self.fleet.fault
        give_up_at = now() + self.timeout_s
        frames = self.frames.follow(stream_id)
        while True:
            coming = asyncio.create_task(next_of(frames))
            try:
                either: set[asyncio.Future[Any]] = {coming, fault}
                await asyncio.wait(either, timeout=give_up_at - now(), return_when=asyncio.FIRST_COMPLETED)
                if not coming.done():
                    raise fault.result() if fault.done() else self._late()
            finally:
                coming.cancel()
            if (frame := coming.result()) is None:
                return
            yield frame

    def _late(self) -> TimeoutError:
        return TimeoutError(f"the run has not ended within {self.timeout_s:g} s (harness(timeout_s=...))")


async def next_of(items: AsyncIterator[T]) -> T | None:
    """The next item; None: there are no more."""
    return await anext(items, None)


@contextlib.asynccontextmanager
async def opened(setup: Setup) -> AsyncIterator[Runtime]:
    """Open the parts, and close them in the opposite order. Runs that have not ended are dropped."""
    async with contextlib.AsyncExitStack() as stack:
        loop = asyncio.get_running_loop()
        if loop.get_task_factory() is None:
            contain_tasks(loop)
            stack.callback(loop.set_task_factory, None)
        database = Database(stack.enter_context(private_database()), pool_size=LINKS)
        stack.push_async_callback(database.close)
        frames, moments, model, rooms = MemoryFrames(), Moments(), ScriptedModel(), RecordedRooms()
        watch = Watch(moments=moments, loop=loop)
        liveness = Liveness()
        liveness.seen(math.inf)  # nobody misses its beat, however long a person debugs
        opened_resources = await stack.enter_async_context(open_resources(setup.opens))
        frame_server = FrameServer(frames)
        await frame_server.ask()

        def fail(error: Exception) -> None:
            fleet.fail(error)

        services = Services(
            database=database,
            flusher=Flusher(frames),
            closer=Closer(database, frames),
            broadcasts=rooms,
            providers=Playback(model, moments, fail),
            threads=THREADS,
            liveness=liveness,
            catalog=setup.target.watched(watch.wrap),
            resources={**opened_resources, **(setup.resources or {})},
            default_model=None,
            frame_server=frame_server,
            retries=NO_WAITS,
        )
        tasks = [loop.create_task(services.flusher.run()), loop.create_task(services.closer.run())]
        stack.push_async_callback(_end, tasks)
        fleet = Fleet(services)
        stack.push_async_callback(fleet.close)
        await fleet.start_worker()
        yield Runtime(
            target=setup.target,
            services=services,
            frames=frames,
            fleet=fleet,
            moments=moments,
            model=model,
            watch=watch,
            rooms=rooms,
            timeout_s=setup.timeout_s,
        )


async def _end(tasks: Iterable[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
