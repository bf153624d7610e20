"""`/healthz`: the process serves. `/readyz`: it can also accept a call. Both without a token."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from runyard.db.reads import check_writable
from runyard.errors import NotReady, StoreUnavailable
from runyard_gateway.answers import json_answer
from runyard_gateway.gateway import Gateway


def probes(gateway: Gateway) -> list[Route]:
    async def healthz(_request: Request) -> Response:
        return json_answer({"status": "ok"})

    async def readyz(_request: Request) -> Response:
        if gateway.draining.is_set():
            raise NotReady("the gateway is leaving")
        try:
            await gateway.database.read(check_writable)
        except StoreUnavailable as error:
            raise NotReady(error.message) from error
        return json_answer({"status": "ready"})

    return [Route("/healthz", healthz), Route("/readyz", readyz)]
