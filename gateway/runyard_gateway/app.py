"""Builds a gateway process: opens its parts, wires routes and middleware, closes all in the opposite order."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from functools import partial

import structlog
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.routing import Route, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from runyard import metrics
from runyard.db.engine import Database
from runyard.db.migrate import wait_for_revision
from runyard.leaving import cancelled_at_signals
from runyard.queue import broker as brokers
from runyard.queue.depth import BrokerDepth
from runyard.queue.wakeups import Publisher
from runyard.settings import Settings
from runyard.streams.announcements import Announcer, changes_channel
from runyard.streams.connect import connect
from runyard.streams.store import FrameStore
from runyard.text import clean_json
from runyard_gateway.answers import HEADERS
from runyard_gateway.auth.authenticator import authenticator, require_auth
from runyard_gateway.auth.loopback import LoopbackOnly
from runyard_gateway.auth.tickets import Tickets
from runyard_gateway.depth import Depths
from runyard_gateway.depth_samples import DepthSamples
from runyard_gateway.directory import AgentDirectory
from runyard_gateway.failures import TELL, Failures
from runyard_gateway.feed import Feed
from runyard_gateway.fleet import Fleet
from runyard_gateway.follow_ups import FollowUps
from runyard_gateway.gateway import Gateway
from runyard_gateway.hub import Hub
from runyard_gateway.members import Members
from runyard_gateway.open_streams import OpenStreams
from runyard_gateway.operations import Described, ForeignOperation, OpenOperation, Operation, anybody
from runyard_gateway.parameters import check_query
from runyard_gateway.protocols import pylon
from runyard_gateway.rates import Rates
from runyard_gateway.rooms import Rooms
from runyard_gateway.routes import OPERATIONS
from runyard_gateway.routes.console import console
from runyard_gateway.routes.documentation import documentation
from runyard_gateway.routes.probes import PROBES
from runyard_gateway.server import DrainingServer, listen
from runyard_gateway.standings import Standings
from runyard_gateway.tracing import Endpoint, traced
from runyard_gateway.watcher import Watcher

POOL_SIZE = 10
"""Database connections. None is held while an answer streams or waits."""

log = structlog.get_logger()


async def run_gateway(settings: Settings) -> None:
    """Serve until SIGTERM or SIGINT, then end open streams, so that their readers go on at another replica.

    Raises:
        CancelledError: a signal came before it served.
        StartError: a setting is missing, the port is taken, or the database has not been migrated.
    """
    cancelled_at_signals()
    require_auth(settings)
    listener = listen(settings.host, settings.port)
    await wait_for_revision(settings.database_url)
    metrics.serve(settings.host, settings.metrics_port)
    async with open_gateway(settings) as gateway:
        host, port = listener.getsockname()[:2]
        log.info("gateway listens", host=host, port=port, auth=settings.auth)
        if settings.auth == "dev":
            log.warning("every caller is trusted as the user dev", setting="RUNYARD_AUTH=dev")
        await DrainingServer(build_app(gateway), on_leave=gateway.leave).serve([listener])
    log.info("gateway left")


@contextlib.asynccontextmanager
async def open_gateway(settings: Settings) -> AsyncIterator[Gateway]:
    async with contextlib.AsyncExitStack() as stack:
        client = connect(settings.redis_url)
        stack.push_async_callback(client.aclose)
        announcer = Announcer(client, prefix=settings.prefix)
        database = Database(settings.database_url, pool_size=POOL_SIZE, on_commit=announcer.changed)
        stack.push_async_callback(database.close)
        store = FrameStore(
            client,
            prefix=settings.prefix,
            retain_s=settings.stream_retain_s,
            max_bytes=settings.stream_max_bytes,
            max_streams=settings.stream_max,
        )
        broker = brokers.connect(settings.broker_url, prefix=settings.prefix)
        stack.callback(broker.close)
        publisher = Publisher(broker, prefix=settings.prefix)
        stack.push_async_callback(publisher.close)
        hub = Hub(store, client)
        metrics.REDIS_AWAY.set_function(lambda: hub.redis_away)
        tasks = await stack.enter_async_context(asyncio.TaskGroup())
        auth = authenticator(settings, database)
        feed = Feed(database)
        members = Members(client, prefix=settings.prefix)
        hub.listen(changes_channel(settings.prefix), lambda _message: feed.wake())
        fleet = Fleet(database)
        directory = AgentDirectory(
            database,
            lives=fleet.lives,
            per_user=settings.running_per_user,
            per_tenant=settings.running_per_tenant,
        )
        standings = Standings(database, directory, fleet)
        broker_depth = BrokerDepth(settings.broker_url, prefix=settings.prefix)
        depths = Depths(database, broker_depth, lives=fleet.lives, limits=directory.limits)
        metrics.LINKS.set(database.links)
        metrics.LINKS_IN_USE.set_function(database.links_in_use)
        samples = DepthSamples(depths)
        metrics.REGISTRY.register(samples)
        stack.callback(metrics.REGISTRY.unregister, samples)
        watcher = Watcher(database, store, hub, standings)
        works = (hub.run(), watcher.run(), auth.run(), feed.run(), announcer.run(), fleet.run(), members.run())
        background = [tasks.create_task(work) for work in works]
        yield Gateway(
            settings=settings,
            database=database,
            redis=client,
            store=store,
            hub=hub,
            publisher=publisher,
            follow_ups=FollowUps(tasks),
            directory=directory,
            standings=standings,
            depths=depths,
            authenticator=auth,
            open_streams=OpenStreams(settings.streams_per_user),
            rates=Rates(client, settings, redis_away=lambda: hub.redis_away),
            feed=feed,
            rooms=Rooms(hub, members, prefix=settings.prefix),
            members=members,
            tickets=Tickets(client, prefix=settings.prefix, recall=auth.recall),
            draining=asyncio.Event(),
        )
        for task in background:
            task.cancel()


def operations() -> tuple[Described, ...]:
    """Everything that the OpenAPI document describes."""
    return (*OPERATIONS, *PROBES)


def build_app(gateway: Gateway) -> ASGIApp:
    served: dict[str, dict[str, Endpoint]] = {}
    for operation in (*PROBES, *OPERATIONS, *pylon.OPERATIONS):
        served.setdefault(operation.path, {})[operation.method] = _endpoint(gateway, operation)
    routes = [
        *(Route(path, _Answering(by_method), methods=list(by_method)) for path, by_method in served.items()),
        *documentation(operations()),
        *console(),
    ]
    app: ASGIApp = Router(routes=routes, redirect_slashes=False)
    if gateway.settings.auth == "dev":
        app = LoopbackOnly(app, origins=gateway.settings.cors_origins)
    app = Failures(app)
    if gateway.settings.cors_origins:
        app = CORSMiddleware(
            app,
            allow_origins=gateway.settings.cors_origins,
            allow_methods=["GET", "POST", "PATCH", "DELETE"],
            allow_headers=["*"],
            expose_headers=[*(header.name for header in HEADERS), pylon.STREAM_ID],
        )
    return app


class _Answering:
    """Serves what a path's handlers answer, by method, and keeps nothing of the request meanwhile, since an answer may
    stream for hours.

    starlette's own wrapper of a function would keep the request and six functions. One route for all methods of a path
    lets starlette name all of them to a caller who tries another (RFC 9110, section 15.5.6).
    """

    def __init__(self, by_method: Mapping[str, Endpoint]) -> None:
        self._by_method = by_method

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        handler = self._by_method["GET" if scope["method"] == "HEAD" else scope["method"]]
        answer = await handler(Request(scope, receive))
        await answer(scope, receive, send)


def _endpoint(gateway: Gateway, operation: OpenOperation | Operation | ForeignOperation) -> Endpoint:
    match operation:
        case OpenOperation():
            return partial(operation.handler, gateway)
        case Operation():
            return traced(operation.method, operation.path, _authenticated(gateway, operation))
        case ForeignOperation():
            return traced(operation.method, operation.path, _foreign(gateway, operation))


def _authenticated(gateway: Gateway, operation: Operation) -> Endpoint:
    async def endpoint(request: Request) -> ASGIApp:
        # A NUL in an id is a statement that Postgres refuses; cleaned, it is an id that nothing has.
        request.scope["path_params"] = clean_json(request.path_params)
        principal = await operation.caller(gateway, request)
        check_query(request, operation.parameters)
        return await operation.handler(gateway, request, principal)

    return endpoint


def _foreign(gateway: Gateway, operation: ForeignOperation) -> Endpoint:
    async def endpoint(request: Request) -> ASGIApp:
        request.scope[TELL] = operation.tell
        request.scope["path_params"] = clean_json(request.path_params)
        return await operation.handler(gateway, request, await anybody(gateway, request))

    return endpoint
