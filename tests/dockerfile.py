"""The Dockerfile as data: its stages, and what each of them does."""

import re
import shlex
from dataclasses import dataclass, field
from pathlib import Path

DOCKERFILE = Path(__file__).parents[1] / "Dockerfile"


@dataclass(frozen=True, kw_only=True)
class Stage:
    name: str
    base: str
    instructions: list[tuple[str, str]] = field(default_factory=list)

    def arguments(self, instruction: str) -> list[str]:
        return [argument for name, argument in self.instructions if name == instruction]


def stages() -> dict[str, Stage]:
    found: dict[str, Stage] = {}
    lines = re.sub(r"\\\n", " ", DOCKERFILE.read_text()).splitlines()
    for line in lines:
        if not line or line.startswith("#"):
            continue
        instruction, _, argument = line.partition(" ")
        if instruction == "FROM":
            base, _, name = argument.partition(" AS ")
            found[name] = Stage(name=name, base=base)
        else:
            list(found.values())[-1].instructions.append((instruction, argument.strip()))
    return found


def lineage(name: str) -> list[Stage]:
    """The stage and those it is built from, the first one first."""
    stage = stages()[name]
    return [*(lineage(stage.base) if stage.base in stages() else []), stage]


def copied(name: str) -> list[str]:
    """What the stage and its bases take from the repository."""
    sources: list[str] = []
    for stage in lineage(name):
        for argument in stage.arguments("COPY"):
            if not argument.startswith("--from="):
                sources += shlex.split(argument)[:-1]
    return sources


def installation(role: str) -> list[str]:
    """The command that installs a role's distribution: `["uv", "sync", ...]`."""
    (command,) = stages()[f"build-{role}"].arguments("RUN")
    return shlex.split(command)
