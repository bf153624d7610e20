"""A claimed run and the worker's transactions on it, one at a time, in the order that a test decides."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy.ext.asyncio import AsyncConnection
from tests.contract.store.states import AT, TOTALS, assistant_turn, finished, held
from tests.fakes.rows import text, tool_use

from runyard.blocks import tool_result
from runyard.db import boundaries, quiet, turns
from runyard.db.boundaries import Boundary, Conclude, Settlement
from runyard.db.claims import Claim
from runyard.db.engine import Database
from runyard.db.records import Input, Message
from runyard.db.transcripts import AssistantTurn
from runyard.db.turns import PlannedCall
from runyard.errors import ProviderUnavailable
from runyard.lifecycle import settling

OVERLOADED = ProviderUnavailable("overloaded")


@dataclass(kw_only=True)
class Holder:
    """Settlements are made as workers make them. `connection`: a transaction that the test holds open."""

    database: Database
    claim: Claim
    rows: list[Message]
    at: int = AT + 100
    connection: AsyncConnection | None = None
    calls: list[str] = field(default_factory=list)
    """Ids of the calls of the last turn."""

    @classmethod
    async def of(cls, database: Database, claim: Claim) -> "Holder":
        rows = await database.read(turns.load_messages, claim.run.id)
        return cls(database=database, claim=claim, rows=rows)

    async def asks(self, *call_ids: str, idempotent: bool = False) -> None:
        """The model's turn asks for calls; they are planned."""
        turn = self._turn(text("Let me check."), *map(tool_use, call_ids), stop_reason="tool_use")
        planned = [PlannedCall(call_id=call_id, name="lookup", idempotent=idempotent) for call_id in call_ids]
        self.rows.append(await self._write(turns.append_turn, turn, planned, TOTALS))
        self.calls = list(call_ids)

    async def starts(self, *call_ids: str) -> None:
        indexes = [self.calls.index(call_id) for call_id in call_ids]
        await self._write(turns.start_calls, self.rows[-1].seq, starting=indexes, finished=[])

    async def finishes(self, call_id: str) -> None:
        await self._write(turns.finish_call, self.rows[-1].seq, finished(self.calls.index(call_id), f"of {call_id}"))

    async def answers(self) -> Boundary:
        """The tool boundary, with all results."""
        boundary = await self._boundary(
            quiet.append_results,
            boundaries.append_results,
            self.rows[-1].seq,
            finished=[finished(at, f"of {call_id}") for at, call_id in enumerate(self.calls)],
            results=[tool_result(call_id, f"of {call_id}", is_error=False) for call_id in self.calls],
        )
        self.rows += boundary.appended
        return boundary

    async def says(self, *words: str, results: Sequence[dict[str, Any]] = (), reason: str = "end_turn") -> Boundary:
        """The terminal boundary, with the model's last turn."""
        return await self._end(self._turn(*map(text, words), stop_reason=reason), results)

    async def stops(self) -> Boundary:
        """The terminal boundary of a run that was told to stop before the model said anything."""
        return await self._end(None, ())

    async def fails(self) -> Boundary:
        boundary: Boundary = await self._write(
            boundaries.fail_turn,
            results=await self.open_calls(),
            conclude=self._conclude(None),
            totals=TOTALS,
        )
        self.rows += boundary.appended
        return boundary

    async def open_calls(self) -> list[dict[str, Any]]:
        if not self.rows or self.rows[-1].role == "user":
            return []
        ledger = await self.database.read(turns.load_calls, self.claim.run.id, self.rows[-1].seq)
        return settling.open_calls(self.rows, ledger, not_started=settling.NOT_STARTED)

    async def _end(self, turn: AssistantTurn | None, results: Sequence[dict[str, Any]]) -> Boundary:
        end = {"turn": turn, "results": results, "conclude": self._conclude(turn), "totals": TOTALS}
        if turn is None:
            boundary: Boundary = await self._write(boundaries.end_turn, **end)
        else:
            boundary = await self._boundary(quiet.end_turn, boundaries.end_turn, **end)
        self.rows += boundary.appended
        return boundary

    def _conclude(self, turn: AssistantTurn | None) -> Conclude:
        run, invocation = self.claim.run, self.claim.invocation

        def conclude(appended: Sequence[Message], cancelled: bool, unanswered: Sequence[Input]) -> Settlement:
            rows = [*self.rows, *appended]
            if cancelled:
                return settling.cancelled(run, invocation, TOTALS, rows, last_frame=7)
            if turn is None:
                return settling.failed(run, invocation, TOTALS, rows, OVERLOADED, unanswered=unanswered, last_frame=7)
            return settling.completed(
                run,
                invocation,
                TOTALS,
                text="",
                model=turn.model,
                finish_reason=turn.stop_reason,
                result_fields={},
                last_frame=7,
            )

        return conclude

    def _turn(self, *blocks: dict[str, Any], stop_reason: str) -> AssistantTurn:
        return assistant_turn(self.rows[-1].seq + 1, content=list(blocks), stop_reason=stop_reason)

    async def _boundary(self, usual: Any, whole: Any, *args: Any, **kwargs: Any) -> Boundary:
        write = self.database.write_at_once
        stored: Boundary | None = await self._write(usual, *args, write=write, **kwargs)
        return stored or await self._write(whole, *args, **kwargs)

    async def _write(self, work: Any, *args: Any, write: Any = None, **kwargs: Any) -> Any:
        self.at += 1
        if self.connection is not None:
            return await work(self.connection, held(self.claim), *args, at=self.at, **kwargs)
        return await (write or self.database.write)(work, held(self.claim), *args, at=self.at, **kwargs)
