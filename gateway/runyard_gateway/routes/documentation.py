"""The OpenAPI document at `/openapi.json`, without a token."""

from collections.abc import Sequence

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from runyard_gateway.answers import json_answer
from runyard_gateway.openapi import document
from runyard_gateway.operations import Described


def documentation(operations: Sequence[Described]) -> list[Route]:
    answer = json_answer(document(operations))

    async def openapi(_request: Request) -> Response:
        return answer

    return [Route("/openapi.json", openapi)]
