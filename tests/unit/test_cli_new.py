"""`runyard new`: what it writes is an agent, and tests that pass."""

from pathlib import Path

import pytest

from runyard.cli import starter
from runyard.errors import StartError
from runyard_workers.catalog import load_folder

pytest_plugins = ["pytester"]


NAMES = ["planner", "agent", "class", "date", "days_until", "import", "tool"]
"""The others mean something in Python, or in the file."""


def test_the_agents_load_and_their_tests_pass(pytester: pytest.Pytester) -> None:
    written = [starter.write(name, Path("agents"), Path("checks")) for name in NAMES]  # `tests` is a package already
    assert [str(path) for path in written[0]] == ["agents/planner.py", "checks/test_planner.py"]
    assert "\nplanner = agent(" in written[0][0].read_text()
    catalog = load_folder(pytester.path / "agents")
    assert (catalog.problems, sorted(catalog.agents)) == ((), sorted(NAMES))
    ran = pytester.runpytest_inprocess("-p", "no:cacheprovider", "--import-mode=importlib", "checks")
    ran.assert_outcomes(passed=2 * len(NAMES))


@pytest.mark.parametrize("taken", ["agents/planner.py", "tests/test_planner.py"])
def test_a_file_that_is_there_stays_and_nothing_is_written(tmp_path: Path, taken: str) -> None:
    (tmp_path / taken).parent.mkdir()
    (tmp_path / taken).write_text("mine")
    with pytest.raises(StartError, match=rf"{taken} is there already"):
        starter.write("planner", tmp_path / "agents", tmp_path / "tests")
    assert [path.read_text() for path in tmp_path.rglob("*.py")] == ["mine"]


@pytest.mark.parametrize("name", ["", "Planner", "9lives", "a-b", "_x", "../evil", "a" * 65])
def test_what_is_no_name_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(StartError, match="an agent's name has"):
        starter.write(name, tmp_path / "agents", tmp_path / "tests")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "agents").write_text("a file")
    with pytest.raises(StartError, match="cannot be written"):
        starter.write("planner", tmp_path / "agents", tmp_path / "tests")
