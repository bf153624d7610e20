"""Checks every answer that a test gets against the OpenAPI document: route, status, headers, content type, body.

What a gateway took (2xx) has to be what the document says that it takes, too.
"""

import copy
import json
import re
from functools import cache
from typing import Any

import httpx2
import jsonschema_rs
from starlette.routing import compile_path
from tests.clients.sse import Event

from runyard_gateway.app import operations
from runyard_gateway.openapi import document

DOCUMENT = document(operations())
UNDESCRIBED = re.compile(r"/|/console/.*|/docs(/.*)?|/openapi\.json|/api/.*")
"""What is for browsers, the document itself, and other protocols."""

Operation = dict[str, Any]


class Undocumented(AssertionError):
    """The gateway did what its document does not say."""


def _closed(schema: Any) -> Any:
    """As the gateway is to answer: no field beside those that are named, where a client has to take others."""
    match schema:
        case dict():
            closed = {name: _closed(value) for name, value in schema.items()}
            if closed.get("type") == "object" and "properties" in closed:
                closed.setdefault("additionalProperties", False)
            return closed
        case list():
            return [_closed(value) for value in schema]
    return schema


_CLOSED = _closed(copy.deepcopy(DOCUMENT))
_ROUTES = [(compile_path(path)[0], path) for path in DOCUMENT["paths"]]


async def check_exchange(response: httpx2.Response) -> None:
    """A hook of the tests' HTTP client. The body of a stream is left to its reader.

    Raises:
        Undocumented: it says what is not in the document.
    """
    method, url = response.request.method, response.request.url
    if method == "OPTIONS" or not is_described(response):
        return
    where = f"{method} {url.path} -> {response.status_code}"
    found = next((path for pattern, path in _ROUTES if pattern.match(url.path)), None)
    methods = DOCUMENT["paths"].get(found, {})
    named = "get" if method == "HEAD" else method.lower()
    if named not in methods:
        wanted = 404 if found is None else 405
        if response.status_code != wanted:
            raise Undocumented(f"{where}: the document has no such route, and it is not answered {wanted}")
        check_error(json.loads(await response.aread()))
        return
    answers, status = methods[named]["responses"], str(response.status_code)
    if status not in answers and not (response.is_error and (status := "default") in answers):
        raise Undocumented(f"{where}: this status is not in the document: {(await response.aread())[:500]!r}")
    await _check_answer(response, answers[status], (found, named, status), where)
    if response.is_success:
        _check_request(response.request, methods[named], (found, named), where)


def is_described(response: httpx2.Response) -> bool:
    return UNDESCRIBED.fullmatch(response.request.url.path) is None


def check_terminal(event: Event) -> None:
    """The frame that ends a stream: an invocation's result, or an error's body."""
    data = json.loads(event.data)
    if event.type == "error":
        check_error(data)
    else:
        _check(_validator({"$ref": "#/components/schemas/Result"}), data, f"event {event.type}")


def check_error(body: Any) -> None:
    _check(_validator({"$ref": "#/components/schemas/Error"}), body, "error")


async def _check_answer(response: httpx2.Response, described: Operation, place: tuple[str, ...], where: str) -> None:
    for name, header in {**described["headers"], **DOCUMENT["components"]["headers"]}.items():
        if header.get("required") and name not in response.headers:
            raise Undocumented(f"{where}: no header {name}")
    media = response.headers.get("content-type", "").partition(";")[0]
    content = described.get("content", {})
    if (media or None) not in (content or {None: {}}):
        raise Undocumented(f"{where}: {media or 'nothing'}, where the document has {sorted(content) or 'nothing'}")
    if media == "application/json" and response.request.method != "HEAD":
        _check(_answer_validator(*place), json.loads(await response.aread()), where)


def _check_request(request: httpx2.Request, described: Operation, place: tuple[str, ...], where: str) -> None:
    known = {parameter["name"] for parameter in described["parameters"] if parameter["in"] == "query"}
    filters = {name for name in request.url.params if name.startswith("metadata.")} if "metadata.{key}" in known else {}
    if unknown := set(request.url.params) - known - set(filters):
        raise Undocumented(f"{where}: took the parameters {sorted(unknown)}")
    if request.content:
        if "requestBody" not in described:
            raise Undocumented(f"{where}: took a body")
        _check(_request_validator(*place), json.loads(request.content), f"{where}: the body that it took")


@cache
def _answer_validator(path: str, method: str, status: str) -> jsonschema_rs.Draft202012Validator:
    described = _CLOSED["paths"][path][method]["responses"][status]
    return _validator(described["content"]["application/json"]["schema"])


@cache
def _request_validator(path: str, method: str) -> jsonschema_rs.Draft202012Validator:
    described = DOCUMENT["paths"][path][method]["requestBody"]
    return _validator(described["content"]["application/json"]["schema"], DOCUMENT)


def _validator(schema: Any, within: Any = _CLOSED) -> jsonschema_rs.Draft202012Validator:
    return jsonschema_rs.Draft202012Validator({**schema, "components": within["components"]})


def _check(validator: jsonschema_rs.Draft202012Validator, value: Any, where: str) -> None:
    problems = [f"{'.'.join(map(str, it.instance_path))}: {it.message}" for it in validator.iter_errors(value)]
    if problems:
        raise Undocumented("\n".join([where, *problems]))
