"""docs/testing.md and the README's test: every block runs, as a reader would put it into files."""

from pathlib import Path

import pytest
from tests.readme import documented_agent, documented_test, files

pytest_plugins = ["pytester"]

PAGE = "docs/testing.md"


def test_every_block_of_the_page_runs(pytester: pytest.Pytester) -> None:
    sources = files(PAGE)
    assert {"agents/support.py", "tests/conftest.py"} < set(sources)
    for name, source in sources.items():
        path = pytester.path / name.replace("tests/", "checks/")  # this process has a package `tests` already
        path.parent.mkdir(exist_ok=True)
        path.write_text(source)
    numbers = sum(source.count("\ndef test_") for source in sources.values())
    ran = pytester.runpytest_inprocess("-p", "no:cacheprovider", "--import-mode=importlib", "checks")
    ran.assert_outcomes(passed=numbers)
    assert numbers > 12


def test_the_readmes_test_passes(pytester: pytest.Pytester) -> None:
    for folder, name, source in (("my_agents", "dice.py", documented_agent()), ("", "test_dice.py", documented_test())):
        path = pytester.path / folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(source)
    pytester.runpytest_inprocess("-p", "no:cacheprovider").assert_outcomes(passed=1)


def test_what_the_page_names_is_there() -> None:
    from runyard.testing import Harness, RunResult, StartedRun
    from runyard_workers.testing.plans import Plan
    from runyard_workers.testing.script import Script

    text = (Path(__file__).parents[2] / PAGE).read_text()
    for kind, names in (
        (RunResult, ("status", "text", "output", "error", "finish_reason", "model", "steps", "run_id", "session_id")),
        (RunResult, ("result", "calls", "messages", "frames", "events", "shown")),
        (StartedRun, ("steer", "cancel", "until", "frames", "result")),
        (Harness, ("run", "call", "start", "before", "after", "crash")),
        (Plan, ("crash", "hand_over", "cancel", "steer", "does")),
        (Script, ("says", "thinks", "calls", "cut", "refuses", "fails", "answers")),
    ):
        for name in names:
            assert name in text
            assert hasattr(kind, name), (kind, name)
