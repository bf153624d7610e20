"""The watcher alone: what one stream's rows do to the readers of others."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import orjson
import pytest
from structlog.testing import capture_logs
from tests.fakes.rows import claim

from runyard.db.reads import invocations_by_stream
from runyard.db.records import Invocation
from runyard.errors import InternalError, RunyardError
from runyard.frames import Frame
from runyard.runs import RunStatus
from runyard.streams.reader import StreamInfo, StreamState
from runyard_gateway import watcher as watcher_module
from runyard_gateway.watcher import Watcher

pytestmark = pytest.mark.anyio

GUARD_S = 5.0
RESULT = {"status": "completed"}


def settled(stream_id: str, **fields: Any) -> Invocation:
    of_completed = {"status": RunStatus.COMPLETED, "settled_at": 1, "last_frame": 3, "closing_rows": 0}
    return claim(stream_id=stream_id, **of_completed, **fields).invocation


class Silent:
    """Stands in for a hub all of whose streams are silent, and keeps what the watcher tells their readers."""

    redis_away = False

    def __init__(self, stream_ids: Sequence[str]) -> None:
        self.told: dict[str, Sequence[Frame] | RunyardError] = {}
        self.all_told = asyncio.Event()
        self.nudged: set[str] = set()
        self._stream_ids = stream_ids

    def silent(self, for_s: float) -> list[str]:
        return [stream_id for stream_id in self._stream_ids if stream_id not in self.told]

    def finish(self, stream_id: str, frames: Sequence[Frame]) -> None:
        self._tell(stream_id, frames)

    def fail(self, stream_id: str, error: RunyardError) -> None:
        self._tell(stream_id, error)

    def nudge(self, stream_id: str) -> None:
        self.nudged.add(stream_id)

    def _tell(self, stream_id: str, told: Sequence[Frame] | RunyardError) -> None:
        self.told[stream_id] = told
        if len(self.told) == len(self._stream_ids):
            self.all_told.set()


async def test_an_end_that_cannot_be_made_costs_no_other_reader_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watcher_module, "TELL_S", 0.01)
    monkeypatch.setattr(watcher_module, "CHECK_S", 0.0)
    rows = {"st_bad": settled("st_bad", result={}, error={}), "st_good": settled("st_good", result=RESULT)}
    hub = Silent(list(rows))

    async def read(work: Any, *_args: Any) -> Any:
        return rows if work is invocations_by_stream else ("", 0)

    async def infos(_stream_ids: Sequence[str]) -> dict[str, Any]:
        return {}

    database: Any = SimpleNamespace(read=read)
    reader: Any = SimpleNamespace(infos=infos)
    standings: Any = None  # none of the runs is queued
    watched: Any = hub
    with capture_logs() as logs:
        watching = asyncio.create_task(Watcher(database, reader, watched, standings).run())
        told = asyncio.create_task(hub.all_told.wait())
        await asyncio.wait([watching, told], timeout=GUARD_S, return_when=asyncio.FIRST_COMPLETED)
        assert not watching.done(), watching.exception()
        assert told.done()
        watching.cancel()
    bad, good = hub.told["st_bad"], hub.told["st_good"]
    assert isinstance(bad, InternalError)
    assert not isinstance(good, RunyardError)
    assert orjson.loads(good[-1].data) == RESULT
    assert [entry["stream_id"] for entry in logs if entry["log_level"] == "error"] == ["st_bad"]


async def test_a_stream_whose_last_frames_redis_does_not_have_is_ended_at_once() -> None:
    """As one that is out of memory refused them. One that has them all is closed by a worker, in a moment."""
    rows = {name: settled(name, result=RESULT) for name in ("st_whole", "st_lacking", "st_not_reset")}
    rows["st_not_reset"] = replace(rows["st_not_reset"], frame_base=1_000_003)
    kept = {name: StreamInfo(StreamState.LIVE, first=1, last=3, base=0, generation=1) for name in rows}
    kept["st_lacking"] = kept["st_lacking"]._replace(last=2)
    hub = Silent(list(rows))

    async def read(work: Any, *_args: Any) -> Any:
        return rows if work is invocations_by_stream else ("", 0)

    async def infos(_stream_ids: Sequence[str]) -> dict[str, StreamInfo]:
        return kept

    database: Any = SimpleNamespace(read=read)
    reader: Any = SimpleNamespace(infos=infos)
    standings: Any = None  # none of the runs is queued
    watched: Any = hub
    await Watcher(database, reader, watched, standings)._check(list(rows))
    assert hub.told.keys() == {"st_lacking", "st_not_reset"}
    assert hub.nudged == {"st_whole"}
