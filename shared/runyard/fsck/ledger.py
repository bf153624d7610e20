"""The ledger of calls and the transcript agree: which calls there were, and what came of them."""

from collections import defaultdict
from collections.abc import Iterator, Sequence

from runyard.blocks import as_blocks, tool_result, tool_uses
from runyard.db.records import Call, Message
from runyard.fsck.findings import Code, Finding
from runyard.fsck.snapshots import Snapshot
from runyard.runs import CallState, FinishReason

PLANNED_BY = frozenset({FinishReason.TOOL_USE, FinishReason.PAUSE_TURN})
"""Turns with these stop reasons have their calls in the ledger. Calls of a turn that was cut or refused may never have
been planned; then they are answered with errors."""


def check_ledger(snapshot: Snapshot) -> Iterator[Finding]:
    ledger = defaultdict[int, list[Call]](list)
    for call in snapshot.calls:
        ledger[call.assistant_seq].append(call)
    for at, row in enumerate(snapshot.messages):
        if row.role != "assistant":
            continue
        calls = ledger.pop(row.seq, [])
        invocation = snapshot.invocation_of(row)
        if invocation is not None and not invocation.calls_kept and not calls:
            continue  # they were old (`runyard.db.retention`)
        if not _same_calls(row, calls):
            detail = f"its {len(calls)} calls of row {row.seq} are not those that the row asks for"
            yield snapshot.finding(Code.LEDGER_CALLS, detail, invocation)
            continue
        answers = snapshot.messages[at + 1] if at + 1 < len(snapshot.messages) else None
        yield from _check_results(snapshot, row, calls, answers)
    for seq in ledger:
        yield snapshot.finding(Code.LEDGER_CALLS, f"it has calls of row {seq}, which asks for none")


def _same_calls(row: Message, calls: Sequence[Call]) -> bool:
    blocks = tool_uses(row.content)
    if not calls:
        return not blocks or row.stop_reason not in PLANNED_BY
    wanted = [(index, row.invocation_id, block["id"], block["name"]) for index, block in enumerate(blocks)]
    return wanted == [(call.index, call.invocation_id, call.call_id, call.name) for call in calls]


def _check_results(
    snapshot: Snapshot, row: Message, calls: Sequence[Call], answers: Message | None
) -> Iterator[Finding]:
    invocation = snapshot.invocation_of(row)
    results = {
        block["tool_use_id"]: block
        for block in (as_blocks(answers.content) if answers is not None else ())
        if block["type"] == "tool_result"
    }
    for call in calls:
        where = f"{call.call_id} of row {row.seq}"
        if call.state is not CallState.FINISHED:
            if not snapshot.may_be_open(row):
                yield snapshot.finding(Code.LEDGER_OPEN, f"the call {where} is still {call.state}", invocation)
        elif (result := results.get(call.call_id)) is not None:  # one that is missing is the transcript's fault
            stored = tool_result(call.call_id, call.content or "", is_error=bool(call.is_error))
            if result != stored:
                detail = f"the result of the call {where} is not the one that the transcript has"
                yield snapshot.finding(Code.LEDGER_RESULT, detail, invocation)
