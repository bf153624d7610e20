"""From a checked request to the turn that the database is asked to accept."""

from dataclasses import replace
from typing import Any

import orjson
from starlette.requests import Request

from runyard import traces
from runyard.authoring.issues import as_text
from runyard.authoring.shape import Shape
from runyard.clock import now_ms
from runyard.errors import InvalidArgs, ModelNotAllowed
from runyard.ids import new_input_id, new_invocation_id, new_run_id, new_stream_id
from runyard.lifecycle.new_turn import NewTurn
from runyard.priorities import Priority
from runyard_gateway.auth.acting import check_may_run
from runyard_gateway.auth.principal import Identity, Principal
from runyard_gateway.directory import KnownAgent
from runyard_gateway.failures import request_id_of
from runyard_gateway.gateway import Gateway
from runyard_gateway.requests import CallFunction, ContinueRun, QueuedCall, call_key, checked_messages


def agent_turn(
    gateway: Gateway,
    request: Request,
    principal: Principal,
    agent: KnownAgent,
    body: ContinueRun,
    *,
    identity: Identity,
    continues: str | None,
) -> NewTurn:
    """The turn that a call on an agent asks for.

    Raises:
        Forbidden, ModelNotAllowed, InputRequired, InvalidArgs: it may not be asked.
    """
    check_may_run(agent, identity)
    if_busy = body.if_busy or ("reject" if principal.is_service else "steer")
    if principal.is_service and body.context is not None and if_busy == "steer":
        raise InvalidArgs("context is for a new turn: it cannot be sent with ifBusy steer", fields=["context"])
    allowed = {agent.spec["model"] or gateway.settings.model, *gateway.settings.models_allowed}
    if body.model is not None and body.model not in allowed:
        raise ModelNotAllowed(f"the model {body.model!r} is not allowed here", model=body.model)
    checked_messages(body.messages or (), principal)
    history, content = body.said()
    turn = new_turn(request, principal, agent, body, identity=identity, content=content)
    return replace(turn, history=history, options=body.options(), continues=continues, if_busy=if_busy)


def function_turn(
    request: Request, principal: Principal, function: KnownAgent, body: CallFunction, identity: Identity
) -> NewTurn:
    """The turn that a call of a function asks for.

    Raises:
        InvalidArgs: the schema refuses the arguments. The function itself may refuse more of them.
    """
    if issues := Shape(function.spec["inputSchema"]).issues(body.input):
        raise InvalidArgs(as_text(issues), fields=sorted(issues))
    content = orjson.dumps(body.input).decode()
    turn = new_turn(request, principal, function, body, identity=identity, content=content)
    return replace(turn, title=body.title, metadata=body.metadata)


def new_turn(
    request: Request,
    principal: Principal,
    target: KnownAgent,
    body: QueuedCall,
    *,
    identity: Identity,
    content: str | list[dict[str, Any]],
) -> NewTurn:
    """The turn of any call, on an agent or a function (`target`), with new ids."""
    return NewTurn(
        tenant_id=identity.tenant_id,
        user_id=identity.user_id,
        scope=identity.scope,
        agent=target.current.agent,
        queue=target.spec["queue"],
        priority=Priority(body.priority or target.priority),
        content=content,
        roles=tuple(sorted(identity.roles)),
        run_id=new_run_id(),
        invocation_id=new_invocation_id(),
        input_id=new_input_id(),
        stream_id=new_stream_id(),
        request_id=request_id_of(request),
        at=now_ms(),
        context=body.context if principal.is_service else None,
        call_key=call_key(request, body),
        trace_context=traces.carried(),
    )
