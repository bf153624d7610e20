"""`compose.yaml` as Docker Compose reads it."""

import json
import subprocess
from typing import Any

import yaml
from tests.deploy.manifests import ROOT, command

FILE = ROOT / "compose.yaml"
WRITTEN: dict[str, Any] = yaml.safe_load(FILE.read_text())
SERVICES: dict[str, dict[str, Any]] = WRITTEN["services"]
"""As they are written: variables are not filled in."""


def config(**given: str) -> subprocess.CompletedProcess[str]:
    """What `docker compose config` says where the shell has these variables and no others; no `.env` is read."""
    return subprocess.run(
        [command("docker-compose"), "--env-file", "/dev/null", "--file", FILE, "config", "--format", "json"],
        check=False,
        capture_output=True,
        text=True,
        env=given,
    )


def services(**given: str) -> dict[str, dict[str, Any]]:
    """The services as they would be started."""
    done = config(**given)
    assert (done.returncode, done.stderr) == (0, "")
    found: dict[str, dict[str, Any]] = json.loads(done.stdout)["services"]
    return found
