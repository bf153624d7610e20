"""Installs Debian packages without starting their services."""

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from scripts.services.service import Unusable

POLICY = Path("/usr/sbin/policy-rc.d")
"""Packages ask it before they start a service; 101 forbids it. https://people.debian.org/~hmh/invokerc.d-policyrc.d-specification.txt"""


def here() -> bool:
    return os.geteuid() == 0 and shutil.which("apt-get") is not None


def install(packages: list[str]) -> None:
    """Update the lists and install.

    Raises:
        Unusable: apt-get failed; its own lines say why.
    """
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    with _nothing_starts():
        for arguments in (
            ["update", "-qq"],
            ["install", "-y", "-qq", "-o=Dpkg::Use-Pty=0", "--no-install-recommends", *packages],
        ):
            if subprocess.run(["apt-get", *arguments], check=False, env=environment).returncode != 0:
                raise Unusable(f"apt-get could not install {' '.join(packages)}: its lines above say why")


@contextlib.contextmanager
def _nothing_starts() -> Iterator[None]:
    """A Postgres that Debian starts asks for passwords; ours, on the same port, must not."""
    if POLICY.exists():
        yield
        return
    POLICY.write_text("#!/bin/sh\nexit 101\n")
    POLICY.chmod(0o755)
    try:
        yield
    finally:
        POLICY.unlink()
