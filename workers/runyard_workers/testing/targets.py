"""What a test runs: an agent or a function as an object, a file that holds it, or a folder of files."""

from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Protocol, TypeVar

from runyard.authoring.agents import Agent
from runyard.authoring.functions import Function
from runyard.authoring.tools import Tool
from runyard.errors import StartError
from runyard.names import AGENT_NAME, FUNCTION_PREFIX
from runyard_workers.agent_modules import import_file, mounted
from runyard_workers.catalog import Catalog, LoadedAgent, LoadedFunction, load_folder

Target = Agent | Function | str | Path
T = TypeVar("T", bound=Tool)


class Wrap(Protocol):
    """A function that wraps a tool in another one, for example to record its calls."""

    def __call__(self, tool: T, /) -> T: ...


VERSION = "test"
"""The version of an agent or function that is given as an object, since no file is there to hash."""


@dataclass(frozen=True, kw_only=True)
class LoadedTarget:
    """`agent`: the agent of a call that names none; None: every call has to name one."""

    catalog: Catalog
    agent: str | None

    def watched(self, wrap: Wrap) -> Catalog:
        """The catalog with every tool and function wrapped."""
        agents = {
            name: replace(it, agent=replace(it.agent, tools=tuple(wrap(tool) for tool in it.agent.tools)))
            for name, it in self.catalog.agents.items()
        }
        functions = {name: replace(it, function=wrap(it.function)) for name, it in self.catalog.functions.items()}
        return replace(self.catalog, agents=agents, functions=functions)


def load_target(target: Target, *, name: str) -> LoadedTarget:
    """`name`: what an agent that is given as an object is called.

    Raises:
        StartError: the file or the folder does not give what it should.
    """
    match target:
        case Agent():
            return _of_agent(target, name)
        case Function():
            return LoadedTarget(catalog=_catalog(functions=[target]), agent=None)
        case str() | Path() if Path(target).is_dir():
            return _of_folder(Path(target))
        case str() | Path():
            return _of_file(Path(target))
    if isinstance(target, Tool):
        raise TypeError(f"a tool runs in an agent: harness(agent(tools=[{target.name}]))")
    raise TypeError(f"harness(...) takes an agent, a function, or the path of a file or folder, not {target!r:.80}")


def load(path: str | Path) -> ModuleType:
    """The module of an agent's file, as a worker imports it: `load("agents/researcher.py").researcher`.

    The files of the folder are imported once: a harness that is given the same path uses this module. So what a test
    replaces in it is replaced for the agent.

    Raises:
        StartError: the file is not there or does not give what it should.
    """
    _of_file(Path(path))
    return import_file(Path(path).stem)


def _of_agent(agent: Agent, name: str) -> LoadedTarget:
    if AGENT_NAME.fullmatch(name) is None:
        raise ValueError(f"an agent's name is made of a to z, 0 to 9 and '_', a letter first: not {name!r}")
    loaded = LoadedAgent(
        name=name, agent=agent, version=VERSION, manifest=agent.manifest(name), path=Path(f"{name}.py")
    )
    functions = [tool for tool in agent.tools if isinstance(tool, Function)]
    return LoadedTarget(catalog=replace(_catalog(functions=functions), agents={name: loaded}), agent=name)


def _catalog(*, functions: list[Function]) -> Catalog:
    loaded = [
        LoadedFunction(
            name=FUNCTION_PREFIX + it.name, function=it, version=VERSION, manifest=it.manifest(), path=Path("test.py")
        )
        for it in functions
    ]
    return Catalog(agents={}, functions={it.name: it for it in loaded}, problems=(), lifespans=())


def _of_folder(folder: Path) -> LoadedTarget:
    catalog = _loaded(folder.resolve())
    for problem in catalog.problems:
        raise StartError("\n".join(filter(None, (problem.summary, problem.traceback_text))))
    return LoadedTarget(catalog=catalog, agent=next(iter(catalog.agents)) if len(catalog.agents) == 1 else None)


def _of_file(path: Path) -> LoadedTarget:
    path = path.resolve()
    if not path.is_file():
        raise StartError(f"there is no file {path}")
    catalog = _loaded(path.parent)
    for problem in catalog.problems:
        if problem.path == path:
            raise StartError("\n".join(filter(None, (problem.summary, problem.traceback_text))))
    return LoadedTarget(catalog=catalog, agent=path.stem if path.stem in catalog.agents else None)


_last: tuple[Path, Catalog] | None = None


def _loaded(folder: Path) -> Catalog:
    """The folder's catalog, imported again if another folder was in between: a process has one package of agents."""
    global _last  # noqa: PLW0603 - as `sys.modules`, which it says something of
    if _last is None or _last[0] != folder or mounted() != folder:
        _last = (folder, load_folder(folder))
    return _last[1]
