"""The client of a gateway's HTTP API: `from runyard import Client`. It needs the extra `client`."""

try:
    import httpx2  # noqa: F401
except ImportError as error:
    raise ImportError("runyard's client needs httpx2: pip install 'runyard[client]'", name="httpx2") from error

from runyard.client.answers import (
    Accepted,
    Agent,
    Cancellation,
    Cost,
    Failure,
    Input,
    Invocation,
    Message,
    Result,
    Run,
    Step,
    StepCall,
    Tool,
)
from runyard.client.blocking import SyncClient, SyncStream
from runyard.client.client import Client
from runyard.client.failures import StillRunning, StreamCut, UnexpectedAnswer, Unreachable
from runyard.client.frames import (
    Committed,
    Ended,
    Event,
    Frame,
    Output,
    Queued,
    Rewind,
    Status,
    Steered,
    Text,
    Thinking,
    ToolEnd,
    ToolStart,
)
from runyard.client.options import ActAs, CallOptions
from runyard.client.streams import Stream

__all__ = [
    "Accepted",
    "ActAs",
    "Agent",
    "CallOptions",
    "Cancellation",
    "Client",
    "Committed",
    "Cost",
    "Ended",
    "Event",
    "Failure",
    "Frame",
    "Input",
    "Invocation",
    "Message",
    "Output",
    "Queued",
    "Result",
    "Rewind",
    "Run",
    "Status",
    "Steered",
    "Step",
    "StepCall",
    "StillRunning",
    "Stream",
    "StreamCut",
    "SyncClient",
    "SyncStream",
    "Text",
    "Thinking",
    "Tool",
    "ToolEnd",
    "ToolStart",
    "UnexpectedAnswer",
    "Unreachable",
]
