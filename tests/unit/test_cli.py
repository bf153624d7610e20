"""The `runyard` command's own behaviour; `runyard dev` is tested as processes, `runyard migrate` on its databases."""

import importlib.metadata
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jwt
import pytest
from sqlalchemy import make_url
from tests.clients.tokens import SECRET

from runyard.cli import dev, main, terminal
from runyard.cli.state import State
from runyard.cli.terminal import Banner
from runyard.cli.watch import SavedByAPerson
from runyard.errors import StartError
from runyard.settings import AuthSettings

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
    assert "token " in out
    assert "keys " in out


def test_what_stops_a_start_is_one_line(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RUNYARD_DATABASE_URL", raising=False)
    assert command("migrate") == (2, "", "error: RUNYARD_DATABASE_URL is not set\n")


def test_without_the_clients_library_a_command_that_needs_it_says_so() -> None:
    program = "import sys; sys.modules['httpx2'] = None; from runyard.cli import main; main()"
    ran = subprocess.run(
        [sys.executable, "-c", program, "agents"], capture_output=True, text=True, timeout=60, check=False
    )
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr == "error: runyard's client needs httpx2: pip install 'runyard[client]'\n"


@pytest.fixture
def secret(monkeypatch: pytest.MonkeyPatch) -> str:
    for name in AuthSettings.model_fields:
        monkeypatch.delenv(f"RUNYARD_{name.upper()}", raising=False)
    monkeypatch.setenv("RUNYARD_JWT_SECRET", SECRET)
    return SECRET


def claims_of(printed: str, secret: str, **expected: str) -> dict[str, Any]:
    claims: dict[str, Any] = jwt.decode(printed.strip(), secret, algorithms=["HS256"], **expected)
    return claims


def test_a_token_to_try_a_gateway_with(command: Command, secret: str) -> None:
    before = int(time.time())
    code, out, error = command("token", "--user", "ann")
    assert (code, error) == (0, "")
    claims = claims_of(out, secret)
    assert claims.keys() == {"sub", "exp"}
    assert claims["sub"] == "ann"
    assert before + 3600 <= claims["exp"] <= time.time() + 3600


def test_a_token_has_what_the_gateway_will_look_for(
    command: Command, secret: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RUNYARD_JWT_AUDIENCE", "runyard")
    monkeypatch.setenv("RUNYARD_JWT_ISSUER", "https://issuer.example")
    options = ("--user", "ann", "--tenant", "acme", "--role", "admin", "--role", "editor", "--ttl", "2d")
    claims = claims_of(command("token", *options)[1], secret, audience="runyard", issuer="https://issuer.example")
    assert (claims["tenant"], claims["roles"]) == ("acme", ["admin", "editor"])
    assert claims["exp"] - time.time() > 47 * 3600


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--user", " "), "--user must be a name"),
        (("--user", "ann", "--tenant", ""), "--tenant must be a name"),
        *(
            (("--user", "ann", "--ttl", ttl), "--ttl must be a number and a unit")
            for ttl in ("", "0h", "1", "-1h", "1y")
        ),
    ],
)
def test_a_token_that_nobody_would_take_is_not_made(
    command: Command, secret: str, arguments: tuple[str, ...], said: str
) -> None:
    code, out, error = command("token", *arguments)
    assert (code, out) == (2, "")
    assert error.startswith(f"error: {said}")


def test_tokens_of_another_issuer_are_not_made(command: Command, secret: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RUNYARD_JWT_SECRET")
    monkeypatch.setenv("RUNYARD_JWKS_URL", "https://issuer.example/keys")
    code, out, error = command("token", "--user", "ann")
    assert (code, out) == (2, "")
    assert error.startswith("error: RUNYARD_JWT_SECRET is not set")


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


def test_a_banner_that_nobody_reads_ends_the_command_as_any_line_does() -> None:
    program = """
import signal, sys, time
from pathlib import Path
from runyard.cli.terminal import Banner
signal.signal(signal.SIGTERM, lambda *_: sys.exit(3))
Banner(url="http://here", agents=[], folder=Path("a"), state=Path("b"), demo=True).print()
"""
    reader, writer = os.pipe()
    os.close(reader)
    ran = subprocess.run(
        [sys.executable, "-c", program], stdout=writer, stderr=subprocess.PIPE, timeout=60, check=False
    )
    os.close(writer)
    assert (ran.returncode, ran.stderr) == (3, b"")


def test_what_the_outputs_encoding_lacks_is_an_escape(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "runyard.cli", "new", "planner", "--folder", "\N{SNOWMAN}"]
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    ran = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, timeout=60, check=True)
    assert ran.stdout.startswith(b"\\u2603/planner.py: ")


def test_the_database_of_a_folder_with_any_name_is_in_that_folder(tmp_path: Path) -> None:
    folder = tmp_path / "a?b#c%41"
    assert make_url(State.open(folder).database_url).database == str(folder / "runyard.db")


@pytest.mark.anyio
async def test_a_lock_that_cannot_be_opened_is_told_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "lock").mkdir()
    with pytest.raises(StartError, match=rf"^the state folder {tmp_path} cannot be used: Is a directory$"):
        async with State.open(tmp_path).locked():
            pass


def test_dev_opens_no_port_for_metrics_that_its_processes_would_quarrel_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.environ", {**os.environ, "RUNYARD_METRICS_PORT": "9100"})
    monkeypatch.chdir(tmp_path)
    assert dev._settings(State.open(tmp_path / ".runyard"), {}).metrics_port is None
