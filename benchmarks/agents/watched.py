"""No worker serves its queue: what its streams hold is written by whoever measures their readers."""

from runyard import agent

watched = agent(system="You are watched.", queue="watched", model="claude-sonnet-4-5")
