"""Runs every test, in two lanes: the suites of processes that are killed and of pages that are drawn spend half of
their time on waiting, and run beside all the others.

Two and no more: a third would want more links than the hundred that Postgres has by default. What the lane beside
prints is kept until the others are done, so that the two can be read one after the other.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BESIDE = ("tests/fault", "tests/browser")


def main() -> int:
    """The exit code: pytest's, of the first suite that did not pass."""
    with tempfile.TemporaryFile("w+") as printed:
        beside = subprocess.Popen(
            [*pytest(), "-p", "no:cacheprovider", *BESIDE], cwd=ROOT, stdout=printed, stderr=subprocess.STDOUT
        )
        try:
            ignored = [f"--ignore={suite}" for suite in BESIDE]
            others = subprocess.run([*pytest(), *ignored], cwd=ROOT, check=False).returncode
            print(f"\n{', '.join(BESIDE)}, beside the tests above:", flush=True)
            failed = beside.wait()
        except BaseException:
            beside.terminate()
            beside.wait()
            raise
        finally:
            printed.seek(0)
            sys.stdout.write(printed.read())
    return others or failed


def pytest() -> list[str]:
    return [sys.executable, "-m", "pytest"]


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
