"""Keeps a version's sources for the tests that run it beside this one: `python -m scripts.previous v0.1.0`.

In an archive, since a checkout need not have the history (docs/upgrade.md). What only browsers load is left out.
"""

import lzma
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ARCHIVE = ROOT / "tests/previous/sources.tar.xz"
KEPT = (
    "shared/runyard",
    "workers/runyard_workers",
    "gateway/runyard_gateway",
    "tests/integration/agents",
    ":!**/vendor/**",
    ":!gateway/runyard_gateway/console/*/**",
)


def main(reference: str) -> None:
    sources = subprocess.run(
        ["git", "archive", "--format=tar", reference, *KEPT], check=True, cwd=ROOT, stdout=subprocess.PIPE
    ).stdout
    ARCHIVE.write_bytes(lzma.compress(sources, preset=9 | lzma.PRESET_EXTREME))
    named = subprocess.run(["git", "get-tar-commit-id"], check=True, input=sources, stdout=subprocess.PIPE).stdout
    print(f"{ARCHIVE.relative_to(ROOT)} has the sources of {named.decode().strip()}")


if __name__ == "__main__":
    if len(sys.argv) != 2:  # noqa: PLR2004
        sys.exit("usage: python -m scripts.previous REFERENCE")
    main(sys.argv[1])
