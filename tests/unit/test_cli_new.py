"""`runyard new`: the file that it writes is an agent."""

from pathlib import Path

import pytest

from runyard.cli import starter
from runyard.errors import StartError
from runyard_workers.catalog import load_folder


def test_the_file_is_an_agent_whose_tool_works(tmp_path: Path) -> None:
    path = starter.write("planner", tmp_path / "agents")
    assert path == tmp_path / "agents/planner.py"
    catalog = load_folder(path.parent)
    assert catalog.problems == ()
    (tool,) = catalog.agents["planner"].agent.tools
    assert (tool.name, tool.schema["properties"]["day"]["type"]) == ("days_until", "string")


def test_a_file_that_is_there_stays(tmp_path: Path) -> None:
    (tmp_path / "planner.py").write_text("mine")
    with pytest.raises(StartError, match=r"planner.py is there already"):
        starter.write("planner", tmp_path)
    assert (tmp_path / "planner.py").read_text() == "mine"


@pytest.mark.parametrize("name", ["", "Planner", "9lives", "a-b", "_x", "../evil", "a" * 65])
def test_what_is_no_name_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(StartError, match="an agent's name has"):
        starter.write(name, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "agents").write_text("a file")
    with pytest.raises(StartError, match="cannot be written"):
        starter.write("planner", tmp_path / "agents")


def test_names_are_those_that_workers_take() -> None:
    from runyard_workers.catalog import AGENT_NAME

    assert starter.NAME.pattern == AGENT_NAME.pattern
