"""Sees to it that there is a Chromium, which the console's tests drive: the machine's own, else, as root, Debian's."""

import os
import shutil
import sys
from pathlib import Path

from scripts.services import debian
from scripts.services.service import Unusable

VARIABLE = "RUNYARD_TEST_CHROMIUM"
NAMES = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")
PACKAGE = "chromium"


def find_chromium() -> Path:
    """The binary that the variable names, else one on PATH.

    Raises:
        Unusable: there is none. The message says what to do.
    """
    if named := os.environ.get(VARIABLE):
        if os.access(named, os.X_OK):
            return Path(named)
        raise Unusable(f"{VARIABLE} names {named}, which cannot be run")
    for name in NAMES:
        if found := shutil.which(name):
            return Path(found)
    raise Unusable(f"no Chromium on PATH: install Debian's package {PACKAGE}, or name a browser in {VARIABLE}")


def main() -> None:
    try:
        found = find_chromium()
    except Unusable:
        if os.environ.get(VARIABLE) or not debian.here():
            raise
        print("Installing Chromium", flush=True)
        debian.install([PACKAGE])
        found = find_chromium()
    print(f"Chromium is {found}", flush=True)


if __name__ == "__main__":
    try:
        main()
    except Unusable as error:
        sys.exit(f"error: {error}")
