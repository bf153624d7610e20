"""A run, its invocations and its inputs agree on the run's state, and no input waits for a turn that cannot come."""

from collections.abc import Iterator
from itertools import groupby

from runyard.blocks import as_blocks
from runyard.db.inputs import user_content
from runyard.db.records import Input, Invocation
from runyard.fsck.findings import Code, Finding
from runyard.fsck.snapshots import Snapshot
from runyard.priorities import PENALTY_MS
from runyard.runs import AT_REST, BUSY, SETTLED, CallState, RunStatus


def check_states(snapshot: Snapshot) -> Iterator[Finding]:
    yield from _check_run(snapshot)
    for invocation in snapshot.invocations:
        if invocation.settled_at is not None:
            yield from _check_settled(snapshot, invocation)
        elif invocation is not snapshot.newest:
            yield from _check_replacement(snapshot, invocation)
    for item in snapshot.inputs:
        if item.folded_in_seq is None and (reason := _why_stranded(snapshot, item)):
            opened = snapshot.invocation_of(item)
            yield snapshot.finding(Code.INPUT_STRANDED, f"the input {item.id} waits, and {reason}", opened)
    yield from _check_folded(snapshot)


def _check_run(snapshot: Snapshot) -> Iterator[Finding]:
    run, newest = snapshot.run, snapshot.newest
    if (run.status is RunStatus.RUNNING) != (run.worker_id is not None):
        yield snapshot.finding(Code.RUN_WORKER, f"it is {run.status}, and its worker is {run.worker_id}")
    elif run.worker_id is not None and not snapshot.has_worker:
        yield snapshot.finding(Code.RUN_WORKER, f"it runs on {run.worker_id}, which has no row")
    if newest is None:
        if run.invocation_id is not None or run.status not in AT_REST:
            detail = f"it is {run.status}, and its invocation {run.invocation_id} is not there"
            yield snapshot.finding(Code.RUN_STATUS, detail)
        return  # nothing was asked of it yet, or it was cleared
    if newest.status is not run.status or (newest.settled_at is not None) != (run.status in SETTLED):
        settled = "settled" if newest.settled_at is not None else "not settled"
        detail = f"it is {run.status}, its invocation is {newest.status} and {settled}"
        yield snapshot.finding(Code.RUN_STATUS, detail, newest)
    if run.status is RunStatus.QUEUED:
        yield from _check_queued(snapshot, newest)
    if run.status is RunStatus.WAITING and all(call.state is CallState.FINISHED for call in snapshot.calls):
        yield snapshot.finding(Code.RUN_PENDING, "it waits, and every call has its result", newest)


def _check_queued(snapshot: Snapshot, newest: Invocation) -> Iterator[Finding]:
    run = snapshot.run
    if not run.queue or not run.agent:
        yield snapshot.finding(Code.RUN_QUEUE, "it is queued without an agent or without a queue", newest)
    # Of either class: the row has that of a call that waits to take this one's place.
    if run.rank - newest.created_at not in PENALTY_MS.values():
        detail = f"its place in the queue is {run.rank}, and it was accepted at {newest.created_at}"
        yield snapshot.finding(Code.RUN_QUEUE, detail, newest)
    if newest.started_at is None and not _opening_waits(snapshot, newest):
        yield snapshot.finding(Code.RUN_PENDING, "it is queued, and no input opens its invocation", newest)


def _opening_waits(snapshot: Snapshot, invocation: Invocation) -> bool:
    return any(
        item.opens and item.folded_in_seq is None and item.invocation_id == invocation.id for item in snapshot.inputs
    )


def _check_settled(snapshot: Snapshot, invocation: Invocation) -> Iterator[Finding]:
    """A settled invocation has everything that the end of its stream is made from, and its result
    agrees with its row.
    """
    result = invocation.result
    if (
        result is None
        or invocation.last_frame is None
        or invocation.last_seq not in range(1, snapshot.run.last_seq + 1)
    ):
        yield snapshot.finding(
            Code.INVOCATION_RESULT, "it is settled without what the end of its stream says", invocation
        )
        return
    if (invocation.error is not None) != (invocation.status is RunStatus.FAILED):
        detail = f"it is {invocation.status}, {'with' if invocation.error else 'without'} an error"
        yield snapshot.finding(Code.INVOCATION_RESULT, detail, invocation)
    row = {
        "status": invocation.status,
        "steps": invocation.steps,
        "usage": invocation.usage,
        "invocationId": invocation.id,
        "streamId": invocation.stream_id,
    }
    if differing := [name for name, value in row.items() if result.get(name) != value]:
        detail = f"its result and its row differ in {', '.join(differing)}"
        yield snapshot.finding(Code.INVOCATION_RESULT, detail, invocation)


def _check_replacement(snapshot: Snapshot, invocation: Invocation) -> Iterator[Finding]:
    """An invocation that is neither settled nor the run's current one must come next (`ifBusy: cancel`), or nobody will
    run it.
    """
    is_next = (
        invocation.status is RunStatus.QUEUED
        and invocation.started_at is None
        and snapshot.run.status in BUSY
        and _opening_waits(snapshot, invocation)
    )
    if not is_next:
        detail = f"it is {invocation.status} and not settled, and its run, {snapshot.run.status}, is at another one"
        yield snapshot.finding(Code.INVOCATION_STRANDED, detail, invocation)


def _why_stranded(snapshot: Snapshot, item: Input) -> str | None:
    """None: something that folds it, or hands it back, is still to come."""
    invocation, newest = snapshot.invocation_of(item), snapshot.newest
    if invocation is None:
        return "its invocation is not there"
    if invocation.settled_at is None:
        return "its invocation has begun without it" if item.opens and invocation.started_at is not None else None
    if newest is None or (newest.settled_at is None and newest.started_at is None):
        return None  # the next turn folds it
    unanswered = (invocation.result or {}).get("unanswered", [])
    if invocation is newest and any(listed["id"] == item.id for listed in unanswered):
        return None  # it was handed back, and the next turn folds it
    return "its invocation is settled"


def _check_folded(snapshot: Snapshot) -> Iterator[Finding]:
    """Each row into which inputs were folded contains them, after the results that it may begin with."""
    rows = {row.seq: row for row in snapshot.messages}
    folded = sorted(
        (item.folded_in_seq, item.position, item) for item in snapshot.inputs if item.folded_in_seq is not None
    )
    for seq, group in groupby(folded, key=lambda each: each[0]):
        inputs = [item for _, _, item in group]
        row = rows.get(seq)
        names = ", ".join(item.id for item in inputs)
        if row is None or row.role != "user":
            yield snapshot.finding(Code.INPUT_FOLDED, f"row {seq}, which should hold {names}, is not there")
            continue
        results = [block for block in as_blocks(row.content) if block["type"] == "tool_result"]
        if row.content != user_content(results, inputs):
            invocation = snapshot.invocation_of(row)
            yield snapshot.finding(Code.INPUT_FOLDED, f"row {seq} does not hold {names} as it was sent", invocation)
