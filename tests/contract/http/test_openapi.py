"""The OpenAPI document: valid, whole, and held against real answers.

`tests/clients/specification.py` holds every answer that any test of the gateway gets against it, too.
"""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import httpx2
import pytest
from openapi_spec_validator import OpenAPIV31SpecValidator
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, Router
from tests.clients.specification import DOCUMENT, UNDESCRIBED, Undocumented, check_exchange
from tests.integration.fixtures import on_sqlite
from tests.integration.stack import Stack
from tests.unit.test_errors import CLASSES

from runyard.errors import CallerError, Unavailable
from runyard_gateway.app import build_app, operations
from runyard_gateway.failures import Failures
from runyard_gateway.gateway import Gateway
from runyard_gateway.operations import Described

pytestmark = pytest.mark.anyio

PAGE = Path(__file__).parents[3] / "docs/http.md"


def routes() -> list[Route]:
    settings = SimpleNamespace(auth="jwt", cors_origins=())
    app = build_app(cast("Gateway", SimpleNamespace(settings=settings)))
    assert isinstance(app, Failures)
    assert isinstance(app._app, Router)
    return [route for route in app._app.routes if isinstance(route, Route)]


def described() -> list[tuple[str, str, dict[str, Any]]]:
    return [(path, method, it) for path, methods in DOCUMENT["paths"].items() for method, it in methods.items()]


def test_it_is_valid() -> None:
    OpenAPIV31SpecValidator(DOCUMENT).validate()


def test_every_route_is_in_it() -> None:
    served = {
        (route.path, method.lower())
        for route in routes()
        for method in route.methods or ()
        if method != "HEAD" and not UNDESCRIBED.fullmatch(route.path)
    }
    assert served == {(path, method) for path, method, _ in described()}


@pytest.mark.parametrize(("path", "method", "operation"), described(), ids=lambda it: it if isinstance(it, str) else "")
def test_every_route_says_what_it_does(path: str, method: str, operation: dict[str, Any]) -> None:
    assert len(operation["summary"]) > 5
    assert not operation["summary"].endswith((".", ":"))
    for parameter in operation["parameters"]:
        assert parameter["in"] == "path" or parameter["description"].endswith(".")
    for status, answer in operation["responses"].items():
        assert answer["description"].strip(), status


def test_no_two_operations_have_one_id() -> None:
    ids = [operation["operationId"] for _, _, operation in described()]
    assert len(set(ids)) == len(ids)


def test_every_code_that_refuses_a_call_is_in_it() -> None:
    """But those that no route answers: there is none, or the request never got to it."""
    text = json.dumps(DOCUMENT["paths"])
    codes = {cls.code for cls in CLASSES if issubclass(cls, CallerError | Unavailable) and "code" in vars(cls)}
    missing = {code for code in codes if f"`{code}`" not in text}
    assert missing == {"NOT_FOUND", "METHOD_NOT_ALLOWED", "REQUEST_TIMEOUT"}


@on_sqlite
async def test_it_is_served_without_a_token(stack: Stack) -> None:
    response = await stack.gateway.anonymous().get("/openapi.json")
    assert response.status_code == 200
    assert response.headers["content-type"] == "application/json"
    assert response.json() == DOCUMENT


# What holds every answer against it can tell ------------------------------------------------------------------------

RUN = {
    "id": "run_1",
    "tenantId": "t",
    "userId": "u",
    "agent": "a",
    "agentVersion": None,
    "sessionId": None,
    "title": None,
    "metadata": {},
    "status": "idle",
    "priority": "interactive",
    "position": None,
    "waitReason": None,
    "error": None,
    "streamId": None,
    "invocationId": None,
    "pendingInput": [],
    "cancelRequested": False,
    "context": None,
    "steps": 0,
    "messageCount": 0,
    "pendingCalls": [],
    "parentRunId": None,
    "usage": {},
    "cost": {"amount": 0.0, "currency": "USD", "unpriced": False},
    "createdAt": "2026-01-01T00:00:00Z",
    "lastActivityAt": "2026-01-01T00:00:00Z",
}
NOT_FOUND = {"error": {"code": "RUN_NOT_FOUND", "message": "no", "requestId": "req_1", "retryable": False}}


def answering(status: int, body: Any, **headers: str) -> httpx2.AsyncClient:
    """A gateway that answers this to everything."""

    async def endpoint(_request: Request) -> Response:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        return Response(content, status, {"X-Request-Id": "req_1", "Content-Type": "application/json", **headers})

    methods = ["GET", "POST", "PATCH", "DELETE"]
    app = Router(routes=[Route("/{path:path}", endpoint, methods=methods)])
    return httpx2.AsyncClient(
        transport=httpx2.ASGITransport(app=app), base_url="http://gateway", event_hooks={"response": [check_exchange]}
    )


@pytest.mark.parametrize(
    ("status", "body"),
    [(200, RUN), (404, NOT_FOUND), (503, {"error": {**NOT_FOUND["error"], "code": "STORE_UNAVAILABLE", "more": 1}})],
)
async def test_what_is_in_it_passes(status: int, body: Any) -> None:
    async with answering(status, body) as http:
        await http.get("/v1/runs/run_1")


@pytest.mark.parametrize(
    ("status", "body", "headers"),
    [
        (200, {**RUN, "extra": 1}, {}),
        (200, {**RUN, "cost": {**RUN["cost"], "extra": 1}}, {}),  # type: ignore[dict-item]
        (200, {name: value for name, value in RUN.items() if name != "title"}, {}),
        (200, {**RUN, "status": "asleep"}, {}),
        (200, b"<p>", {"Content-Type": "text/html"}),
        (201, RUN, {}),
        (409, {"error": {**NOT_FOUND["error"], "code": "RUN_BUSY"}}, {}),
        (404, {"error": {**NOT_FOUND["error"], "code": "AGENT_NOT_FOUND"}}, {}),
        (404, {"error": {"code": "RUN_NOT_FOUND"}}, {}),
        (404, {"detail": "Not Found"}, {}),
    ],
    ids=["field", "inner-field", "missing", "value", "media", "status", "error-status", "code", "error", "body"],
)
async def test_what_is_not_in_it_fails(status: int, body: Any, headers: dict[str, str]) -> None:
    async with answering(status, body, **headers) as http:
        with pytest.raises(Undocumented):
            await http.get("/v1/runs/run_1")


async def test_a_header_that_is_missing_fails() -> None:
    async with answering(201, RUN, **{"X-Run-Id": "run_1"}) as http:
        with pytest.raises(Undocumented, match="Location"):
            await http.post("/v1/runs", json={"agent": "a"})


async def test_a_request_that_ought_not_to_be_taken_fails() -> None:
    async with answering(200, RUN) as http:
        with pytest.raises(Undocumented, match="took the parameters"):
            await http.get("/v1/runs/run_1", params={"fields": "id"})
        with pytest.raises(Undocumented, match="the body that it took"):
            await http.patch("/v1/runs/run_1", json={"name": "x"})
        with pytest.raises(Undocumented, match="took a body"):
            await http.request("GET", "/v1/runs/run_1", json={})


async def test_a_route_that_is_not_in_it_fails() -> None:
    async with answering(200, RUN) as http:
        with pytest.raises(Undocumented, match="no such route"):
            await http.get("/v2/runs")
        with pytest.raises(Undocumented, match="no such route"):
            await http.delete("/v1/agents")


# The page that people read ------------------------------------------------------------------------------------------


def documented_row(operation: Described) -> str:
    summary = DOCUMENT["paths"][operation.path][operation.method.lower()]["summary"]
    statuses = ", ".join(dict.fromkeys(str(answer.status) for answer in operation.answers))
    codes = ", ".join(f"`{error.code}`" for error in operation.errors)
    return f"| `{operation.method} {operation.path}` | {summary} | {statuses} | {codes} |"


def test_the_page_has_every_route() -> None:
    _, _, routes = PAGE.read_text().partition("\n## Routes\n")
    rows = [line for line in routes.splitlines() if line.startswith("| `")]
    assert rows == [documented_row(operation) for operation in operations()]
