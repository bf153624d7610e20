"""Agents that the caller may call: `GET /v1/agents`, `GET /v1/agents/{name}`."""

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from runyard.clock import to_iso
from runyard.errors import AgentNotFound
from runyard_gateway import shapes
from runyard_gateway.answers import Answer, json_answer
from runyard_gateway.auth.principal import Principal, Service
from runyard_gateway.directory import KnownAgent
from runyard_gateway.gateway import Gateway
from runyard_gateway.operations import Operation


async def list_agents(gateway: Gateway, _request: Request, principal: Principal) -> Response:
    """List the agents that the caller may call, by name."""
    agents = await gateway.directory.all()
    items = [_view(name, agent) for name, agent in sorted(agents.items()) if may_call(agent, principal)]
    return json_answer({"items": items, "nextCursor": None})


async def get_agent(gateway: Gateway, request: Request, principal: Principal) -> Response:
    """Get an agent, with its tools and its workers."""
    name = request.path_params["name"]
    return json_answer(_view(name, await callable_agent(gateway, name, principal)))


async def callable_agent(gateway: Gateway, name: str, principal: Principal) -> KnownAgent:
    """The agent, if the caller may call it.

    Raises:
        AgentNotFound: it is unknown or not for this caller; both get the same answer.
    """
    agent = await gateway.directory.get(name)
    if agent is None or not may_call(agent, principal):
        raise AgentNotFound(f"no agent is named {name!r}", agent=name)
    return agent


def may_call(agent: KnownAgent, principal: Principal) -> bool:
    """A service may call every agent, on behalf of users who may."""
    return isinstance(principal.caller, Service) or agent.is_for(principal.caller)


def _view(name: str, agent: KnownAgent) -> dict[str, Any]:
    """`shapes.Agent`: the manifest, and who serves it."""
    return {
        **agent.spec,
        "name": name,
        "priority": agent.priority,
        "maxRunning": agent.max_running,
        "version": agent.current.version,
        "liveWorkers": agent.live_workers.total(),
        "versions": [
            {
                "version": manifest.version,
                "firstSeen": to_iso(manifest.first_seen),
                "lastSeen": to_iso(manifest.last_seen),
                "liveWorkers": agent.live_workers[manifest.version],
            }
            for manifest in agent.versions
        ],
    }


OPERATIONS = (
    Operation(
        method="GET",
        path="/v1/agents",
        handler=list_agents,
        answers=(Answer(status=200, description="All of them, on one page.", shape=shapes.Page[shapes.Agent]),),
    ),
    Operation(
        method="GET",
        path="/v1/agents/{name}",
        handler=get_agent,
        answers=(Answer(status=200, description="The agent.", shape=shapes.Agent),),
        errors=(AgentNotFound,),
    ),
)
