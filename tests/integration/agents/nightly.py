"""An agent whose calls wait behind others, one at a time, on a queue that no worker of the tests serves by itself."""

from runyard_agents.clerk import attend, hold

from runyard import agent

nightly = agent(system="You tidy up.", queue="nightly", tools=[hold, attend], priority="background", max_running=1)
