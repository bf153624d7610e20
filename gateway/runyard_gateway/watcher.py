"""Watches the rows behind silent streams, so that no reader waits for a frame that will never come.

Every 5 s, or every second while Redis is away, one statement asks for all of them. Callers of queued runs are told
their position after a second, and then every 5 s. A stream of a settled invocation gets its end from the rows if Redis
does not have the stream any more, or not all of its frames, or if nobody has closed it for a while.
"""

import asyncio
import time

import structlog

from runyard.db.engine import Database
from runyard.db.reads import invocations_by_stream
from runyard.db.records import Invocation
from runyard.errors import InternalError, RunNotFound, StoreUnavailable
from runyard.frames import Frame, FrameEvent, event_payload
from runyard.streams.reader import FrameReader, StreamInfo, StreamState
from runyard_gateway.from_rows import settled_frames
from runyard_gateway.hub import Hub
from runyard_gateway.standings import Standings

CHECK_S = 5.0
CHECK_REDIS_AWAY_S = 1.0
TELL_S = 1.0
"""A caller is told the call's position if no worker has claimed it after this time."""

LATE_CLOSE_S = 15.0
"""The worker that settled the invocation closes its stream at once; if not, any worker does after 10 s."""

log = structlog.get_logger()


class Watcher:
    def __init__(self, database: Database, reader: FrameReader, hub: Hub, standings: Standings) -> None:
        self._database = database
        self._reader = reader
        self._hub = hub
        self._standings = standings
        self._unclosed_since: dict[str, float] = {}
        self._asked: set[str] = set()
        """Silent streams whose callers were told their position already, if they have one."""

    async def run(self) -> None:
        """Watch until cancelled. Rows that cannot be read must not end the watcher, and with it the whole gateway."""
        checked_at = time.monotonic()
        while True:
            await asyncio.sleep(TELL_S)
            interval_s = CHECK_REDIS_AWAY_S if self._hub.redis_away else CHECK_S
            is_due = time.monotonic() - checked_at >= interval_s
            try:
                if is_due:
                    checked_at = time.monotonic()
                    await self._check(self._hub.silent(interval_s))
                else:
                    await self._tell_newcomers()
            except StoreUnavailable as error:
                log.warning("silent streams not checked", error=str(error))
            except Exception:
                log.exception("silent streams unreadable", code=InternalError.code)

    async def _tell_newcomers(self) -> None:
        """Tell the callers of runs that have just begun to wait, before the next check."""
        began_s = time.monotonic()
        silent = set(self._hub.silent(TELL_S))
        newcomers, self._asked = silent - self._asked, silent
        await self._tell_positions(list(newcomers), began_s)

    async def _check(self, stream_ids: list[str]) -> None:
        if not stream_ids:
            self._unclosed_since.clear()
            return
        began_s = time.monotonic()
        invocations = await self._rows(stream_ids)
        settled = {key: invocation for key, invocation in invocations.items() if invocation.settled_at is not None}
        kept = await self._kept(settled)
        unclosed_since = self._unclosed_since
        self._unclosed_since = {}
        for stream_id, invocation in settled.items():
            info = None if kept is None else kept.get(stream_id)
            if kept is not None and info is None and invocation.redis_run_id is not None:
                log.warning("frames not found", stream_id=stream_id, settings="RUNYARD_REDIS_URL, RUNYARD_PREFIX")
            since = unclosed_since.get(stream_id, time.monotonic())
            is_open = info is not None and info.state is StreamState.LIVE
            if info is None or (is_open and (_lacks(info, invocation) or time.monotonic() - since >= LATE_CLOSE_S)):
                await self._end(invocation)
            else:
                self._unclosed_since[stream_id] = since
                self._hub.nudge(stream_id)  # its readers may be slow, or a batch was lost
        await self._tell_positions([key for key in invocations if key not in settled], began_s)

    async def _rows(self, stream_ids: list[str]) -> dict[str, Invocation]:
        """The invocations of these streams. Those that have none, or one that cannot be read, are ended."""
        try:
            found = await self._database.read(invocations_by_stream, stream_ids)
        except StoreUnavailable:
            raise
        except Exception as error:  # noqa: BLE001 - logged with the stream that it comes from
            if len(stream_ids) == 1:
                self._fail(stream_ids[0], error)
                return {}
            log.warning("rows of silent streams unreadable together", streams=len(stream_ids))
            return {key: row for each in stream_ids for key, row in (await self._rows([each])).items()}
        for stream_id in set(stream_ids) - found.keys():
            self._hub.fail(stream_id, RunNotFound("the run was deleted", streamId=stream_id))
        return found

    def _fail(self, stream_id: str, error: Exception) -> None:
        """End a stream whose rows cannot be read, for its readers alone."""
        log.error("rows of a stream unreadable", code=InternalError.code, stream_id=stream_id, exc_info=error)
        self._hub.fail(stream_id, InternalError("the stream's rows cannot be read", streamId=stream_id))

    async def _tell_positions(self, stream_ids: list[str], as_of_s: float) -> None:
        """Tell the callers of those runs that are queued what they wait for."""
        if not stream_ids:
            return
        for stream_id, standing in (await self._standings.of(stream_ids)).items():
            frame = Frame(0, *event_payload(FrameEvent.STATUS, standing.frame()))
            self._hub.tell(stream_id, frame, as_of_s=as_of_s)

    async def _kept(self, settled: dict[str, Invocation]) -> dict[str, StreamInfo] | None:
        """Those of the streams that Redis has; None while it is away."""
        if not settled:
            return {}
        try:
            return await self._reader.infos(settled.keys())
        except StoreUnavailable:
            return None

    async def _end(self, invocation: Invocation) -> None:
        stream_id = invocation.stream_id
        try:
            frames = await settled_frames(self._database, invocation)
        except StoreUnavailable:
            raise
        except Exception as error:  # noqa: BLE001 - `_fail` logs it
            self._fail(stream_id, error)
        else:
            log.info("stream ended from its rows", stream_id=stream_id, invocation_id=invocation.id)
            self._hub.finish(stream_id, frames)


def _lacks(info: StreamInfo, invocation: Invocation) -> bool:
    """Whether Redis has fewer frames than the settled row, so that only a reset can close the stream: a Redis that is
    out of memory refused them, or their worker died with them.
    """
    return info.last < max(invocation.last_frame or 0, invocation.frame_base or 0)
