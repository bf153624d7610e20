"""docs/cli.md says what the command has."""

import re
from pathlib import Path

import typer
from typer.main import get_command

from runyard.cli import exits
from runyard.cli.command import app

PAGE = (Path(__file__).parents[2] / "docs/cli.md").read_text()


def commands() -> dict[str, typer.core.TyperCommand]:
    group = get_command(app)
    assert isinstance(group, typer.core.TyperGroup)
    return group.commands  # type: ignore[return-value]


def rows(heading: str) -> list[list[str]]:
    """The cells of the first table behind a heading, without its head."""
    _, _, text = PAGE.partition(heading)
    found = re.search(r"(?:^\|.*\n)+", text, re.MULTILINE)
    assert found is not None
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", row)[1:-1]] for row in found[0].splitlines()[2:]]


def test_every_command_is_there_and_no_other() -> None:
    documented = [re.split(r"[ `]", cells[0])[1] for cells in rows("# The command")]
    assert sorted(documented) == sorted(commands())


def test_the_options_that_are_named_are_those_of_the_commands() -> None:
    for cells in rows("# The command"):
        name = re.split(r"[ `]", cells[0])[1]
        options = {option for parameter in commands()[name].params for option in parameter.opts}
        assert set(re.findall(r"--\w+", cells[1])) <= options, name


def test_the_exit_codes_are_those_of_the_table() -> None:
    codes = {value for name, value in vars(exits).items() if name.isupper() and not name.startswith("_")}
    assert {int(cells[0]) for cells in rows("## Exit codes")} == codes


def test_how_a_run_ended_is_its_exit_code() -> None:
    assert [exits.of_run(status) for status in ("completed", "failed", "cancelled")] == [0, 1, 3]


def test_help_has_examples_and_its_lines_fit() -> None:
    for name in ("run", "tail", "steer", "cancel", "runs", "new"):
        epilog = commands()[name].epilog or ""
        assert f"runyard {name} " in epilog
        assert max(map(len, epilog.splitlines())) <= 78
