"""A folder of agent files as the package `runyard_agents`, imported by path.

Its files can import each other (`from runyard_agents import _shared`, `from ._shared import x`), whatever the folder is
called and whatever else is on `sys.path`: a user's own package `agents` or `shared` never collides.
"""

import ast
import importlib
import sys
from collections.abc import Iterator
from importlib.machinery import SOURCE_SUFFIXES, FileFinder, ModuleSpec, SourceFileLoader
from importlib.util import module_from_spec, resolve_name
from pathlib import Path
from types import ModuleType
from typing import NoReturn

PACKAGE = "runyard_agents"


class _FreshSourceLoader(SourceFileLoader):
    """Compiles what the file holds now. Cached bytecode is matched by size and second, so a quick save could go
    unnoticed.
    """

    def path_stats(self, path: str | bytes) -> NoReturn:
        # importlib's word for "no cache": without it nothing is read from __pycache__ or written to it.
        raise OSError(path)


def mount(folder: Path) -> None:
    """Make the folder the package, and forget the modules of one mounted before. One folder for each process."""
    for name in [name for name in sys.modules if name == PACKAGE or name.startswith(f"{PACKAGE}.")]:
        del sys.modules[name]
    spec = ModuleSpec(PACKAGE, None, is_package=True)
    spec.submodule_search_locations = [str(folder)]
    sys.modules[PACKAGE] = module_from_spec(spec)
    sys.path_importer_cache[str(folder)] = FileFinder(str(folder), (_FreshSourceLoader, SOURCE_SUFFIXES))


def mounted() -> Path | None:
    """The folder that is the package now."""
    package = sys.modules.get(PACKAGE)
    return None if package is None else Path(package.__path__[0])


def import_file(name: str) -> ModuleType:
    """Import `<folder>/<name>.py`; raises whatever the file raises."""
    return importlib.import_module(f"{PACKAGE}.{name}")


class Imports:
    """Which of a folder's files import which, as they are now. Each is read once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._direct: dict[Path, frozenset[Path]] = {}
        self._all: dict[Path, frozenset[Path]] = {}

    def of(self, path: Path) -> frozenset[Path]:
        """The files that this file imports with an import statement, directly or through others; without the file
        itself.
        """
        if path not in self._all:
            found: set[Path] = set()
            waiting = [path]
            while waiting:
                for imported in self._direct_of(waiting.pop()):
                    if imported not in found and imported != path:
                        found.add(imported)
                        waiting.append(imported)
            self._all[path] = frozenset(found)
        return self._all[path]

    def _direct_of(self, path: Path) -> frozenset[Path]:
        if path not in self._direct:
            self._direct[path] = frozenset(_direct_imports(path, self.folder))
        return self._direct[path]


def _direct_imports(path: Path, folder: Path) -> Iterator[Path]:
    parts = path.relative_to(folder).with_suffix("").parts
    package = ".".join((PACKAGE, *parts[:-1]))
    for node in ast.walk(ast.parse(path.read_bytes())):
        match node:
            case ast.Import(names=names):
                modules = [alias.name for alias in names]
            case ast.ImportFrom(module=module, names=names, level=level):
                origin = resolve_name("." * level + (module or ""), package)
                modules = [origin, *(f"{origin}.{alias.name}" for alias in names)]
            case _:
                continue
        for name in modules:
            yield from _files_of(name, folder)


def _files_of(module: str, folder: Path) -> Iterator[Path]:
    """The files that importing a module runs: its own, and `__init__.py` of the packages above it."""
    package, *parts = module.split(".")
    if package != PACKAGE:
        return
    for depth in range(1, len(parts) + 1):
        place = folder.joinpath(*parts[:depth])
        for file in (place.with_suffix(".py"), place / "__init__.py"):
            if file.is_file():
                yield file
