"""What `runyard dev` prints: each process's lines behind its name, and the banner."""

import os
import signal
import sys
from dataclasses import dataclass
from pathlib import Path

from runyard.cli.examples import EXAMPLES

COLOURS = {"runyard": 35, "gateway": 36, "worker": 32}
NAME_WIDTH = max(len(name) for name in COLOURS)


def show(name: str, line: str) -> None:
    """`show("worker", "run claimed")` prints `worker  | run claimed`."""
    prefix = f"{name:<{NAME_WIDTH}} |"
    if sys.stdout.isatty() and "NO_COLOR" not in os.environ:
        prefix = f"\x1b[{COLOURS.get(name, 0)}m{prefix}\x1b[0m"
    _print(f"{prefix} {line}")


def _print(text: str) -> None:
    try:
        print(text, flush=True)
    except BrokenPipeError:  # `make dev | head`: nobody reads any more
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        signal.raise_signal(signal.SIGTERM)


@dataclass(frozen=True, kw_only=True)
class Banner:
    url: str
    agents: list[str]
    folder: Path
    state: Path
    demo: bool

    def print(self) -> None:
        lines = [
            f"\n  Runyard is up at {self.url}\n",
            f"  agents   {', '.join(self.agents) or 'none yet'}   ({_source(self.folder)})",
            f"  model    {_model(self.demo)}",
            f"  state    {self.state}, kept when you stop with Ctrl-C",
        ]
        if self.agents:
            lines.append(f"  try it   {_curl(self.url, self.agents[0])}")
        _print("\n".join([*lines, ""]))


def _source(folder: Path) -> str:
    if folder == EXAMPLES:
        return "examples that ship with Runyard: make a folder `agents` here for your own, and start again"
    return f"saving a file in {folder} restarts the worker"


def _model(demo: bool) -> str:
    if demo:
        return "the built-in demo model: ANTHROPIC_API_KEY is not set, no provider is called"
    return "the one each agent names, with ANTHROPIC_API_KEY"


def _curl(url: str, agent: str) -> str:
    return (
        f"curl -N {url}/v1/agents/{agent}/runs -H 'Accept: text/event-stream' "
        "-H 'Content-Type: application/json' -d '{\"input\": \"What can you do?\"}'"
    )
