"""`runyard dev`: the whole system on this machine as real processes, on embedded parts."""

import asyncio
import os
import socket
import sys
from pathlib import Path

from runyard.cli import valkey
from runyard.cli.examples import agents_folder
from runyard.cli.process import Child
from runyard.cli.state import State
from runyard.cli.supervisor import supervise
from runyard.cli.system import System
from runyard.cli.terminal import show
from runyard.errors import StartError
from runyard.settings import Settings

DRAIN_S = "3"  # Ctrl-C is over within seconds; RUNYARD_DRAIN_S may ask for more


def run(*, agents: str | None, host: str | None, port: str | None) -> None:
    """Run the system until a signal stops it. However it ends, no process is left behind.

    Raises:
        StartError: it cannot start.
        ChildExitedError: a process ended that should have gone on.
    """
    state = State.open(Path(".runyard"))
    settings = _settings(state, {"RUNYARD_AGENTS": agents, "RUNYARD_HOST": host, "RUNYARD_PORT": port})
    asyncio.run(_serve(settings, state))


def _settings(state: State, options: dict[str, str | None]) -> Settings:
    """Complete the environment, which the processes inherit, and read it as they will."""
    os.environ.update({name: value for name, value in options.items() if value is not None})
    os.environ.update(
        {
            "RUNYARD_DATABASE_URL": state.database_url,
            "RUNYARD_REDIS_URL": state.redis_url,
            "RUNYARD_BROKER_URL": state.redis_url,
            "RUNYARD_AUTH": "dev",
            "RUNYARD_DEV": "1",
            "RUNYARD_METRICS_PORT": "",  # gateway and worker would want the same one
            "RUNYARD_AGENTS": os.environ.get("RUNYARD_AGENTS") or str(agents_folder()),
            "RUNYARD_DRAIN_S": os.environ.get("RUNYARD_DRAIN_S") or DRAIN_S,
            "PYTHONUNBUFFERED": "1",  # what a tool prints is seen when it is printed
        }
    )
    return Settings.load()


async def _serve(settings: Settings, state: State) -> None:
    agents = _agents_folder(settings)
    key = _sendable_key(os.environ.get("ANTHROPIC_API_KEY", ""))
    binary = valkey.find_server()
    async with state.locked() as lock:
        port = _free_port(settings.host, settings.port)
        os.environ.update({"RUNYARD_HOST": settings.host, "RUNYARD_PORT": str(port)})
        system = System(
            store=valkey.server(binary, socket=state.socket, folder=state.folder),
            gateway=_python("gateway", "runyard_gateway", grace_s=8),  # it ends open answers within 5 s
            # Beyond the drain: the longest a worker takes to leave once its runs are given back.
            worker=_python("worker", "runyard_workers", grace_s=settings.drain_s + 5),
            state=state,
            agents=agents,
            host=settings.host,
            port=port,
            demo=not key,
        )
        await supervise(system.run, lock=lock, show=show)


def _python(name: str, module: str, *, grace_s: float) -> Child:
    return Child(name=name, command=(sys.executable, "-m", module), grace_s=grace_s)


def _agents_folder(settings: Settings) -> Path:
    folder = settings.agents
    if folder is None or not folder.is_dir():
        raise StartError(
            f"there is no folder {folder}: name the one of your agents with --agents, or begin one with "
            "`runyard new NAME`"
        )
    return folder.resolve()


def _sendable_key(key: str) -> str:
    """Check the key: with one that no header can hold the start would succeed, and every run would fail."""
    if any(not "!" <= character <= "~" for character in key):
        raise StartError(
            "ANTHROPIC_API_KEY holds a space, a line break or a character that is not ASCII: set it again, or unset it"
        )
    return key


def _free_port(host: str, port: int) -> int:
    """The port itself; for 0, one on which nobody listens."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.create_server((host, port), family=family) as listener:
            free: int = listener.getsockname()[1]
            return free
    except OSError as error:
        raise StartError(
            f"cannot listen on port {port} of {host} ({os.strerror(error.errno or 0)}): "
            "choose another with --port, or `make dev PORT=...`"
        ) from error
