"""`docs/operations.md` names commands, objects and log lines that there are, and their numbers."""

import re
import shlex

import pytest
from tests.deploy.manifests import ROOT, Manifest
from typer.main import get_command

from runyard.cli.command import app
from runyard.settings import Settings
from runyard_gateway import app as gateway_app
from runyard_workers import beat
from runyard_workers import main as worker_main

PAGE = (ROOT / "docs/operations.md").read_text()
TEXT = " ".join(PAGE.split())
SOURCES = "".join(path.read_text() for part in ("shared", "gateway", "workers") for path in (ROOT / part).rglob("*.py"))


def commands() -> list[list[str]]:
    blocks = re.findall(r"^```bash\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    return [shlex.split(line) for line in "".join(blocks).splitlines()]


def runyard_command(words: list[str]) -> str | None:
    """`runyard queues --watch`, or the same behind `kubectl exec ... --`."""
    own = words[words.index("--") + 1 :] if "--" in words else words
    return own[1] if own[0] == "runyard" else None


def test_commands_are_those_that_there_are(rendered: dict[str, list[Manifest]]) -> None:
    called = {name for words in commands() if (name := runyard_command(words)) is not None}
    assert {"queues", "fsck"} <= called <= set(get_command(app).commands)
    names = {(item["kind"].lower(), item["metadata"]["name"]) for item in rendered["prod"]}
    for words in (it for it in commands() if it[0] == "kubectl"):
        assert words[1:3] == ["-n", "runyard"], words
        named = [match.groups() for word in words if (match := re.fullmatch(r"(deployment)/([\w-]+)", word))]
        assert set(named) <= names, words


@pytest.mark.parametrize(
    "event",
    [
        *("run queued", "run claimed", "run given back", "run put back", "run lost", "run settled"),
        *("worker died", "worker leaves", "worker left", "beat failed", "claim failed", "model attempt failed"),
        "subscription lost",
    ],
)
def test_log_lines_are_those_that_are_written(event: str) -> None:
    assert f"`{event}`" in TEXT
    assert re.search(rf'(info|warning)\(\s*"{event}"', SOURCES)


def test_numbers_are_those_of_the_code() -> None:
    fields = Settings.model_fields
    assert f"`RUNYARD_WORKER_SLOTS` ({fields['worker_slots'].default})" in TEXT
    assert f"`RUNYARD_DRAIN_S` ({fields['drain_s'].default:g})" in TEXT
    assert f"`RUNYARD_STREAM_MAX_BYTES` ({fields['stream_max_bytes'].default // 2**20} MiB)" in TEXT
    assert f"`RUNYARD_STREAM_MAX` ({fields['stream_max'].default:,})" in TEXT
    links = (gateway_app.POOL_SIZE, worker_main.POOL_SIZE + 1)  # and the beat's own
    assert f"{links[0]} links for each gateway, {links[1]} for each worker" in TEXT
    assert f"An exit code of {beat.STUCK_EXIT_CODE} " in TEXT
    assert f"stuck for {beat.STUCK_ROUNDS} s" in TEXT
