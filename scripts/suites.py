"""Runs every test, in three lanes beside each other: half of the time is spent on waiting.

What holds them apart is the hundred links that Postgres has by default: the third lane wants next to none of them.
What the lanes beside the first one print is kept until that is done, so that they can be read one after the other.
"""

import contextlib
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BESIDE = (
    ("tests/fault", "tests/integration"),
    (
        "tests/unit",
        "tests/browser",
        "tests/deploy",
        "tests/contract/harness",
        "tests/contract/queue",
        "tests/contract/standin",
        "tests/contract/streams",
    ),
)
"""The first lane has all the others."""


def main() -> int:
    """The exit code: pytest's, of the first lane that did not pass."""
    ignored = [f"--ignore={suite}" for lane in BESIDE for suite in lane]
    with contextlib.ExitStack() as lanes:
        others = [lanes.enter_context(beside(lane)) for lane in BESIDE]
        codes = [subprocess.run([*pytest(), *ignored], cwd=ROOT, check=False).returncode]
        codes += [other.wait() for other in others]
    return next((code for code in codes if code != 0), 0)


@contextlib.contextmanager
def beside(lane: Sequence[str]) -> Iterator[subprocess.Popen[bytes]]:
    """Starts it, and tells after the block what it printed."""
    with tempfile.TemporaryFile("w+") as printed:
        process = subprocess.Popen(
            [*pytest(), "-p", "no:cacheprovider", *lane], cwd=ROOT, stdout=printed, stderr=subprocess.STDOUT
        )
        try:
            yield process
        finally:
            process.terminate()  # unless it has ended
            process.wait()
            print(f"\n{', '.join(lane)}, beside the tests above:", flush=True)
            printed.seek(0)
            sys.stdout.write(printed.read())


def pytest() -> list[str]:
    return [sys.executable, "-m", "pytest"]


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
