"""Steps and tokens: a run's cover those of its invocations, and an invocation's those of its rows."""

from collections import Counter
from collections.abc import Iterator

from runyard.fsck.findings import Code, Finding
from runyard.fsck.snapshots import Snapshot
from runyard.lifecycle.endings import own_answers


def check_totals(snapshot: Snapshot) -> Iterator[Finding]:
    """An invocation may count more than its rows do: calls of the model that failed, and answers that were empty. A run
    may count more than its invocations do: those that were cleared.
    """
    run = snapshot.run
    for invocation in snapshot.invocations:
        answers = own_answers(snapshot.messages, invocation.id)
        turns = sum(answer.model is not None for answer in answers)  # a function's rows are no steps
        if invocation.steps < turns:
            detail = f"it counts {invocation.steps} steps, and {turns} rows"
            yield snapshot.finding(Code.TOTALS, detail, invocation)
        stored = Counter[str]()
        for answer in answers:
            stored.update(answer.usage or {})
        if short := [name for name, count in invocation.usage.items() if count < stored[name]]:
            detail = f"it counts fewer {', '.join(short)} than its rows have"
            yield snapshot.finding(Code.TOTALS, detail, invocation)
    steps = sum(invocation.steps for invocation in snapshot.invocations)
    if run.steps < steps:
        yield snapshot.finding(Code.TOTALS, f"the run counts {run.steps} steps, its invocations {steps}")
    spent = Counter[str]()
    for invocation in snapshot.invocations:
        spent.update(invocation.usage)
    if short := [name for name, count in spent.items() if run.usage.get(name, 0) < count]:
        yield snapshot.finding(Code.TOTALS, f"the run counts fewer {', '.join(short)} than its invocations")
