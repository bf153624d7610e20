"""The OpenAPI document, made from the table of operations: the models that check requests, and the shapes of answers.

https://spec.openapis.org/oas/v3.1.1.html
"""

import re
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from itertools import groupby
from typing import Any

from pydantic import TypeAdapter
from pydantic.json_schema import JsonSchemaMode

from runyard.errors import (
    Forbidden,
    FunctionEnded,
    InternalError,
    InvalidArgs,
    NotReady,
    PayloadTooLarge,
    RateLimited,
    RunyardError,
    StoreUnavailable,
    Unauthenticated,
    UnsupportedMediaType,
)
from runyard_gateway import shapes
from runyard_gateway.answers import JSON, REQUEST_ID, RETRY_AFTER, Header
from runyard_gateway.operations import Described, OpenOperation, Operation, bearer

Schema = dict[str, Any]

INTRODUCTION = """\
Runs of LLM agents: started, streamed, steered, stopped. JSON in camelCase; clients have to take fields that are not \
named here. Every error has the body `Error` and a code; any path may answer `NOT_FOUND`, `METHOD_NOT_ALLOWED` and, to \
a request that does not come to its end, `REQUEST_TIMEOUT`.

A stream is server-sent events. `id:` is the frame's number, with which a reader comes back (`Last-Event-ID`); answer \
text has no `event:`; `rewind` withdraws text; `result` (the data is a `Result`) or `error` (an `Error`) comes last.
"""

FAILURE: Schema = {
    "type": "object",
    "description": "Why a call failed. Further fields are the code's own.",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["code", "message", "requestId", "retryable"],
            "properties": {
                "code": {"type": "string"},
                "message": {"type": "string"},
                "requestId": {"type": "string", "description": "Also in X-Request-Id."},
                "retryable": {"type": "boolean", "description": "The same call may succeed later, as it is."},
            },
            "additionalProperties": True,
        }
    },
}

_ERROR: Schema = {"$ref": "#/components/schemas/Error"}
_PLACEHOLDER = re.compile(r"{(\w+)}")
_SENTENCE = re.compile(r"(?<=[.:])\s")


def document(operations: Sequence[Described]) -> Schema:
    """The document as JSON values."""
    made, components = _made(operations)
    paths: dict[str, dict[str, Schema]] = {}
    for operation in operations:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _operation(operation, made)
    return {
        "openapi": "3.1.1",
        "info": {"title": "Runyard", "version": version("runyard-gateway"), "description": INTRODUCTION},
        "paths": paths,
        "components": {
            "schemas": dict(sorted({**components, "Error": FAILURE}.items())),
            "headers": {REQUEST_ID.name: _header(REQUEST_ID)},
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer", "description": "A JWT, or a service key."}
            },
        },
    }


def errors_of(operation: Described) -> tuple[type[RunyardError], ...]:
    """The errors that an operation may answer: its own, and those of what happens on every route before the handler."""
    common: list[type[RunyardError]] = [Forbidden, InternalError]  # a gateway of this machine alone refuses strangers
    if not isinstance(operation, OpenOperation):
        common += [InvalidArgs, Unauthenticated, StoreUnavailable, NotReady]
    if operation.body is not None:
        common += [PayloadTooLarge, UnsupportedMediaType]
    return (*common, *operation.errors)


_Key = tuple[str, str, str]
_Schemas = dict[tuple[_Key, JsonSchemaMode], Schema]


def _made(operations: Sequence[Described]) -> tuple[_Schemas, dict[str, Schema]]:
    """The schemas of bodies and answers, by where they are used, and the components that they refer to."""

    def wanted() -> Iterator[tuple[_Key, JsonSchemaMode, TypeAdapter[Any]]]:
        for operation in operations:
            if operation.body is not None:
                yield _key(operation, "body"), "validation", TypeAdapter(operation.body)
            for answer in operation.answers:
                if answer.shape is not None:
                    yield _key(operation, str(answer.status)), "serialization", TypeAdapter(answer.shape)

        yield ("", "", "result"), "serialization", TypeAdapter(shapes.Result)  # the frame that ends a stream

    made, rest = TypeAdapter.json_schemas(list(wanted()), ref_template="#/components/schemas/{model}")
    return made, rest.get("$defs", {})


def _key(operation: Described, part: str) -> _Key:
    return operation.method, operation.path, part


def _operation(operation: Described, made: _Schemas) -> Schema:
    noun = operation.handler.__module__.rpartition(".")[2]
    summary, *more = _SENTENCE.split(operation.words, maxsplit=1)
    described: Schema = {
        "operationId": f"{noun}_{operation.handler.__name__}",
        "tags": [noun],
        "summary": summary.rstrip(".:"),
        "description": "\n".join(more),
        "parameters": list(_parameters(operation)),
        "security": _security(operation),
        "responses": dict(sorted(_responses(operation, made))),
    }
    if operation.body is not None:
        required = any(field.is_required() for field in operation.body.model_fields.values())
        schema = made[_key(operation, "body"), "validation"]
        described["requestBody"] = {"required": required, "content": {JSON: {"schema": schema}}}
    return described


def _security(operation: Described) -> list[Schema]:
    match operation:
        case Operation(caller=caller) if caller is bearer:
            return [{"bearer": []}]
        case Operation():
            return [{"bearer": []}, {}]  # or what its parameters say
    return []


def _parameters(operation: Described) -> Iterator[Schema]:
    for name in _PLACEHOLDER.findall(operation.path):
        yield {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
    for parameter in operation.parameters:
        yield {
            "name": parameter.name,
            "in": parameter.place,
            "description": parameter.description,
            "schema": parameter.schema,
        }


def _responses(operation: Described, made: _Schemas) -> Iterator[tuple[str, Schema]]:
    by_status = sorted(operation.answers, key=lambda answer: answer.status)
    for status, group in groupby(by_status, key=lambda answer: answer.status):
        answers = list(group)
        content = {
            answer.media: _media(made.get((_key(operation, str(status)), "serialization")))
            for answer in answers
            if answer.media is not None
        }
        headers = list(dict.fromkeys(header for answer in answers for header in answer.headers))
        yield str(status), _response(" ".join(answer.description for answer in answers), content, headers)
    errors = sorted(errors_of(operation), key=lambda error: (error.status, error.code))
    any_code = FunctionEnded in errors
    for status, classes in groupby(errors, key=lambda error: error.status):
        codes = list(dict.fromkeys(error.code for error in classes))
        schema = _ERROR if any_code else _error_of(codes)
        waits = [RETRY_AFTER] if status in {RateLimited.status, StoreUnavailable.status} else []
        description = ", ".join(f"`{code}`" for code in codes)
        yield str(status), _response(description, {JSON: {"schema": schema}}, waits)
    if any_code:
        yield (
            "default",
            _response("A code and a status of the function's own (`Refused`).", {JSON: {"schema": _ERROR}}, []),
        )


def _error_of(codes: list[str]) -> Schema:
    return {"allOf": [_ERROR, {"properties": {"error": {"properties": {"code": {"enum": codes}}}}}]}


def _media(shape: Schema | None) -> Schema:
    """A stream has no schema, since OpenAPI 3.1 cannot describe its events."""
    return {} if shape is None else {"schema": shape}


def _response(description: str, content: Schema, headers: Sequence[Header]) -> Schema:
    own = {header.name: _header(header) for header in headers}
    return {
        "description": description,
        "headers": {REQUEST_ID.name: {"$ref": f"#/components/headers/{REQUEST_ID.name}"}, **own},
        **({"content": content} if content else {}),
    }


def _header(header: Header) -> Schema:
    return {"description": header.description, "required": header.always, "schema": {"type": "string"}}
