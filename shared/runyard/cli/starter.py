"""`runyard new`: a file to begin an agent with."""

import re
from pathlib import Path

from runyard.errors import StartError

NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")
"""What workers take for an agent's name, which is its file's."""

AGENT = '''"""The agent `{name}`: an agent's name is its file's."""

from datetime import UTC, date, datetime

from runyard import RunContext, agent, tool


@tool
async def days_until(ctx: RunContext, day: str) -> dict[str, int]:
    """Count the days from today to another day.

    Args:
        day: The other day, like 2030-12-31.
    """
    days = (date.fromisoformat(day) - datetime.now(UTC).date()).days
    await ctx.stream.event("counted", {{"days": days}})
    return {{"days": days}}


{name} = agent(
    system="You help people plan. Never count days yourself: call `days_until`.",
    tools=[days_until],
)
'''


def write(name: str, folder: Path) -> Path:
    """The new file.

    Raises:
        StartError: that is no name for an agent, or there is such a file, which stays as it is.
    """
    if NAME.fullmatch(name) is None:
        raise StartError(
            "an agent's name has small letters, digits and _, begins with a letter, and is at most 64 long"
        )
    path = folder / f"{name}.py"
    if path.exists():
        raise StartError(f"{path} is there already, and stays as it is")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            file.write(AGENT.format(name=name))
    except OSError as error:
        raise StartError(f"{path} cannot be written: {error.strerror}") from None
    return path
