"""What an agent's file imports: `from runyard import agent, tool`. Callers': `from runyard import Client`."""

from typing import TYPE_CHECKING, Any

from runyard.authoring.agents import agent
from runyard.authoring.content import Content
from runyard.authoring.context import RunContext
from runyard.authoring.errors import Refused
from runyard.authoring.functions import function
from runyard.authoring.lifespan import lifespan
from runyard.authoring.tools import tool

if TYPE_CHECKING:
    from runyard.client import Client as Client
    from runyard.client import SyncClient as SyncClient

__all__ = ["Content", "Refused", "RunContext", "agent", "function", "lifespan", "tool"]

_OF_THE_CLIENT = frozenset({"Client", "SyncClient"})
"""Not in `__all__`: `import *` in an agent's file must not need an HTTP library."""


def __getattr__(name: str) -> Any:
    """The clients are imported when they are asked for: agents' files need none, and no HTTP library.

    Raises:
        ImportError: that library is not installed. The message names the extra that has it.
    """
    if name in _OF_THE_CLIENT:
        import runyard.client

        return getattr(runyard.client, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
