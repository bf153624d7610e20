"""Calls of functions: `POST /v1/functions/{name}`."""

from starlette.requests import Request
from starlette.types import ASGIApp

from runyard.errors import (
    AgentRequiresUser,
    AgentRunForbidden,
    FunctionEnded,
    FunctionNotFound,
    IdempotencyMismatch,
    RateLimited,
    RunNotFound,
    StreamGone,
    StreamOverloaded,
)
from runyard_gateway.auth.acting import acting, check_may_run
from runyard_gateway.auth.authenticator import unauthenticated
from runyard_gateway.auth.principal import Identity, Principal
from runyard_gateway.calls import CALL_ANSWERS, CALL_PARAMETERS, answer_call
from runyard_gateway.directory import KnownAgent
from runyard_gateway.function_answer import FunctionAnswer, answer_again, settled_answer
from runyard_gateway.gateway import Gateway
from runyard_gateway.new_turns import function_turn
from runyard_gateway.operations import Operation, anybody
from runyard_gateway.requests import CallFunction, read_body
from runyard_gateway.routes.agents import may_call


async def call_function(gateway: Gateway, request: Request, principal: Principal) -> ASGIApp:
    """Call a function. With `Accept: text/event-stream` the answer is its stream if it streams anything, else its value
    as soon as there is one; with `Prefer: wait=N` it is the result.
    """
    function = await _callable_function(gateway, request.path_params["name"], principal)
    body = await read_body(request, CallFunction, limit_bytes=gateway.settings.body_max_bytes)
    identity = acting(principal, body.act_as)
    check_may_run(function, identity)
    turn = function_turn(request, principal, function, body, identity)
    return await answer_call(
        gateway,
        request,
        principal,
        turn,
        stream_of=FunctionAnswer,
        again_of=answer_again,
        result_of=settled_answer,
    )


async def _callable_function(gateway: Gateway, name: str, principal: Principal) -> KnownAgent:
    """The function, if the caller may call it.

    Raises:
        Unauthenticated: the caller shows nothing, and the function is unknown or not public; both get the same answer.
        FunctionNotFound: it is unknown, internal, or not for this caller; all get the same answer.
    """
    function = await gateway.directory.function(name)
    if principal.is_nobody and (function is None or function.spec["auth"] != "public"):
        raise unauthenticated()
    if function is None or not may_call(function, principal) or not is_let_in(function, principal):
        raise FunctionNotFound(f"no function is named {name!r}", function=name)
    return function


def is_let_in(function: KnownAgent, principal: Principal) -> bool:
    """Whether it is not internal, or the caller may call internal functions."""
    caller = principal.caller
    is_admin = isinstance(caller, Identity) and caller.is_admin
    return is_admin or principal.is_service or not function.spec.get("internal")


OPERATIONS = (
    Operation(
        method="POST",
        path="/v1/functions/{name}",
        handler=call_function,
        caller=anybody,
        body=CallFunction,
        parameters=CALL_PARAMETERS,
        answers=CALL_ANSWERS,
        errors=(
            AgentRequiresUser,
            AgentRunForbidden,
            FunctionEnded,
            FunctionNotFound,
            IdempotencyMismatch,
            RateLimited,
            RunNotFound,
            StreamGone,
            StreamOverloaded,
        ),
    ),
)
