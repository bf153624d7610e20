"""What tests of agents import: `from runyard.testing import harness`. Needs `pip install 'runyard[testing]'`."""

try:
    from runyard_workers.providers.model import ModelRequest
    from runyard_workers.testing.errors import ScriptError
    from runyard_workers.testing.harness import Harness
    from runyard_workers.testing.opening import harness
    from runyard_workers.testing.results import RunResult, SeenFrame, ToolCall
    from runyard_workers.testing.rooms import Broadcast
    from runyard_workers.testing.runs import StartedRun
    from runyard_workers.testing.script import Script
    from runyard_workers.testing.sync import SyncHarness, SyncRun
    from runyard_workers.testing.targets import load
    from runyard_workers.testing.tools import ToolExecution
except ModuleNotFoundError as error:
    if error.name is None or error.name.partition(".")[0] != "runyard_workers":
        raise
    raise ImportError("runyard.testing runs agents as a worker does: pip install 'runyard[testing]'") from error

__all__ = [
    "Broadcast",
    "Harness",
    "ModelRequest",
    "RunResult",
    "Script",
    "ScriptError",
    "SeenFrame",
    "StartedRun",
    "SyncHarness",
    "SyncRun",
    "ToolCall",
    "ToolExecution",
    "harness",
    "load",
]
