"""SQLite while another process holds its one write lock."""

import asyncio
import subprocess
import sys

import pytest
from tests.integration.fixtures import on_sqlite
from tests.integration.stack import Stack
from tests.standin import says

pytestmark = pytest.mark.anyio

RUNS = 20
HELD_S = 2

LOCK = """
import sqlite3, sys, time
link = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=30)
link.execute("BEGIN IMMEDIATE")
print("held", flush=True)
time.sleep(float(sys.argv[2]))  # the length of the lock is what is tested
link.execute("COMMIT")
print("released", flush=True)
"""


@on_sqlite
async def test_runs_wait_for_a_lock_held_from_outside(stack: Stack, unique: str) -> None:
    stack.standin.answers(
        says("a").calls("charge", {"order": "x"}).calls("look_up", {"order": "x"}).each_delta(unique),
        says("b"),
        by="turn",
        contains="early",
    )
    stack.standin.answers(says("late answer"), by="turn", contains="late")
    api = stack.gateway.user()
    started = await asyncio.gather(*(api.start("clerk", f"early {number}") for number in range(RUNS)))
    await stack.standin.gate(unique).reached(RUNS)
    lock = await asyncio.create_subprocess_exec(
        sys.executable, "-c", LOCK, stack.database.url.database or "", str(HELD_S), stdout=subprocess.PIPE
    )
    assert lock.stdout is not None
    assert await lock.stdout.readline() == b"held\n"
    stack.standin.gate(unique).release()
    late = await asyncio.gather(*(api.start("talker", f"late {number}") for number in range(3)))
    assert await lock.stdout.read() == b"released\n"
    assert await lock.wait() == 0
    for run in [*started, *late]:
        result = await api.settled(run["invocationId"])
        assert result["status"] == "completed"
        rows = await api.messages(run["runId"])
        stack.standin.validate_transcript([{"role": row["role"], "content": row["content"]} for row in rows])
    for run in started:
        assert len(stack.effects(run["runId"])) == 2
