"""An agent that only talks."""

from runyard import agent

talker = agent(system="You answer.", max_steps=3, max_tokens=1000)
