"""No worker serves its queue: the benchmark itself writes the frames of its streams."""

from runyard import agent

watched = agent(system="You are watched.", queue="watched", model="claude-sonnet-4-5")
