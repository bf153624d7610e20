"""`runyard fsck` as an operator runs it, beside a system at work: what it prints, and its exit code."""

import asyncio
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.integration.commands import Command, Here
from tests.integration.fixtures import on_postgres, on_sqlite
from tests.integration.processes import WORKSPACE, eventually
from tests.integration.stack import Stack
from tests.standin import hold, says

pytestmark = pytest.mark.anyio

RUNS = 20


NEEDED = ("RUNYARD_DATABASE_URL", "RUNYARD_REDIS_URL", "RUNYARD_PREFIX", "PATH")


@pytest.fixture
def process(stack: Stack) -> Command:
    """With the settings that it needs and no others."""
    environment = {name: value for name, value in stack.environment().items() if name in NEEDED}
    return Command(environment=environment, folder=WORKSPACE)


@pytest.fixture
def here(process: Command, capsys: pytest.CaptureFixture[str]) -> Here:
    return Here(environment=process.environment, capture=capsys)


async def short_run(stack: Stack) -> dict[str, Any]:
    """Its result, once its row says that its stream is closed."""
    stack.standin.answers(says("All done."))
    result = await stack.gateway.user().run("talker")
    closed = "SELECT id FROM agent_invocations WHERE id = :invocation AND stream_closed"
    await eventually(lambda: stack.execute(closed, invocation=result["invocationId"]), "closed stream")
    return result


async def test_a_system_at_work_is_sound(stack: Stack, process: Command, here: Here, unique: str) -> None:
    stack.standin.answers(
        says("Let me look. ").calls("look_up", {"order": "a"}), says("All done."), by="turn", contains="<short>"
    )
    stack.standin.answers(says("Long ", hold(unique), "talk."), contains="<long>")
    api = stack.gateway.user()
    since = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%S}"
    long = await api.start("talker", "<long>")
    await stack.standin.gate(unique).reached()
    looking = asyncio.create_task(process("fsck", "--since", since))
    await asyncio.gather(*(api.run("clerk", f"<short> {number}") for number in range(RUNS)))
    during, beside = await looking, await here("fsck", "--run", long["runId"])
    stack.standin.gate(unique).release()
    await api.settled(long["invocationId"])
    after = await here("fsck", "--since", since)
    for done in (during, beside, after):
        assert (done.code, done.out) == (0, ""), done.err
    assert beside.err == "fsck: 1 runs, 1 invocations, 1 streams, 0 keys, 0 to look at again: nothing is broken\n"
    assert f"fsck: {RUNS + 1} runs, {RUNS + 1} invocations, {RUNS + 1} streams, " in after.err


async def test_what_is_broken_is_printed_with_its_ids(stack: Stack, here: Here) -> None:
    result = await short_run(stack)
    run_id, invocation_id, stream_id = result["runId"], result["invocationId"], result["streamId"]
    stack.execute("UPDATE agent_runs SET steps = 0 WHERE id = :run", run=run_id)
    stack.redis.hset(f"{stack.backing.prefix}:stream:{stream_id}:meta", "state", "live")
    plain = await here("fsck", "--run", run_id, "--grace", "0")
    as_json = await here("fsck", "--run", run_id, "--grace", "0.1", "--json")
    counts, is_open = "the run counts 0 steps, its invocations 1", "it is settled, and its stream is not closed"
    assert plain.out.splitlines() == [
        f"totals {run_id}: {counts}",
        f"stream-open {run_id} {invocation_id} {stream_id}: {is_open}",
    ]
    assert plain.err == "fsck: 1 runs, 1 invocations, 0 streams, 0 keys, 1 to look at again: 2 findings\n"
    assert list(map(json.loads, as_json.out.splitlines())) == [
        {"code": "totals", "runId": run_id, "detail": counts},
        {
            "code": "stream-open",
            "runId": run_id,
            "invocationId": invocation_id,
            "streamId": stream_id,
            "detail": is_open,
        },
    ]
    assert plain.code == as_json.code == 1


@on_postgres
async def test_a_part_that_does_not_answer_is_not_called_broken(stack: Stack, here: Here) -> None:
    one = ("fsck", "--run", (await short_run(stack))["runId"])
    nowhere = await here(*one, RUNYARD_REDIS_URL="redis://127.0.0.1:1")
    assert (nowhere.code, nowhere.out, nowhere.err) == (2, "", "error: Redis does not answer\n")
    nothing = await here(*one, RUNYARD_DATABASE_URL="postgresql://postgres@127.0.0.1:1/none")
    assert (nothing.code, nothing.out) == (2, "")
    assert nothing.err.startswith("error: the database cannot be reached: ")
    unknown = await here("fsck", "--run", "run_none")
    assert (unknown.code, unknown.out, unknown.err) == (2, "", "error: there is no run run_none\n")


@on_sqlite
async def test_a_database_that_is_not_runyards(here: Here, tmp_path: Path) -> None:
    empty = await here("fsck", RUNYARD_DATABASE_URL=f"sqlite:///{tmp_path}/empty.db")
    assert (empty.code, empty.err) == (2, "error: the database has not been migrated: run `runyard migrate`\n")
