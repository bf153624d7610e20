"""The OpenAPI document at `/openapi.json`, and the page at `/docs` that shows it. Both without a token."""

from collections.abc import Mapping, Sequence
from importlib.resources import files

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from runyard_gateway.answers import json_answer
from runyard_gateway.assets import page_routes
from runyard_gateway.openapi import document
from runyard_gateway.operations import Described

POLICY: Mapping[str, str] = {
    "default-src": "'none'",
    "script-src": "'self'",
    "style-src": "'self'",
    "img-src": "'self' data:",  # its style sheet holds its icons
    "connect-src": "'self'",
    "form-action": "'none'",
    "base-uri": "'none'",
    "frame-ancestors": "'none'",
}


def documentation(operations: Sequence[Described]) -> list[Route]:
    answer = json_answer(document(operations))

    async def openapi(_request: Request) -> Response:
        return answer

    page = page_routes(files("runyard_gateway") / "reference", page="/docs", files="/docs", policy=POLICY)
    return [Route("/openapi.json", openapi), *page]
