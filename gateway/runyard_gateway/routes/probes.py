"""`/healthz`: the process serves. `/readyz`: it can also accept a call. Both without a token."""

from starlette.requests import Request
from starlette.responses import Response

from runyard.db.reads import check_writable
from runyard.errors import NotReady, StoreUnavailable
from runyard_gateway import shapes
from runyard_gateway.answers import Answer, json_answer
from runyard_gateway.gateway import Gateway
from runyard_gateway.operations import OpenOperation


async def healthz(_gateway: Gateway, _request: Request) -> Response:
    """Check that the process serves."""
    return json_answer({"status": "ok"})


async def readyz(gateway: Gateway, _request: Request) -> Response:
    """Check that the gateway can accept a call. It cannot while it is leaving, or while its database cannot be
    written.
    """
    if gateway.draining.is_set():
        raise NotReady("the gateway is leaving")
    try:
        await gateway.database.read(check_writable)
    except StoreUnavailable as error:
        raise NotReady(error.message) from error
    return json_answer({"status": "ready"})


PROBES = (
    OpenOperation(
        method="GET",
        path="/healthz",
        handler=healthz,
        answers=(Answer(status=200, description="It does.", shape=shapes.Status),),
    ),
    OpenOperation(
        method="GET",
        path="/readyz",
        handler=readyz,
        answers=(Answer(status=200, description="It can.", shape=shapes.Status),),
        errors=(NotReady,),
    ),
)
