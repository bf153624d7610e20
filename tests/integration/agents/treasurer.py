"""An agent for admins only."""

from runyard import agent

treasurer = agent(system="You guard the treasure.", auth="admin", rooms=["vault"])
