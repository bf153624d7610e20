"""`runyard agents`: the agents that one may call."""

from runyard.cli import exits
from runyard.cli.gateways import print_json, tell
from runyard.cli.tables import output_console, row, table
from runyard.client import Client


async def listing(client: Client, *, json: bool) -> int:
    agents = await client.agents()
    if json:
        for agent in agents:
            print_json(agent.to_json())
        return exits.DONE
    if not agents:
        tell("no agents: a worker registers those of its folder; `runyard new NAME` writes one")
        return exits.DONE
    drawn = table(("AGENT", "MODEL", "QUEUE", "WORKERS", "TOOLS"), right=("WORKERS",))
    for agent in agents:
        tools = ", ".join(tool.name for tool in agent.tools)
        row(drawn, agent.name, agent.model or "default", agent.queue, agent.live_workers, tools)
    output_console().print(drawn)
    return exits.DONE
