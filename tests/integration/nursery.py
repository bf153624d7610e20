"""Starts the system's processes by forking one that has imported what they run: an import costs seconds, and the tests
start hundreds of processes.

A child is a process as any other: it has its own id, environment, log and death. What differs from `python -m` is that
its modules are there already; `test_roles_apart.py` and `runyard dev` start theirs with an interpreter each.
"""

import multiprocessing
import os
import runpy
import sys
from collections.abc import Mapping
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path

IMPORTED = (
    "runyard_gateway.app",
    "runyard.db.migrate",
    "runyard_workers.main",
    "runyard_workers.providers.sdk_errors",
    "anthropic.resources.messages",
    "aiohttp",
    "uvloop",
    "pytest",
)
"""The last one because a child looks for the module that its parent was started with."""


def born(module: str, environment: Mapping[str, str], log: Path) -> ForkServerProcess:
    """A process that runs `module` as `python -m` does, and writes to its log alone."""
    child = forking().Process(target=_live, args=(module, dict(environment), log))
    child.start()
    return child


def forking() -> ForkServerContext:
    """For what is started otherwise than by a module's name."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([*IMPORTED])  # heard by the first who asks; it is the same for all
    return context


def _live(module: str, environment: dict[str, str], log: Path) -> None:
    output = os.open(log, os.O_WRONLY | os.O_APPEND)
    for descriptor in (sys.__stdout__, sys.__stderr__):
        assert descriptor is not None
        os.dup2(output, descriptor.fileno())
    os.close(output)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = [module]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
