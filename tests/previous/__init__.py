"""The version before this one: its sources, and processes that run them (`scripts/previous.py`, docs/upgrade.md)."""

import subprocess
import sys
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.integration.processes import WORKSPACE, InstalledProcess, Process

ARCHIVE = Path(__file__).with_name("sources.tar.xz")
DISTRIBUTIONS = {"shared": "runyard", "workers": "runyard_workers", "gateway": "runyard_gateway"}
MIGRATE = "import sys; from runyard.db.migrate import upgrade; upgrade(sys.argv[1])"
WHERE = f"import importlib.util; print(*[importlib.util.find_spec(it).origin for it in {[*DISTRIBUTIONS.values()]}])"


@dataclass(frozen=True, kw_only=True)
class PreviousVersion:
    """With this version's dependencies, and agents of its own."""

    folder: Path

    @classmethod
    def unpacked(cls, folder: Path) -> "PreviousVersion":
        with tarfile.open(ARCHIVE) as archive:
            archive.extraction_filter = getattr(tarfile, "data_filter", None)  # from Python 3.11.4 on
            archive.extractall(folder)
        previous = cls(folder=folder)
        found = [Path(origin) for origin in previous.run(WHERE).split()]
        assert found == [folder / part / package / "__init__.py" for part, package in DISTRIBUTIONS.items()]
        return previous

    @property
    def settings(self) -> dict[str, str]:
        """What tells its processes from those of this version."""
        return {
            "PYTHONPATH": ":".join(str(self.folder / part) for part in DISTRIBUTIONS),
            "RUNYARD_AGENTS": str(self.folder / "tests/integration/agents"),
        }

    def process(self, module: str, *, environment: Mapping[str, str], log: Path) -> Process:
        return InstalledProcess(module, environment=environment, log=log, python=Path(sys.executable), folder=WORKSPACE)

    def migrate(self, database_url: str) -> None:
        """To the schema that it left behind."""
        self.run(MIGRATE, database_url)

    def run(self, program: str, *arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, "-c", program, *arguments],
            check=False,
            cwd=WORKSPACE,
            env={"PYTHONPATH": self.settings["PYTHONPATH"]},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout
