"""Steps and tokens: a run's are those of its invocations, and an invocation's cover those of its rows."""

from collections import Counter
from collections.abc import Iterator, Mapping

from runyard.fsck.findings import Code, Finding
from runyard.fsck.snapshots import Snapshot
from runyard.lifecycle.endings import own_answers


def check_totals(snapshot: Snapshot) -> Iterator[Finding]:
    """An invocation may count more than its rows do: calls of the model that failed, and answers that were empty."""
    run = snapshot.run
    for invocation in snapshot.invocations:
        answers = own_answers(snapshot.messages, invocation.id)
        if invocation.steps < len(answers):
            detail = f"it counts {invocation.steps} steps, and {len(answers)} rows"
            yield snapshot.finding(Code.TOTALS, detail, invocation)
        stored = Counter[str]()
        for answer in answers:
            stored.update(answer.usage or {})
        if short := [name for name, count in invocation.usage.items() if count < stored[name]]:
            detail = f"it counts fewer {', '.join(short)} than its rows have"
            yield snapshot.finding(Code.TOTALS, detail, invocation)
    steps = sum(invocation.steps for invocation in snapshot.invocations)
    if run.steps != steps:
        yield snapshot.finding(Code.TOTALS, f"the run counts {run.steps} steps, its invocations {steps}")
    usage = Counter[str]()
    for invocation in snapshot.invocations:
        usage.update(invocation.usage)
    if _counted(run.usage) != _counted(usage):
        yield snapshot.finding(Code.TOTALS, "the run's usage is not that of its invocations")


def _counted(usage: Mapping[str, int]) -> dict[str, int]:
    return {name: count for name, count in usage.items() if count}
