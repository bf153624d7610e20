"""How deep the queues are, for admins and services: `GET /v1/queues`."""

from starlette.requests import Request
from starlette.responses import Response

from runyard.errors import Forbidden
from runyard_gateway import shapes
from runyard_gateway.answers import Answer, json_answer
from runyard_gateway.auth.principal import Identity, Principal
from runyard_gateway.gateway import Gateway
from runyard_gateway.operations import Operation


async def list_queues(gateway: Gateway, _request: Request, principal: Principal) -> Response:
    """Get the depth of the queues, for admins and services.

    Runs are those of the caller's tenants; messages, workers and slots are counted for all tenants together.
    """
    if isinstance(principal.caller, Identity) and not principal.caller.is_admin:
        raise Forbidden("the depth of queues is for admins and services")
    depth = await gateway.depths.now()
    return json_answer(depth.to_dict(depth.of_tenants(principal.scope.tenants)))


OPERATIONS = (
    Operation(
        method="GET",
        path="/v1/queues",
        handler=list_queues,
        answers=(Answer(status=200, description="All of them, on one page.", shape=shapes.Queues),),
        errors=(Forbidden,),
    ),
)
