"""`compose.yaml` as data, and its variables filled in as `docker compose` does."""

import re
from collections.abc import Mapping
from typing import Any

import yaml
from tests.deploy.manifests import ROOT

COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]

_VARIABLE = re.compile(r"\$\{(?P<name>\w+)(?::(?P<kind>[-?])(?P<word>[^}]*))?\}")


def composed(environment: Mapping[str, str], given: Mapping[str, str]) -> dict[str, str]:
    """The values of a service, with those of the shell or of `.env` in `given`.

    Raises:
        KeyError: a variable that has no default is not given.
    """

    def value(match: re.Match[str]) -> str:
        if found := given.get(match["name"]):
            return found
        if match["kind"] == "-":
            return str(match["word"])
        raise KeyError(match["name"])

    return {name: _VARIABLE.sub(value, text) for name, text in environment.items()}
