"""Which agents `runyard dev` serves when nobody names a folder."""

from pathlib import Path

import pytest

from runyard.cli import examples, terminal
from runyard.cli.terminal import Banner


@pytest.fixture
def shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a wheel would have put them; the command is started in an empty folder."""
    folder = tmp_path / "site-packages/examples"
    folder.mkdir(parents=True)
    monkeypatch.setattr(examples, "EXAMPLES", folder)
    monkeypatch.setattr(terminal, "EXAMPLES", folder)
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    return folder


def test_without_a_folder_of_ones_own_the_examples(shipped: Path) -> None:
    assert examples.agents_folder() == shipped


def test_ones_own_folder_first(shipped: Path) -> None:
    Path("agents").mkdir()
    assert examples.agents_folder() == Path("agents")


def test_where_no_examples_are_the_folder_that_is_missed_is_named(shipped: Path) -> None:
    shipped.rmdir()
    assert examples.agents_folder() == Path("agents")


@pytest.mark.parametrize("own", [True, False])
def test_the_banner_says_which(shipped: Path, own: bool, capsys: pytest.CaptureFixture[str]) -> None:
    folder = Path("agents").resolve() if own else shipped
    Banner(url="http://127.0.0.1:8000", agents=["converter"], folder=folder, state=Path(".runyard"), demo=True).print()
    line = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("  agents   "))
    assert ("examples that ship with Runyard" in line) is not own
    assert (f"saving a file in {folder} restarts the worker" in line) is own
