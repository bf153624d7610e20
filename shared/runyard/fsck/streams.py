"""Streams compared with the rows. Redis is read after the database, so it may be ahead of a snapshot,
but never behind.
"""

from collections.abc import AsyncIterator, Iterator, Sequence

import orjson

from runyard.db.records import Invocation
from runyard.frames import Frame
from runyard.fsck.findings import Code, Finding
from runyard.fsck.replay import Replay
from runyard.fsck.snapshots import SHAPE_ERRORS, Snapshot
from runyard.lifecycle.endings import committed_text, kept_last
from runyard.streams.reader import PAGE, FrameReader, StreamInfo, StreamState
from runyard.terminal import terminal_payload

STREAMS_A_CALL = 200


class Streams:
    """Checks streams. `read`: how many were read."""

    def __init__(self, reader: FrameReader) -> None:
        self.read = 0
        self._reader = reader

    async def check(self, snapshots: Sequence[Snapshot]) -> AsyncIterator[Finding]:
        """Raises `StoreUnavailable` if Redis does not answer."""
        pairs = [(snapshot, invocation) for snapshot in snapshots for invocation in snapshot.invocations]
        for at in range(0, len(pairs), STREAMS_A_CALL):
            some = pairs[at : at + STREAMS_A_CALL]
            infos = await self._reader.stored_infos([invocation.stream_id for _, invocation in some])
            for snapshot, invocation in some:
                info = infos.get(invocation.stream_id)
                if (finding := _check_state(snapshot, invocation, info)) is not None:
                    yield finding
                elif info is not None:
                    for finding in await self._check_frames(snapshot, invocation, info):
                        yield finding

    async def _check_frames(self, snapshot: Snapshot, invocation: Invocation, before: StreamInfo) -> list[Finding]:
        replay = Replay()
        cursor = 0
        while frames := await self._reader.read_stored(invocation.stream_id, cursor):
            for frame in frames:
                replay.feed(frame)
            cursor = frames[-1].seq
            if len(frames) < PAGE:
                break
        after = (await self._reader.stored_infos([invocation.stream_id])).get(invocation.stream_id)
        if after is None or after.base != before.base:
            return []  # its time was over while it was read, or it began anew
        if replay.last is None:
            return []  # nothing was written yet; or its frames went before their hash: then it is no stream any more
        self.read += 1
        try:
            return list(_check_replay(snapshot, invocation, replay, before, after))
        except SHAPE_ERRORS as error:
            return [snapshot.unreadable(error, invocation)]


def _check_state(snapshot: Snapshot, invocation: Invocation, info: StreamInfo | None) -> Finding | None:
    is_live = info is not None and info.state is StreamState.LIVE
    if invocation.settled_at is None:
        if info is None or is_live:
            return None
        return snapshot.finding(Code.STREAM_EARLY, "its stream is closed, and it is not settled", invocation)
    if is_live:
        return snapshot.finding(Code.STREAM_OPEN, "it is settled, and its stream is not closed", invocation)
    if not invocation.stream_closed:
        return snapshot.finding(
            Code.STREAM_OPEN, "it is settled, and its row does not say that its stream is closed", invocation
        )
    return None


def _check_replay(
    snapshot: Snapshot, invocation: Invocation, replay: Replay, before: StreamInfo, after: StreamInfo
) -> Iterator[Finding]:
    is_trimmed = after.first > max(1, after.base)
    if (reason := _why_torn(replay, before, after)) is not None:
        yield snapshot.finding(Code.STREAM_NUMBERS, reason, invocation)
        return  # what is missing would be found again as text
    if replay.unreadable:
        yield snapshot.finding(Code.STREAM_TEXT, f"its frame {replay.unreadable[0]} cannot be read", invocation)
    if replay.misfits and not is_trimmed:
        seq, told, left = replay.misfits[0]
        detail = f"its rewind {seq} tells that {told} characters are left, and {left} are"
        yield snapshot.finding(Code.STREAM_REWIND, detail, invocation)
    if invocation.settled_at is not None and (reason := _why_not_ended(invocation, replay)) is not None:
        yield snapshot.finding(Code.STREAM_END, reason, invocation)
    if (reason := _why_unequal(snapshot, invocation, replay, after, is_trimmed=is_trimmed)) is not None:
        yield snapshot.finding(Code.STREAM_TEXT, reason, invocation)


def _why_torn(replay: Replay, before: StreamInfo, after: StreamInfo) -> str | None:
    """What does not fit the numbers that the hash has; None: nothing. They were read before and after the frames, and
    older frames than `after.first` may have been dropped in between.
    """
    assert replay.last is not None, "it has frames"
    holes = [hole for hole in replay.holes if hole.before > after.first]
    if holes:
        return f"no frame is there between {holes[0].after} and {holes[0].before}"
    if not before.last <= replay.last.seq <= after.last:
        return f"its last frame is {replay.last.seq}, and its hash says {after.last}"
    if not before.first <= replay.first <= after.first:
        return f"its first frame is {replay.first}, and its hash says {after.first}"
    return None


def _why_not_ended(invocation: Invocation, replay: Replay) -> str | None:
    assert replay.last is not None, "it has frames"
    if replay.terminals != [replay.last.seq]:
        return f"its terminal frames are {replay.terminals}, its last frame is {replay.last.seq}"
    if invocation.result is None:
        return None  # told of the row
    wanted = terminal_payload(result=invocation.result, error=invocation.error, request_id=invocation.request_id)
    if not _is_same(replay.last, Frame(replay.last.seq, *wanted)):
        return f"its terminal frame, {replay.last.event}, is not what the row gives"
    return None


def _is_same(found: Frame, wanted: Frame) -> bool:
    try:
        return found.event == wanted.event and orjson.loads(found.data) == orjson.loads(wanted.data)
    except ValueError:
        return False


def _why_unequal(
    snapshot: Snapshot, invocation: Invocation, replay: Replay, after: StreamInfo, *, is_trimmed: bool
) -> str | None:
    """Whether the reader's text is that of the rows: of an invocation that goes on, as far as they had it.

    Of a stream without its oldest frames, the text must be the end of it.
    """
    committed = committed_text(snapshot.messages, invocation.id)
    until = None
    if invocation.settled_at is None:
        until = kept_last(
            snapshot.messages, invocation.id, base=invocation.frame_base or 0, sent=invocation.last_frame or 0
        )
        if after.last < until or after.base > until:
            return None  # frames are still to come, or it began anew since, with the text of later rows
    text = replay.text(since=after.first, until=until)
    if committed.endswith(text) if is_trimmed else committed == text:
        return None
    same = next((at for at, pair in enumerate(zip(text, committed, strict=False)) if pair[0] != pair[1]), None)
    differ = "" if same is None or is_trimmed else f"; they differ from character {same} on"
    return f"a reader has {len(text)} characters, the rows have {len(committed)}{differ}"
