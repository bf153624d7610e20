"""The `runyard` command's own behaviour; `runyard dev` is tested as processes, `runyard migrate` on its databases."""

import importlib.metadata
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from runyard.cli import main, terminal
from runyard.cli.terminal import Banner
from runyard.cli.watch import SavedByAPerson

Command = Callable[..., tuple[object, str, str]]


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """Run the command; its exit code, and what it printed on stdout and stderr."""

    def run(*arguments: str) -> tuple[object, str, str]:
        monkeypatch.setattr(sys, "argv", ["runyard", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        printed = capsys.readouterr()
        return ended.value.code, printed.out, printed.err

    return run


def test_the_version(command: Command) -> None:
    assert command("--version") == (0, importlib.metadata.version("runyard") + "\n", "")


def test_help_names_the_commands(command: Command) -> None:
    code, out, _ = command("--help")
    assert code == 0
    assert "dev " in out
    assert "migrate " in out


def test_what_stops_a_start_is_one_line(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RUNYARD_DATABASE_URL", raising=False)
    assert command("migrate") == (2, "", "error: RUNYARD_DATABASE_URL is not set\n")


def test_names_are_as_wide_as_the_widest(capsys: pytest.CaptureFixture[str]) -> None:
    terminal.show("worker", "run settled")
    terminal.show("gateway", "run queued")
    assert capsys.readouterr().out == "worker  | run settled\ngateway | run queued\n"


def banner(*agents: str, demo: bool = True) -> Banner:
    return Banner(
        url="http://[::1]:8000", agents=list(agents), folder=Path("/a/agents"), state=Path("/a/.runyard"), demo=demo
    )


def test_the_banner_has_a_line_to_try(capsys: pytest.CaptureFixture[str]) -> None:
    banner("converter", "researcher").print()
    printed = capsys.readouterr().out
    assert "  Runyard is up at http://[::1]:8000\n" in printed
    assert "converter, researcher" in printed
    assert "demo model" in printed
    assert "curl -N http://[::1]:8000/v1/agents/converter/runs -H 'Accept: text/event-stream'" in printed


def test_the_banner_without_an_agent_tries_none(capsys: pytest.CaptureFixture[str]) -> None:
    banner(demo=False).print()
    printed = capsys.readouterr().out
    assert "none yet" in printed
    assert "demo model" not in printed
    assert "curl" not in printed


@pytest.mark.parametrize(
    ("path", "counts"),
    [
        ("/a/agents/researcher.py", True),
        ("/a/agents/library/retries.md", True),
        ("/a/agents/prompts.yaml", True),
        ("/a/agents/__pycache__/researcher.cpython-311.pyc", False),
        ("/a/agents/.venv/lib/site.py", False),
        ("/a/agents/memory.db-wal", False),
        ("/a/agents/.researcher.py.swp", False),
        ("/a/agents/picture.png", False),
    ],
)
def test_what_counts_as_a_saved_file(path: str, counts: bool) -> None:
    assert SavedByAPerson()(1, path) is counts
