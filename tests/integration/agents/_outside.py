"""The world outside of the processes: effects that stay, gates that hold a tool, in files that the tests look at."""

import asyncio
import os
from pathlib import Path

from runyard import RunContext
from runyard_workers import calls

calls.CANCEL_GRACE_S = 600.0
"""After a cancel no tool at a gate is abandoned, however slow the test is that opens it. That this time ends is what
`tests/contract/execution/test_cancel.py` shows.
"""

FOLDER = Path(os.environ["TEST_FOLDER"])
POLL_S = 0.01


def act(ctx: RunContext, effect: str) -> None:
    """One line, written at once: whoever dies right after it has acted."""
    line = f"{ctx.run_id} {effect}\n".encode()
    file = os.open(FOLDER / "effects", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(file, line)
    finally:
        os.close(file)


def reach(gate: str) -> None:
    """Tell the test that the tool is here."""
    (FOLDER / f"reached-{gate}").touch()


async def wait_at(gate: str) -> None:
    """Until a test opens the gate."""
    reach(gate)
    while not (FOLDER / f"gate-{gate}").exists():  # noqa: ASYNC110 - a test sets no event in this process
        await asyncio.sleep(POLL_S)
