"""An agent on a queue of its own, for a worker that keeps few bytes of a stream."""

from runyard_agents.clerk import hold, narrate

from runyard import agent

brief = agent(system="You are brief.", queue="brief", tools=[hold, narrate])
