"""Builds a worker process and runs it until a signal ends it."""

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator, Coroutine
from typing import Any

import structlog
from redis.asyncio import Redis

from runyard import metrics
from runyard.authoring.lifespan import open_resources
from runyard.db.engine import Database
from runyard.db.limits import Limits
from runyard.db.migrate import wait_for_revision
from runyard.db.workers import Registration
from runyard.errors import StartError
from runyard.ids import new_worker_id
from runyard.leaving import SIGNALS, cancelled_at_signals
from runyard.queue import broker as brokers
from runyard.queue.consumption import Consumption
from runyard.queue.wakeups import Publisher
from runyard.settings import Settings
from runyard.streams.announcements import Announcer
from runyard.streams.connect import connect
from runyard.streams.store import FrameStore
from runyard_workers import late_closes, retention
from runyard_workers.author_code import contain_tasks, release_forks
from runyard_workers.beat import Beat
from runyard_workers.cancel_wakeups import cancel_subscription
from runyard_workers.catalog import Catalog, load_folder
from runyard_workers.claimer import Claimer
from runyard_workers.closer import Closer
from runyard_workers.flusher import Flusher
from runyard_workers.frame_server import FrameServer
from runyard_workers.liveness import Liveness
from runyard_workers.providers.registry import Providers
from runyard_workers.rooms import Broadcasts
from runyard_workers.runner import Runner
from runyard_workers.services import Services
from runyard_workers.shares import Shares
from runyard_workers.slots import SlotPool
from runyard_workers.threads import ToolThreads

POOL_SIZE = 8
"""Database connections. A run holds one during a transaction, never while a model or a tool works."""

TICK_S = 1.0
CLOSE_WAIT_S = 5.0

log = structlog.get_logger()


def load_agents(settings: Settings) -> Catalog:
    """The agents of the folder.

    Raises:
        StartError: RUNYARD_AGENTS is not set or holds no agent, or, outside `runyard dev`, a file is broken.
    """
    if settings.agents is None:
        raise StartError("RUNYARD_AGENTS is not set: name the folder of your agent files")
    catalog = load_folder(settings.agents)
    for problem in catalog.problems:
        log.error("agent file is broken", file=str(problem.path), problem=problem.summary)
        if problem.traceback_text:
            print(problem.traceback_text, end="")  # noqa: T201 - a traceback is for eyes
    if catalog.problems and not settings.dev:
        raise StartError(catalog.problems[0].summary)
    return catalog


async def run_worker(settings: Settings) -> None:
    """Serve until SIGTERM or SIGINT, then hand every run over. A second signal gives all runs back where they are.

    Raises:
        CancelledError: a signal came before it served.
        StartError: a part that the worker cannot do without is missing.
    """
    cancelled_at_signals()
    contain_tasks(asyncio.get_running_loop())
    release_forks()
    catalog = load_agents(settings)
    await wait_for_revision(settings.database_url)
    async with _redis(settings) as client, _services(settings, catalog, client) as services:
        try:
            await _serve(settings, services, client, *_leave_signals())
        except asyncio.CancelledError as error:  # no signal cancels it any more
            raise RuntimeError("a lifespan cancelled the worker: a task of its TaskGroup failed, say") from error
    log.info("worker left")


def _leave_signals() -> tuple[asyncio.Event, asyncio.Event]:
    """Set by the first signal from now on, and by the second."""
    stop, hurry = asyncio.Event(), asyncio.Event()

    def leave() -> None:
        (hurry if stop.is_set() else stop).set()

    for number in SIGNALS:
        asyncio.get_running_loop().add_signal_handler(number, leave)
    return stop, hurry


@contextlib.asynccontextmanager
async def _redis(settings: Settings) -> AsyncIterator[Redis]:
    client = connect(settings.redis_url)
    try:
        yield client
    finally:
        await client.aclose()


@contextlib.asynccontextmanager
async def _services(settings: Settings, catalog: Catalog, client: Redis) -> AsyncIterator[Services]:
    """Opens what the runs share, and closes it in the opposite order."""
    async with contextlib.AsyncExitStack() as stack:
        announcer = Announcer(client, prefix=settings.prefix)
        database = Database(settings.database_url, pool_size=POOL_SIZE, on_commit=announcer.changed)
        stack.push_async_callback(database.close)
        metrics.LINKS.set(database.links)
        metrics.LINKS_IN_USE.set_function(database.links_in_use)
        store = FrameStore(
            client,
            prefix=settings.prefix,
            retain_s=settings.stream_retain_s,
            max_bytes=settings.stream_max_bytes,
            max_streams=settings.stream_max,
        )
        providers = Providers(environ=os.environ, dev=settings.dev)
        stack.push_async_callback(providers.aclose)
        await providers.warm()
        threads = ToolThreads(settings.worker_slots)
        metrics.TOOL_THREADS_BUSY.set_function(threads.busy)
        closer = Closer(database, store)
        flusher = Flusher(store)
        broadcasts = Broadcasts(client, prefix=settings.prefix)
        frame_server = FrameServer(store)
        await frame_server.look()  # while Redis is away, claims name none: whoever takes such a run over resets it
        await stack.enter_async_context(
            _background(
                flusher.run(),
                closer.run(),
                late_closes.sweep_forever(database, closer),
                retention.sweep_forever(database, store, retention.duties_of(settings)),
                announcer.run(),
                broadcasts.run(),
                frame_server.follow(),
            )
        )
        yield Services(
            database=database,
            flusher=flusher,
            closer=closer,
            broadcasts=broadcasts,
            providers=providers,
            threads=threads,
            liveness=Liveness(),
            catalog=catalog,
            resources=await stack.enter_async_context(open_resources(catalog.lifespans)),
            default_model=settings.model,
            frame_server=frame_server,
        )


async def _serve(
    settings: Settings, services: Services, client: Redis, stop: asyncio.Event, hurry: asyncio.Event
) -> None:
    slots = SlotPool(settings.worker_slots, is_alive=services.liveness.is_alive)
    metrics.SLOTS.set(slots.size)
    metrics.SLOTS_TAKEN.set_function(slots.taken)
    metrics.serve(settings.host, settings.metrics_port)  # not before: what answers there can work, and its pod is ready
    broker = brokers.connect(settings.broker_url, prefix=settings.prefix, slots=slots)
    publisher = Publisher(broker, prefix=settings.prefix)
    limits = Limits.of(
        per_user=settings.running_per_user,
        per_tenant=settings.running_per_tenant,
        per_agent=services.catalog.max_running,
    )
    shares = Shares(
        services.database,
        slots=slots.size,
        queues=settings.queues,
        agents=list(services.catalog.loaded),
        limits=limits,
    )
    runner = Runner(services, slots, publisher, must_yield=shares.must_yield)
    beat = Beat(
        settings.database_url,
        lambda: _registration(settings, services.catalog),
        liveness=services.liveness,
        on_beat=runner.compare,
        on_gone=runner.drop_all,
        on_given_back=runner.pass_on,
    )
    await asyncio.to_thread(beat.start)
    claimer = Claimer(services, beat, slots, runner, queues=settings.queues, limits=limits, shares=shares)
    consumption = Consumption(broker, prefix=settings.prefix, queues=settings.queues, on_wake=claimer.on_wake)
    consumption.start()
    slots.open()
    cancels = cancel_subscription(client, settings.prefix, runner.look_at, reached=services.frame_server.reached)
    # The flusher knows of a Redis that takes no frames, the subscription of one that nothing is sent to.
    metrics.REDIS_AWAY.set_function(lambda: services.flusher.is_away or not cancels.connected)
    async with _background(_tick(beat), cancels.run()):
        async with _background(claimer.run()):
            await stop.wait()
        log.info("worker leaves")
        slots.close()
        beat.drain()
        # At the same time: a broker that does not answer holds no run up. Then what a last claim has started.
        await asyncio.gather(asyncio.to_thread(consumption.stop), runner.hand_over_all(settings.drain_s, hurry))
        await runner.hand_over_all(0, hurry)
        with contextlib.suppress(TimeoutError):  # what is not closed is closed by another worker
            async with asyncio.timeout(CLOSE_WAIT_S):
                await services.closer.drained()
        await publisher.close()
        broker.close()
        await asyncio.to_thread(beat.stop)


@contextlib.asynccontextmanager
async def _background(*work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Tasks that run beside the body and end with it; if one fails, its error ends the body.

    An exception of the body is raised as it is, not in a group.
    """
    failure: Exception | None = None
    async with asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(coroutine) for coroutine in work]
        try:
            yield
        except Exception as error:  # noqa: BLE001 - raised below
            failure = error
        for task in running:
            task.cancel()
    if failure is not None:
        raise failure


async def _tick(beat: Beat) -> None:
    while True:
        beat.tick()
        await asyncio.sleep(TICK_S)


def _registration(settings: Settings, catalog: Catalog) -> Registration:
    return Registration(
        worker_id=new_worker_id(),
        host=f"{socket.gethostname()}:{os.getpid()}",
        slots=settings.worker_slots,
        queues=settings.queues,
        manifests={name: (loaded.version, dict(loaded.manifest)) for name, loaded in catalog.loaded.items()},
    )
