"""All that a harness is made of: the parts of a worker, on a database and a frame store of its own."""

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
from runyard_workers.testing.cast import Cast
from runyard_workers.testing.crew import Crew
from runyard_workers.testing.model import Playback, ScriptedModel
from runyard_workers.testing.moments import Moments
from runyard_workers.testing.private_database import private_database
from runyard_workers.testing.rooms import RecordedRooms
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
class Setting:
    """How to open a harness. `lifespans` are opened; without them the folder's, unless `resources` are given."""

    cast: Cast
    resources: Mapping[str, Any] | None
    lifespans: Sequence[Lifespan] | None
    timeout_s: float

    @property
    def opens(self) -> Sequence[Lifespan]:
        if self.lifespans is not None:
            return self.lifespans
        return self.cast.catalog.lifespans if self.resources is None else ()


@dataclass(frozen=True, kw_only=True)
class Stage:
    cast: Cast
    services: Services
    frames: MemoryFrames
    crew: Crew
    moments: Moments
    model: ScriptedModel
    watch: Watch
    rooms: RecordedRooms
    timeout_s: float

    def check(self) -> None:
        """Raises:
        ScriptError: not everything happened that the test has planned.
        """
        if self.crew.fault.done():
            raise self.crew.fault.result()
        self.moments.check()
        self.model.check()

    async def follow(self, stream_id: StreamId) -> AsyncIterator[Frame]:
        """A stream's frames as they come, until the terminal one.

        Raises:
            TimeoutError: it did not come in time.
            ScriptError: nothing comes any more, since the test itself is wrong.
        """
        now, fault = asyncio.get_running_loop().time, self.crew.fault
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
async def opened(setting: Setting) -> AsyncIterator[Stage]:
    """Opens the parts, and closes them in the opposite order; what runs then is dropped."""
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
        opened_resources = await stack.enter_async_context(open_resources(setting.opens))
        frame_server = FrameServer(frames)
        await frame_server.ask()

        def fail(error: Exception) -> None:
            crew.fail(error)

        services = Services(
            database=database,
            flusher=Flusher(frames),
            closer=Closer(database, frames),
            broadcasts=rooms,
            providers=Playback(model, moments, fail),
            threads=THREADS,
            liveness=liveness,
            catalog=setting.cast.watched(watch.over),
            resources={**opened_resources, **(setting.resources or {})},
            default_model=None,
            frame_server=frame_server,
            retries=NO_WAITS,
        )
        tasks = [loop.create_task(services.flusher.run()), loop.create_task(services.closer.run())]
        stack.push_async_callback(_end, tasks)
        crew = Crew(services)
        stack.push_async_callback(crew.close)
        await crew.hire()
        yield Stage(
            cast=setting.cast,
            services=services,
            frames=frames,
            crew=crew,
            moments=moments,
            model=model,
            watch=watch,
            rooms=rooms,
            timeout_s=setting.timeout_s,
        )


async def _end(tasks: Iterable[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
