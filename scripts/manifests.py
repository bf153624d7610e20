"""Makes sure that what checks `k8s/` and `compose.yaml` is in .tools/manifests: kubectl, checkov, docker-compose, ...

An environment of its own, from the group `manifests` of uv.lock: `make dev` needs none of it.
"""

import sys
from pathlib import Path

from scripts.bootstrap import ROOT, TOOLS, CannotBuild, build_environment, find_uv, fingerprint, run

ENVIRONMENT = TOOLS / "manifests"
BUILT_FROM = ENVIRONMENT / ".built-from"
COMMAND = "python -m scripts.manifests"


class Missing(Exception):
    """The message says what to do."""


def tool(name: str) -> Path:
    """The path of one of the environment's commands.

    Raises:
        Missing: it is not installed.
    """
    found = ENVIRONMENT / "bin" / name
    if not found.exists():
        raise Missing(f"no {found.relative_to(ROOT)}: `{COMMAND}` installs it")
    return found


def main() -> None:
    wanted = fingerprint()
    if BUILT_FROM.exists() and BUILT_FROM.read_text() == wanted:
        return
    print(f"Installing what checks k8s/ and compose.yaml into {ENVIRONMENT.relative_to(ROOT)}", flush=True)
    environment = {**build_environment(), "UV_PROJECT_ENVIRONMENT": str(ENVIRONMENT)}
    sync = [find_uv(environment), "sync", "--locked", "--only-group", "manifests"]
    sync += ["--compile-bytecode", "--python", sys.executable]
    run(sync, environment, "the packages could not be installed: uv's lines above say why")
    BUILT_FROM.write_text(wanted)


if __name__ == "__main__":
    try:
        main()
    except CannotBuild as error:
        sys.exit(f"error: {error}")
