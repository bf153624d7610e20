"""The parts that every route uses. `app.py` builds them once, owns them and closes them."""

import asyncio
from dataclasses import dataclass

from redis.asyncio import Redis

from runyard.db.engine import Database
from runyard.queue.wakeups import Publisher
from runyard.settings import Settings
from runyard.streams.store import FrameStore
from runyard_gateway.auth.authenticator import Authenticator
from runyard_gateway.auth.tickets import Tickets
from runyard_gateway.depth import Depths
from runyard_gateway.directory import AgentDirectory
from runyard_gateway.feed import Feed
from runyard_gateway.follow_ups import FollowUps
from runyard_gateway.hub import Hub
from runyard_gateway.members import Members
from runyard_gateway.open_streams import OpenStreams
from runyard_gateway.rates import Rates
from runyard_gateway.rooms import Rooms
from runyard_gateway.standings import Standings


@dataclass(frozen=True, kw_only=True, slots=True)
class Gateway:
    """`draining` is set when the process is told to leave."""

    settings: Settings
    database: Database
    redis: Redis
    store: FrameStore
    hub: Hub
    publisher: Publisher
    follow_ups: FollowUps
    directory: AgentDirectory
    standings: Standings
    depths: Depths
    authenticator: Authenticator
    rates: Rates
    open_streams: OpenStreams
    tickets: Tickets
    feed: Feed
    rooms: Rooms
    members: Members
    draining: asyncio.Event

    def leave(self) -> None:
        """Readiness becomes false and open streams end without a terminal frame: their readers go on elsewhere."""
        self.draining.set()
        self.hub.drain()
        self.feed.drain()
        self.rooms.drain()
