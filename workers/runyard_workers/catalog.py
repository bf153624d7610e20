"""The agents of a folder: one per file, each with its manifest and the version that its source makes."""

import hashlib
import re
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any, TypeVar

import orjson

from runyard.authoring.agents import Agent
from runyard.authoring.lifespan import Lifespan
from runyard.errors import StartError
from runyard_workers.agent_modules import files_imported_by, import_file, mount
from runyard_workers.results import describe_exception

T = TypeVar("T")

AGENT_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")
_VERSION_HEX_DIGITS = 12


@dataclass(frozen=True, kw_only=True)
class LoadedAgent:
    name: str
    agent: Agent
    version: str
    """12 hex digits over manifest, system prompt, and the source of its file and of the folder's files it imports:
    equal on every machine that has the same files."""

    manifest: Mapping[str, Any]
    path: Path


@dataclass(frozen=True, kw_only=True)
class Problem:
    """A file that gives no agent, though it should. A production worker refuses to start, `runyard dev` shows it."""

    path: Path
    summary: str
    """One line that names the file."""

    traceback_text: str
    """From the author's code on; empty when nothing was raised."""


@dataclass(frozen=True, kw_only=True)
class Catalog:
    agents: Mapping[str, LoadedAgent]
    problems: tuple[Problem, ...]
    lifespans: tuple[Lifespan, ...]
    """Of all files, those that begin with `_` too, by file name, then in the order of the file."""


def load_folder(folder: Path) -> Catalog:
    """Import every `.py` file of the folder; files that begin with `_` are helpers, the others hold one agent each.

    Raises:
        StartError: there is no such folder, or no file for an agent in it. A file that fails is a `Problem`.
    """
    folder = folder.resolve()
    if not folder.is_dir():
        raise StartError(f"RUNYARD_AGENTS: {folder} is not a folder")
    paths = sorted(path for path in folder.glob("*.py") if not path.name.startswith("__"))
    if all(_is_helper(path) for path in paths):
        raise StartError(f"RUNYARD_AGENTS: {folder} holds no agent; an agent is a file <name>.py with one agent(...)")
    mount(folder)
    problems: list[Problem] = []
    modules: dict[Path, ModuleType] = {}
    for path in paths:
        with _reported(path, problems):
            modules[path] = _import(path)
    agents: dict[str, LoadedAgent] = {}
    for path in modules:
        if not _is_helper(path):
            with _reported(path, problems):
                agents[path.stem] = _load(path, folder, modules)
    return Catalog(
        agents=MappingProxyType(agents),
        problems=tuple(sorted(problems, key=lambda problem: problem.path)),
        lifespans=tuple(dict.fromkeys(span for module in modules.values() for span in _values(module, Lifespan))),
    )


class _UnusableFileError(Exception):
    pass


def _is_helper(path: Path) -> bool:
    return path.name.startswith("_")


def _import(path: Path) -> ModuleType:
    if not _is_helper(path) and AGENT_NAME.fullmatch(path.stem) is None:
        raise _UnusableFileError(
            "an agent is called like its file: a to z first, then a to z, 0 to 9 and '_', 64 at most; rename the file, "
            "or begin its name with '_' if it is a helper"
        )
    return import_file(path.stem)


def _load(path: Path, folder: Path, modules: Mapping[Path, ModuleType]) -> LoadedAgent:
    imported = files_imported_by(path, folder)
    # An agent that this file imports from another agent's file belongs to that one.
    borrowed = [
        agent
        for file in imported
        if file in modules and not _is_helper(file)
        for agent in _values(modules[file], Agent)
    ]
    own = [agent for agent in _values(modules[path], Agent) if agent not in borrowed]
    if len(own) != 1:
        raise _UnusableFileError(f"one module-level agent(...) is expected in a file, found {len(own) or 'none'}")
    (agent,) = own
    manifest = agent.manifest(path.stem)
    return LoadedAgent(
        name=path.stem,
        agent=agent,
        version=_version(manifest, agent, folder, sorted({path, *imported})),
        manifest=MappingProxyType(manifest),
        path=path,
    )


def _values(module: ModuleType, kind: type[T]) -> list[T]:
    # By type, not isinstance: a lazy proxy among the module's names would be asked for its class, and may raise.
    return list(dict.fromkeys(value for value in vars(module).values() if type(value) is kind))


def _version(manifest: dict[str, Any], agent: Agent, folder: Path, sources: list[Path]) -> str:
    system = agent.system if isinstance(agent.system, str) else getattr(agent.system, "__qualname__", None)
    digest = hashlib.sha256(orjson.dumps([manifest, system], option=orjson.OPT_SORT_KEYS))
    for source in sources:
        content = source.read_bytes()
        digest.update(f"\0{source.relative_to(folder).as_posix()}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()[:_VERSION_HEX_DIGITS]


@contextmanager
def _reported(path: Path, problems: list[Problem]) -> Iterator[None]:
    """An author's file may raise anything while it is imported, `SystemExit` included: it becomes a problem."""
    try:
        yield
    except _UnusableFileError as error:
        problems.append(Problem(path=path, summary=f"{path.name}: {error}", traceback_text=""))
    except (Exception, SystemExit) as error:  # noqa: BLE001 - see above
        frames = error.__traceback__
        while frames is not None and not Path(frames.tb_frame.f_code.co_filename).is_relative_to(path.parent):
            frames = frames.tb_next
        first_line, *_ = describe_exception(error).splitlines()
        text = "".join(traceback.format_exception(type(error), error, frames))
        problems.append(Problem(path=path, summary=f"{path.name}: {first_line}", traceback_text=text))
