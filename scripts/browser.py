"""Sees to it that there is a Chromium, which the console's tests drive."""

import sys

from scripts.programs import Program
from scripts.services.service import Unusable

CHROMIUM = Program(
    title="Chromium",
    variable="RUNYARD_TEST_CHROMIUM",
    names=("chromium", "chromium-browser", "google-chrome-stable", "google-chrome"),
    package="chromium",
)


if __name__ == "__main__":
    try:
        print(f"Chromium is {CHROMIUM.see_to()}", flush=True)
    except Unusable as error:
        sys.exit(f"error: {error}")
