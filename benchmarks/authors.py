"""Writers for the readers of a benchmark: frames as a worker writes them, and the bytes of the floor."""

import asyncio
import contextlib
import re
import tempfile
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import orjson

from benchmarks.processes import Process, started
from benchmarks.system import System
from runyard.frames import Frame, text_payload
from runyard.streams.ops import Append, Open, Status
from runyard.streams.store import FrameStore
from runyard_gateway.sse import encode

AGENT = "watched"
WORDS = "the quick brown fox jumps over the lazy dog "
CALLERS = 16
STREAMS_A_CALL = 250
NOTHING = re.compile(rb"(?!)")


@dataclass(kw_only=True)
class Author:
    """Writes streams of accepted runs, as the worker would that has claimed them."""

    store: FrameStore
    lasts: dict[str, int] = field(default_factory=dict)
    """The number of each stream's last frame."""

    @property
    def stream_ids(self) -> list[str]:
        return list(self.lasts)

    async def append(self, stream_ids: Sequence[str], count: int) -> None:
        """So many frames to each, in one call."""
        frames = [text_payload(WORDS)] * count
        await self._apply(
            [
                Append(stream_id=stream_id, generation=1, first=self.lasts[stream_id] + 1, frames=frames)
                for stream_id in stream_ids
            ]
        )
        for stream_id in stream_ids:
            self.lasts[stream_id] += count

    async def begin(self, system: System, count: int) -> None:
        """So many more streams, each of a run that waits for a worker."""
        before = set(self.lasts)

        async def start(some: int) -> None:
            caller = await system.caller()
            for _ in range(some):
                answer = await caller.post(f"/v1/agents/{AGENT}/runs", {"input": "go"}, text=NOTHING)
                assert answer.status == 202, (answer.status, answer.body)
                self.lasts[orjson.loads(answer.body)["streamId"]] = 0
            caller.close()

        await asyncio.gather(*(start(count // CALLERS + (number < count % CALLERS)) for number in range(CALLERS)))
        new = [stream_id for stream_id in self.lasts if stream_id not in before]
        for at in range(0, len(new), STREAMS_A_CALL):
            await self._apply([Open(stream_id=each, generation=1) for each in new[at : at + STREAMS_A_CALL]])

    async def _apply(self, ops: Sequence[Open | Append]) -> None:
        answers = await self.store.apply(ops)
        assert {answer.status for answer in answers} == {Status.OK}


@dataclass(frozen=True, kw_only=True)
class Raw:
    """The floor's process."""

    process: Process
    url: str
    writer: asyncio.StreamWriter

    async def write(self, count: int) -> None:
        """So many frames to all who listen."""
        body = b"".join(encode(Frame(seq, *text_payload(WORDS))) for seq in range(1, count + 1))
        self.writer.write(len(body).to_bytes(4) + body)
        await self.writer.drain()


@contextlib.asynccontextmanager
async def raw_server() -> AsyncIterator[Raw]:
    with tempfile.TemporaryDirectory(prefix="runyard-bench-") as folder:
        async with started("benchmarks.floors.fan_out", {}, Path(folder) / "raw.log") as process:
            port = (await process.logged("listens"))["port"]
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            yield Raw(process=process, url=f"http://127.0.0.1:{port}", writer=writer)
            writer.close()
