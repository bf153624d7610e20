"""Who is in which room, over all gateways: each gateway reports its own readers in Redis again and again."""

import asyncio
import secrets
from collections import Counter
from importlib.resources import files

import structlog
from redis.asyncio import Redis

from runyard.errors import StoreUnavailable
from runyard.rooms import members_key
from runyard.streams.connect import answered

SAY_S = 15.0
COUNTS_MS = 45_000
"""How long the readers of a gateway that died are still listed after its last report."""

Room = tuple[str, str]
"""Tenant and name."""

log = structlog.get_logger()


class Members:
    def __init__(self, client: Redis, *, prefix: str) -> None:
        self._client = client
        self._prefix = prefix
        self._gateway = secrets.token_hex(8)
        self._here: dict[Room, Counter[str]] = {}
        self._changed = asyncio.Event()
        self._entered: set[Room] = set()
        self._left: set[tuple[Room, str]] = set()
        self._say = client.register_script(files("runyard_gateway").joinpath("members.lua").read_text())

    def enter(self, room: Room, user_id: str) -> None:
        self._here.setdefault(room, Counter())[user_id] += 1
        self._left.discard((room, user_id))
        self._entered.add(room)
        self._changed.set()

    def leave(self, room: Room, user_id: str) -> None:
        here = self._here[room]
        here[user_id] -= 1
        if here[user_id]:
            return
        del here[user_id]
        if not here:
            del self._here[room]
        self._left.add((room, user_id))
        self._changed.set()

    async def of(self, room: Room) -> list[str]:
        """The users in a room, each once, by name. Raises `StoreUnavailable`."""
        async with answered():
            found = await self._say(keys=[members_key(self._prefix, *room)], args=[COUNTS_MS])
        return sorted({member.decode().partition("\0")[0] for member in found})

    async def run(self) -> None:
        """Until cancelled."""
        warned = False
        loop = asyncio.get_running_loop()
        all_at_s = loop.time()
        while True:
            try:
                async with asyncio.timeout_at(all_at_s):
                    await self._changed.wait()
            except TimeoutError:
                all_at_s = loop.time() + SAY_S
                self._entered.update(self._here)
            self._changed.clear()
            try:
                await self._tell()
                warned = False
            except StoreUnavailable as error:
                if not warned:
                    log.warning("members not told", error=str(error))
                warned = True

    async def _tell(self) -> None:
        # The one place that writes, so that no earlier word about a user comes after a later one.
        left, self._left = self._left, set()
        entered, self._entered = self._entered & self._here.keys(), set()
        pipeline = self._client.pipeline(transaction=False)
        for room, user_id in left:
            pipeline.zrem(members_key(self._prefix, *room), f"{user_id}\0{self._gateway}")
        for room in entered:
            here = [f"{user_id}\0{self._gateway}" for user_id in self._here[room]]
            await self._say(keys=[members_key(self._prefix, *room)], args=[COUNTS_MS, *here], client=pipeline)
        try:
            async with answered():
                await pipeline.execute()
        except StoreUnavailable:  # said with the next report, but that of who has come back
            self._entered |= entered
            self._left |= {(room, user_id) for room, user_id in left if user_id not in self._here.get(room, ())}
            raise
