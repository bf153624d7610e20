"""What is done to a run while it goes on: steer it, take an input back, stop it."""

from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.types import ASGIApp

from runyard.db import reads
from runyard.db.inputs import retract_input
from runyard.errors import AlreadyFolded, InvalidArgs, RunNotFound
from runyard.lifecycle.cancelling import Cancelled
from runyard.names import FUNCTION_PREFIX
from runyard.runs import BUSY, RunStatus
from runyard_gateway import shapes, waiting
from runyard_gateway.answers import Answer, json_answer
from runyard_gateway.auth.acting import acting
from runyard_gateway.auth.principal import Principal
from runyard_gateway.calls import CALL_ANSWERS, CALL_ERRORS, CALL_PARAMETERS, answer_call
from runyard_gateway.gateway import Gateway
from runyard_gateway.new_turns import agent_turn
from runyard_gateway.operations import Operation
from runyard_gateway.parameters import PREFER
from runyard_gateway.requests import CancelRun, ContinueRun, read_body, wait_s
from runyard_gateway.routes.agents import callable_agent
from runyard_gateway.routes.runs import run_not_found
from runyard_gateway.stopping import stop
from runyard_gateway.views import input_view, result_view


async def send_input(gateway: Gateway, request: Request, principal: Principal) -> ASGIApp:
    """Continue the run, or steer the invocation that runs. It is answered like the call that starts a run."""
    found = await gateway.database.read(reads.run_of, request.path_params["id"], principal.scope)
    if found is None:
        raise run_not_found(request)
    run, _invocation, _waiting = found
    if run.agent.startswith(FUNCTION_PREFIX):
        raise InvalidArgs("a function is one call: its run takes no input", runId=run.id)
    agent = await callable_agent(gateway, run.agent, principal)
    body = await read_body(request, ContinueRun, limit_bytes=gateway.settings.body_max_bytes)
    identity = acting(principal, body.act_as, continues=run)
    turn = agent_turn(gateway, request, principal, agent, body, identity=identity, continues=run.id)
    return await answer_call(gateway, request, principal, turn)


async def retract(gateway: Gateway, request: Request, principal: Principal) -> ASGIApp:
    """Take back an input that is not in the transcript yet. The answer contains it, so that it can
    be sent again.
    """
    run_id, input_id = request.path_params["id"], request.path_params["input_id"]
    taken = await gateway.database.write(retract_input, run_id, principal.scope, input_id)
    if taken is None:
        raise RunNotFound("Input not found", runId=run_id, inputId=input_id)
    return json_answer({"runId": run_id, "retracted": {**input_view(taken), "content": taken.content}})


async def cancel(gateway: Gateway, request: Request, principal: Principal) -> ASGIApp:
    """Stop the invocation that is in progress, or the one that is named. Answered once it has ended, as long as
    `Prefer: wait=N` allows, else with 202: it is asked to.

    One that has ended keeps its status, and nothing that came after it is stopped: a cancel that names its invocation
    may be sent again. Input that waits for a settled run's next turn is dropped.
    """
    body = await read_body(request, CancelRun, limit_bytes=gateway.settings.body_max_bytes)
    seconds = wait_s(request)
    done = await stop(gateway, request.path_params["id"], principal.scope, invocation_id=body.invocation_id)
    if done.ending is not None:
        return json_answer(_view(done, done.ending.result))
    found = None
    if done.invocation_id is not None and (seconds is not None or done.status is not RunStatus.RUNNING):
        found = await waiting.awaited(gateway, done.invocation_id, principal, seconds or 0)
    result = {"status": done.status} if found is None else result_view(*found)
    return json_answer(_view(done, result), status=202 if result["status"] in BUSY else 200)


def _view(done: Cancelled, result: Mapping[str, Any]) -> dict[str, Any]:
    """`shapes.Cancellation`. `result`: what is known of the invocation that the cancel was for, its status at least."""
    status = result["status"]
    return {
        **result,
        "runId": done.run.id,
        "invocationId": done.invocation_id,
        "status": status,
        "cancelRequested": status in BUSY,
        "cancelled": status == RunStatus.CANCELLED,
        "dropped": [input_view(item) for item in done.dropped],
    }


OPERATIONS = (
    Operation(
        method="POST",
        path="/v1/runs/{id}/input",
        handler=send_input,
        body=ContinueRun,
        parameters=CALL_PARAMETERS,
        answers=CALL_ANSWERS,
        errors=CALL_ERRORS,
    ),
    Operation(
        method="DELETE",
        path="/v1/runs/{id}/input/{input_id}",
        handler=retract,
        answers=(Answer(status=200, description="The input.", shape=shapes.Retraction),),
        errors=(RunNotFound, AlreadyFolded),
    ),
    Operation(
        method="POST",
        path="/v1/runs/{id}/cancel",
        handler=cancel,
        body=CancelRun,
        parameters=(PREFER,),
        answers=(
            Answer(status=200, description="It has ended.", shape=shapes.Cancellation),
            Answer(status=202, description="It is asked to.", shape=shapes.Cancellation),
        ),
        errors=(RunNotFound,),
    ),
)
