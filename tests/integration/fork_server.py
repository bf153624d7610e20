"""Starts the system's processes by forking one that has imported their modules: imports take seconds, and the tests
start hundreds of processes.

A child is a normal process with its own id, environment and log. It differs from `python -m` only in that its modules
are imported already. `test_roles_apart.py` and `runyard dev` start theirs with an interpreter each.
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
"""pytest, because a child imports the main module of its parent."""


def start_module(module: str, environment: Mapping[str, str], log: Path) -> ForkServerProcess:
    """Start a process that runs `module` as `python -m` does, and writes only to its log."""
    child = fork_context().Process(target=_live, args=(module, dict(environment), log))
    child.start()
    return child


def fork_context() -> ForkServerContext:
    """For processes that run a function instead of a module."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([*IMPORTED])  # only the first call has an effect, and all say the same
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
