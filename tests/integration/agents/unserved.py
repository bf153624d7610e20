"""An agent on a queue that no worker serves: its runs stay queued."""

from runyard import agent

unserved = agent(system="You wait.", queue="unserved")
