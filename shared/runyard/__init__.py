"""What an agent's file imports: `from runyard import agent, tool`."""

from runyard.authoring.agents import agent
from runyard.authoring.content import Content
from runyard.authoring.context import RunContext
from runyard.authoring.errors import Refused
from runyard.authoring.functions import function
from runyard.authoring.lifespan import lifespan
from runyard.authoring.tools import tool

__all__ = ["Content", "Refused", "RunContext", "agent", "function", "lifespan", "tool"]
