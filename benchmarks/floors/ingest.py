"""A model's stream turned into frames in the shortest way: a raw socket, a splitter, the frame script."""

import asyncio
import time
from dataclasses import dataclass

import orjson

from benchmarks.system import MODEL_HEADERS, model_request
from benchmarks.wire import Connection
from runyard.frames import Payload
from runyard.streams.ops import Append, Close, Open
from runyard.streams.store import FrameStore

TERMINAL = Payload("result", b"{}")


@dataclass(frozen=True, kw_only=True)
class Ingest:
    frames: int
    wall_s: float
    cpu_s: float
    """Of this process."""


async def ingest(model: Connection, store: FrameStore, stream_id: str, directive: str) -> Ingest:
    """Each call of the script carries what came during the one before."""
    began_s, cpu_s = time.perf_counter(), time.process_time()
    waiting: list[Payload] = []
    came = asyncio.Event()
    unfinished = b""

    def split(piece: bytes) -> None:
        nonlocal unfinished
        *events, unfinished = (unfinished + piece).split(b"\n\n")
        for event in events:
            payload = orjson.loads(event[event.index(b"data: ") + 6 :])
            if payload["type"] == "content_block_delta":
                waiting.append(Payload(None, payload["delta"]["text"].encode()))
        came.set()

    await store.apply([Open(stream_id=stream_id, generation=1)])
    call = asyncio.create_task(model.follow("/v1/messages", model_request(directive), split, headers=MODEL_HEADERS))
    call.add_done_callback(lambda _: came.set())
    last = 0
    while not call.done() or waiting:
        await came.wait()
        came.clear()
        if waiting:
            frames, waiting[:] = waiting[:], []
            await store.apply([Append(stream_id=stream_id, generation=1, first=last + 1, frames=frames)])
            last += len(frames)
    await store.apply([Close(stream_id=stream_id, settled_last=last, frames=[TERMINAL])])
    assert call.result().status == 200
    return Ingest(frames=last, wall_s=time.perf_counter() - began_s, cpu_s=time.process_time() - cpu_s)
