"""The agents and functions of a folder, each with its manifest and a version made from its source."""

import hashlib
import traceback
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any, TypeVar

import orjson

from runyard.authoring.agents import Agent
from runyard.authoring.errors import AuthoringError
from runyard.authoring.functions import Function
from runyard.authoring.lifespan import Lifespan
from runyard.errors import StartError
from runyard.names import AGENT_NAME
from runyard_workers.agent_modules import Imports, import_file, mount
from runyard_workers.results import describe_exception

T = TypeVar("T")

_VERSION_HEX_DIGITS = 12


@dataclass(frozen=True, kw_only=True)
class LoadedAgent:
    name: str
    agent: Agent
    version: str
    """12 hex digits over the manifest, the system prompt, and the sources of the agent's file and of the folder's files
    that it imports: equal on every machine that has the same files."""

    manifest: Mapping[str, Any]
    path: Path


@dataclass(frozen=True, kw_only=True)
class LoadedFunction:
    name: str
    """`fn:<name>`, as in its runs."""

    function: Function
    version: str
    """Made like an agent's."""

    manifest: Mapping[str, Any]
    path: Path


Loaded = LoadedAgent | LoadedFunction


@dataclass(frozen=True, kw_only=True)
class Problem:
    """A file that cannot be used. A production worker refuses to start because of it, `runyard dev` shows it."""

    path: Path
    summary: str
    """One line that names the file."""

    traceback_text: str
    """The traceback from the author's code on; empty if nothing was raised."""


@dataclass(frozen=True, kw_only=True)
class Catalog:
    agents: Mapping[str, LoadedAgent]
    problems: tuple[Problem, ...]
    lifespans: tuple[Lifespan, ...]
    """Those of all files, including files that begin with `_`, by file name and then in the order of the file."""

    functions: Mapping[str, LoadedFunction] = field(default_factory=dict)
    """Those of all files, by `fn:<name>`."""

    @property
    def loaded(self) -> dict[str, Loaded]:
        """Everything that can be run, by the names that runs use."""
        return {**self.agents, **self.functions}

    @property
    def max_running(self) -> dict[str, int]:
        """The limits of agents and functions that have one."""
        limits = {name: loaded.agent.max_running for name, loaded in self.agents.items()}
        limits |= {name: loaded.function.max_running for name, loaded in self.functions.items()}
        return {name: limit for name, limit in limits.items() if limit is not None}


def load_folder(folder: Path) -> Catalog:
    """Import every `.py` file of the folder. Files that begin with `_` are helpers; each other file holds one agent, or
    functions only.

    Raises:
        StartError: there is no such folder, or nothing in it can be called. (A file that fails is a `Problem`.)
    """
    folder = folder.resolve()
    if not folder.is_dir():
        raise StartError(f"RUNYARD_AGENTS: {folder} is not a folder")
    # Those that begin with a dot are an editor's, or the file system's.
    paths = sorted(path for path in folder.glob("*.py") if not path.name.startswith(("__", ".")))
    mount(folder)
    problems: list[Problem] = []
    modules: dict[Path, ModuleType] = {}
    for path in paths:
        with _reported(path, problems):
            modules[path] = _import(path)
    imports = Imports(folder)
    owned = _owned_functions(modules, imports)
    functions = _load_functions(owned, imports, problems)
    agents = _load_agents(modules, imports, problems, need_none={path for path, _ in owned})
    if not (agents or functions or problems):
        raise StartError(f"RUNYARD_AGENTS: {folder} holds no agent; an agent is a file <name>.py with one agent(...)")
    return Catalog(
        agents=MappingProxyType(agents),
        functions=MappingProxyType(functions),
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


def _owned_functions(modules: Mapping[Path, ModuleType], imports: Imports) -> list[tuple[Path, Function]]:
    """Each function once, with its file: among the files that have it, one that did not import it from the others."""
    holders: dict[Function, list[Path]] = {}
    for path, module in modules.items():
        for function in _values(module, Function):
            holders.setdefault(function, []).append(path)
    owned = []
    for function, paths in holders.items():
        origins = [path for path in paths if imports.of(path).isdisjoint(paths)]
        owned.append((next(iter(origins), paths[0]), function))
    return owned


def _load_functions(
    owned: Iterable[tuple[Path, Function]], imports: Imports, problems: list[Problem]
) -> dict[str, LoadedFunction]:
    functions: dict[str, LoadedFunction] = {}
    for path, function in owned:
        with _reported(path, problems):
            loaded = _load_function(path, function, imports)
            if loaded.name in functions:
                other = functions[loaded.name].path.name
                raise _UnusableFileError(f"a function is named {function.name!r}, and one in {other} is, too")
            functions[loaded.name] = loaded
    return functions


def _load_function(path: Path, function: Function, imports: Imports) -> LoadedFunction:
    manifest = function.manifest()
    return LoadedFunction(
        name=manifest["name"],
        function=function,
        version=_version([manifest], path, imports),
        manifest=MappingProxyType(manifest),
        path=path,
    )


def _load_agents(
    modules: Mapping[Path, ModuleType], imports: Imports, problems: list[Problem], *, need_none: set[Path]
) -> dict[str, LoadedAgent]:
    """`need_none`: files that may be without an agent, since they have functions."""
    agents: dict[str, LoadedAgent] = {}
    for path in modules:
        if not _is_helper(path):
            with _reported(path, problems):
                agent = _own_agent(path, modules, imports, is_needed=path not in need_none)
                if agent is not None:
                    agents[path.stem] = _load_agent(path, agent, imports)
    return agents


def _own_agent(path: Path, modules: Mapping[Path, ModuleType], imports: Imports, *, is_needed: bool) -> Agent | None:
    """The file's one agent; None: it has none and needs none."""
    # An agent that this file imports from another agent's file belongs to that one.
    borrowed = [
        agent
        for file in imports.of(path)
        if file in modules and not _is_helper(file)
        for agent in _values(modules[file], Agent)
    ]
    own = [agent for agent in _values(modules[path], Agent) if agent not in borrowed]
    if not own and not is_needed:
        return None
    if len(own) != 1:
        raise _UnusableFileError(
            "one module-level agent(...) is expected in each file, found "
            + (str(len(own)) if own else "none; begin the file's name with '_' if it is a helper")
        )
    return own[0]


def _load_agent(path: Path, agent: Agent, imports: Imports) -> LoadedAgent:
    manifest = agent.manifest(path.stem)
    system = agent.system if isinstance(agent.system, str) else getattr(agent.system, "__qualname__", None)
    return LoadedAgent(
        name=path.stem,
        agent=agent,
        version=_version([manifest, system], path, imports),
        manifest=MappingProxyType(manifest),
        path=path,
    )


def _values(module: ModuleType, kind: type[T]) -> list[T]:
    # By type, not isinstance: a lazy proxy among the module's names would be asked for its class, and may raise.
    return list(dict.fromkeys(value for value in vars(module).values() if type(value) is kind))


def _version(described: list[Any], path: Path, imports: Imports) -> str:
    digest = hashlib.sha256(orjson.dumps(described, option=orjson.OPT_SORT_KEYS))
    for source in sorted({path, *imports.of(path)}):
        content = source.read_bytes()
        digest.update(f"\0{source.relative_to(imports.folder).as_posix()}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()[:_VERSION_HEX_DIGITS]


@contextmanager
def _reported(path: Path, problems: list[Problem]) -> Iterator[None]:
    """An author's file may raise anything as it is imported, even `SystemExit`: it becomes a problem."""
    try:
        yield
    except _UnusableFileError as error:
        problems.append(Problem(path=path, summary=f"{path.name}: {error}", traceback_text=""))
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 - see above
        frames = error.__traceback__
        while frames is not None and not Path(frames.tb_frame.f_code.co_filename).is_relative_to(path.parent):
            frames = frames.tb_next
        first_line, *_ = describe_exception(error).splitlines()
        is_told = isinstance(error, AuthoringError)  # in words: what pydantic raised before helps nobody
        text = "".join(traceback.format_exception(type(error), error, frames, chain=not is_told))
        summary = f"{path.name}: {first_line}{_hint(error, path.parent)}"
        problems.append(Problem(path=path, summary=summary, traceback_text=text))


def _hint(error: BaseException, folder: Path) -> str:
    """What to do about an import of one of the folder's files as if it were a module of its own."""
    if not isinstance(error, ModuleNotFoundError) or not error.name:
        return ""
    top, *_ = error.name.split(".")
    if top == folder.name or (folder / f"{top}.py").is_file() or (folder / top).is_dir():
        return "; files of this folder are imported with a dot, like `from ._prices import PRICES`"
    return ""
