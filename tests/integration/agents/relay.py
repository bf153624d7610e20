"""An agent on a queue of its own, for workers that come and go."""

import time

from runyard_agents._outside import FOLDER, POLL_S, reach
from runyard_agents.clerk import attend, charge, explode, hold

from runyard import agent, tool


@tool
def hold_thread(gate: str) -> str:
    """Wait until the test opens a gate, and keep a thread meanwhile."""
    reach(gate)
    while not (FOLDER / f"gate-{gate}").exists():
        time.sleep(POLL_S)  # a test sets no event in this process
    return "let through"


relay = agent(system="You pass it on.", queue="relay", tools=[charge, hold, attend, explode, hold_thread])
