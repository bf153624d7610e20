"""An agent on a queue of its own, for workers that come and go."""

from runyard_agents.clerk import attend, charge, hold

from runyard import agent

relay = agent(system="You pass it on.", queue="relay", tools=[charge, hold, attend])
