"""Runs every test, in three lanes at the same time: the suites of whole processes spend their time on waiting until
somebody is missed or a page is drawn.

What the lanes beside print is kept until the first is done, so that they can be read one after the other.
"""

import contextlib
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

ROOT = Path(__file__).resolve().parent.parent
BESIDE = (
    ("tests/fault",),
    ("tests/integration", "tests/browser", "tests/contract/queue", "tests/deploy"),
)


@dataclass(frozen=True, kw_only=True)
class Lane:
    suites: tuple[str, ...]
    process: subprocess.Popen[bytes]
    printed: IO[str]

    def result(self) -> int:
        """Its exit code, when what it printed is printed."""
        print(f"\n{', '.join(self.suites)}, beside the tests above:", flush=True)
        failed = self.process.wait()
        self.printed.seek(0)
        sys.stdout.write(self.printed.read())
        return failed


@contextlib.contextmanager
def running(suites: tuple[str, ...]) -> Iterator[Lane]:
    """A lane that has ended when the block has."""
    with tempfile.TemporaryFile("w+") as printed:
        command = [*pytest(), "-p", "no:cacheprovider", *suites]
        process = subprocess.Popen(command, cwd=ROOT, stdout=printed, stderr=subprocess.STDOUT)
        try:
            yield Lane(suites=suites, process=process, printed=printed)
        finally:
            process.terminate()
            process.wait()


def main() -> int:
    """The exit code: pytest's, of the first suite that did not pass."""
    with contextlib.ExitStack() as exits:
        lanes = [exits.enter_context(running(suites)) for suites in BESIDE]
        ignored = [f"--ignore={suite}" for lane in lanes for suite in lane.suites]
        others = subprocess.run([*pytest(), *ignored], cwd=ROOT, check=False).returncode
        results = [others, *(lane.result() for lane in lanes)]
    return next((result for result in results if result), 0)


def pytest() -> list[str]:
    return [sys.executable, "-m", "pytest"]


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
