"""The frames that a restarted Redis may have lost."""

from collections.abc import Awaitable, Callable

from tests.contract.execution.worker import Worker

Loss = Callable[[Worker, str], Awaitable[None]]

FORGET_NEWEST = """
local oldest = redis.call('XRANGE', KEYS[1], '-', '+', 'COUNT', 2)
if #oldest < 2 then return end
redis.call('DEL', KEYS[1])
for _, entry in ipairs(oldest) do redis.call('XADD', KEYS[1], entry[1], unpack(entry[2])) end
redis.call('HSET', KEYS[2], 'state', 'live', 'last', string.match(oldest[2][1], '^%d+'))
"""


async def forget_all(worker: Worker, stream_id: str) -> None:
    keys = worker.store.keys
    await worker.store._client.delete(keys.frames(stream_id), keys.meta(stream_id))


async def forget_newest(worker: Worker, stream_id: str) -> None:
    """It has the first two frames, and the hash of that moment."""
    keys = worker.store.keys
    await worker.store._client.eval(FORGET_NEWEST, 2, keys.frames(stream_id), keys.meta(stream_id))
