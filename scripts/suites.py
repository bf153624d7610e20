"""Runs every test: `tests/fault`, which spends its time on waiting until the dead are missed, beside all the others.

What the fault suite prints is kept until the others are done, so that the two can be read one after the other.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FAULT = "tests/fault"


def main() -> int:
    """The exit code: pytest's, of the first suite that did not pass."""
    with tempfile.TemporaryFile("w+") as printed:
        fault = subprocess.Popen(
            [*pytest(), "-p", "no:cacheprovider", FAULT], cwd=ROOT, stdout=printed, stderr=subprocess.STDOUT
        )
        try:
            others = subprocess.run([*pytest(), f"--ignore={FAULT}"], cwd=ROOT, check=False).returncode
            print(f"\n{FAULT}, beside the tests above:", flush=True)
            failed = fault.wait()
        except BaseException:
            fault.terminate()
            fault.wait()
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
