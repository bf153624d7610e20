"""`runyard new`: the files to begin an agent with."""

import keyword
import re
from pathlib import Path

from runyard.errors import StartError
from runyard.names import AGENT_NAME

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


{variable} = agent(
    system="You help people plan. Never count days yourself: call `days_until`.",
    tools=[days_until],
)
'''


TEST = '''"""Tests of `{agent}`, without a service or a key: `pip install 'runyard[testing]' pytest`, then `pytest`."""


def test_days_are_counted(harness):
    h = harness("{agent}")
    h.model.says("I count.").calls("days_until", day="2030-12-31").says("Not long.")

    result = h.run("How many days until 2030-12-31?")

    assert (result.status, result.text) == ("completed", "Not long.")
    assert [call.is_error for call in result.calls] == [False]
    assert len(result.events("counted")) == 1


def test_the_model_is_told_what_is_no_day(harness):
    h = harness("{agent}")
    h.model.calls("days_until", day="soon").says("Which day do you mean?")

    result = h.run("How many days until soon?")

    assert result.calls[0].is_error
    assert "Invalid isoformat string" in result.calls[0].result
'''


def write(name: str, folder: Path, tests: Path) -> tuple[Path, Path]:
    """The new files: the agent, and its tests.

    Raises:
        StartError: that is no name for an agent, or there is such a file, which stays as it is.
    """
    if AGENT_NAME.fullmatch(name) is None:
        raise StartError(
            "an agent's name has small letters, digits and _, begins with a letter, and is at most 64 long"
        )
    agent, test = folder / f"{name}.py", tests / f"test_{name}.py"
    for path in (agent, test):
        if path.exists():
            raise StartError(f"{path} is there already, and stays as it is")
    written = AGENT.format(name=name, variable=_variable(name))
    for path, text in ((agent, written), (test, TEST.format(agent=agent.as_posix()))):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("x", encoding="utf-8") as file:
                file.write(text)
        except OSError as error:
            raise StartError(f"{path} cannot be written: {error.strerror}") from None
    return agent, test


def _variable(name: str) -> str:
    """The agent's name, which the file may not give to a variable, or already gives to something else."""
    taken = keyword.iskeyword(name) or re.search(rf"\b{name}\b", AGENT)
    return f"{name}_agent" if taken else name
