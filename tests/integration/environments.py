"""The distributions as users get them: wheels, in virtual environments without the checkout."""

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from scripts.bootstrap import build_environment, find_uv
from tests.integration.processes import WORKSPACE


@dataclass(frozen=True, kw_only=True)
class Environment:
    folder: Path

    @property
    def python(self) -> Path:
        return self.folder / "bin/python"

    def command(self, name: str) -> Path:
        return self.folder / "bin" / name

    def importable(self, *modules: str) -> set[str]:
        """Which of them can be imported here."""
        program = (
            "import importlib.util, sys\n"
            "print(*[name for name in sys.argv[1:] if importlib.util.find_spec(name)], end='')"
        )
        return set(_run(self.python, "-I", "-c", program, *modules).split())


@dataclass(frozen=True, kw_only=True)
class Wheels:
    """One of each distribution, and the versions of everything else that `uv.lock` has."""

    folder: Path
    constraints: Path

    @classmethod
    def build(cls, folder: Path) -> "Wheels":
        wheels, constraints = folder / "wheels", folder / "constraints.txt"
        _uv("build", "--quiet", "--wheel", "--all-packages", "--out-dir", wheels)
        _uv("export", "--quiet", "--locked", "--no-hashes", "--no-emit-workspace", "--output-file", constraints)
        return cls(folder=wheels, constraints=constraints)

    def install(self, environment: Path, *distributions: str, extra: str = "") -> Environment:
        """`extra`: of the first one."""
        _uv("venv", "--quiet", "--python", sys.executable, environment)
        first, *others = [self._wheel(distribution) for distribution in distributions]
        _uv(
            *("pip", "install", "--quiet", "--python", environment / "bin/python", "--constraint", self.constraints),
            *(f"{first}[{extra}]" if extra else first, *others),
        )
        return Environment(folder=environment)

    def _wheel(self, distribution: str) -> Path:
        (wheel,) = self.folder.glob(f"{distribution.replace('-', '_')}-[0-9]*.whl")
        return wheel


def synced(sources: Path, environment: Path, command: list[str]) -> Environment:
    """The environment that a `uv sync` in a copy of the repository makes."""
    assert command[:2] == ["uv", "sync"]
    variables = build_environment() | {"UV_PROJECT_ENVIRONMENT": str(environment), "UV_PYTHON": sys.executable}
    _run(find_uv(variables), *command[1:], environment=variables, folder=sources)
    return Environment(folder=environment)


def _uv(*arguments: str | Path) -> None:
    variables = build_environment()
    _run(find_uv(variables), *arguments, environment=variables)


def _run(*command: str | Path, environment: dict[str, str] | None = None, folder: Path = WORKSPACE) -> str:
    done = subprocess.run(command, check=False, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout
