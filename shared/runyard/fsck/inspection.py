"""The walk over all runs. A fault that cannot pass is reported at once; what may pass is looked at again.

The rows of one run come from one snapshot, in which every invariant of the database must hold: such a fault will not
mend itself. Redis follows the database a moment later, and a death is noticed after seconds. So what looks wrong there
is only a suspect, and is reported if it still looks the same after the grace period.
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from redis.asyncio import Redis

from runyard.db.engine import Database
from runyard.errors import StoreUnavailable
from runyard.fsck.beats import Beats
from runyard.fsck.findings import Code, CouldNotLookError, Finding
from runyard.fsck.keys import Keys
from runyard.fsck.ledger import check_ledger
from runyard.fsck.snapshots import SHAPE_ERRORS, Snapshot, page_of_runs, some_runs
from runyard.fsck.states import check_states
from runyard.fsck.streams import Streams
from runyard.fsck.totals import check_totals
from runyard.fsck.transcripts import check_transcript
from runyard.streams.reader import FrameReader

GRACE_S = 25.0
"""A dead worker is noticed after 8 s and its runs go on after 11. A stream that its settler left open is found after 10
s, by a sweep that comes every 5 s, and may have to begin anew."""

FIRST_LOOK_S, LOOK_S = 0.1, 1.0
"""How long it waits before it looks again: most suspects are gone in a moment, so the pause doubles up to `LOOK_S`."""

SUSPECTS_A_LOOK = 20
"""How many runs are read together when suspects are looked at again."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Scope:
    """`since_ms`: only runs that were active since then (epoch milliseconds). `run_id`: only this one, and no keys."""

    run_id: str | None = None
    since_ms: int = 0
    grace_s: float = GRACE_S


class Inspection:
    """`runs` and `invocations` count what was looked at. The owner of `database` and `client` closes them."""

    def __init__(self, database: Database, client: Redis, *, prefix: str) -> None:
        self.runs = 0
        self.invocations = 0
        self._database = database
        self._beats = Beats(database)
        self._streams = Streams(FrameReader(client, prefix=prefix))
        self._keys = Keys(client, prefix=prefix)
        self._suspects: list[Finding] = []

    @property
    def progress(self) -> str:
        return (
            f"{self.runs} runs, {self.invocations} invocations, {self._streams.read} streams, "
            f"{self._keys.seen} keys, {len(self._suspects)} to look at again"
        )

    async def findings(self, scope: Scope) -> AsyncIterator[Finding]:
        """Each finding as soon as it is certain.

        Raises:
            CouldNotLookError: the database or Redis does not answer, or the one run does not exist.
        """
        try:
            async for finding in self._findings(scope):
                yield finding
        except StoreUnavailable as error:
            raise CouldNotLookError(str(error)) from error

    async def _findings(self, scope: Scope) -> AsyncIterator[Finding]:
        await self._beats.first_look(scope.run_id)
        async for snapshots in self._pages(scope):
            readable = []
            for snapshot in snapshots:
                found = _of_rows(snapshot)
                for finding in found:
                    yield finding
                if not any(finding.code is Code.ROWS_UNREADABLE for finding in found):
                    readable.append(snapshot)
            self._suspects += [finding async for finding in self._streams.check(readable)]
        if scope.run_id is None:
            async for finding in self._keys.check():
                yield finding
        await self._look_again(scope.grace_s)
        for finding in [*self._suspects, *await self._beats.findings()]:
            if scope.run_id in (None, finding.run_id):
                yield finding

    async def _pages(self, scope: Scope) -> AsyncIterator[Sequence[Snapshot]]:
        if scope.run_id is not None:
            snapshots = await self._database.snapshot(some_runs, [scope.run_id])
            if not snapshots:
                raise CouldNotLookError(f"there is no run {scope.run_id}")
            self._count(snapshots)
            yield snapshots
            return
        after = ""
        while snapshots := await self._database.snapshot(page_of_runs, after=after, since_ms=scope.since_ms):
            self._count(snapshots)
            yield snapshots
            after = snapshots[-1].run.id

    def _count(self, snapshots: Sequence[Snapshot]) -> None:
        self.runs += len(snapshots)
        self.invocations += sum(len(snapshot.invocations) for snapshot in snapshots)

    async def _look_again(self, grace_s: float) -> None:
        """Until nothing is suspect any more, or the grace period is over."""
        now = asyncio.get_running_loop().time
        deadline, pause_s = now() + grace_s, FIRST_LOOK_S
        while (self._suspects or self._beats.silent) and now() < deadline:
            await asyncio.sleep(min(pause_s, deadline - now()))
            pause_s = min(2 * pause_s, LOOK_S)
            await self._beats.look_again()
            await self._look_at_suspects()

    async def _look_at_suspects(self) -> None:
        """Keep those that still look the same."""
        by_run = defaultdict[str, list[Finding]](list)
        for suspect in self._suspects:
            by_run[suspect.run_id or ""].append(suspect)
        self._suspects = []
        run_ids = list(by_run)
        for at in range(0, len(run_ids), SUSPECTS_A_LOOK):
            some = run_ids[at : at + SUSPECTS_A_LOOK]
            before = {suspect.place for run_id in some for suspect in by_run[run_id]}
            snapshots = await self._database.snapshot(some_runs, some)
            self._suspects += [finding async for finding in self._streams.check(snapshots) if finding.place in before]


def _of_rows(snapshot: Snapshot) -> list[Finding]:
    checks = (check_states, check_totals, check_transcript, check_ledger)
    try:
        return [finding for check in checks for finding in check(snapshot)]
    except SHAPE_ERRORS as error:
        return [snapshot.unreadable(error)]
