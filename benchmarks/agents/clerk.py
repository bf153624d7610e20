"""Calls its tool for as long as the stand-in asks for it."""

from runyard import agent, tool


@tool
async def stamp() -> str:
    """Take no time."""
    return "stamped"


clerk = agent(system="You stamp.", tools=[stamp], model="claude-sonnet-4-5")
