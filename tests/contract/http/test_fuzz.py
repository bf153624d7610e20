"""Requests that nobody would write: no fault of ours, no undocumented answer, and what is refused is not stored.

Schemathesis makes them from the OpenAPI document, by the document and against it; the table below is what it would not
think of.
"""

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.checks import CHECKS, load_all_checks
from tests.clients.api import Api
from tests.clients.specification import DOCUMENT
from tests.integration.fixtures import on_sqlite
from tests.integration.stack import Stack

from runyard_gateway.operations import Described
from runyard_gateway.parameters import SINCE, Text
from runyard_gateway.routes import OPERATIONS

pytestmark = [pytest.mark.anyio, on_sqlite]

EXAMPLES = 8
"""For each route, of each kind: about what fits into half a minute."""

load_all_checks()
HOLDING = CHECKS.get_by_names(
    [
        "not_a_server_error",
        "status_code_conformance",
        "content_type_conformance",
        "response_headers_conformance",
        "response_schema_conformance",
        "negative_data_rejection",
    ]
)

ENDLESS = {"/v1/feed", "/v1/rooms/{room}"}
"""Their answers go on until the reader leaves: what they take has its tests beside theirs."""

every_operation = pytest.mark.parametrize(
    "operation", [it for it in OPERATIONS if it.path not in ENDLESS], ids=lambda it: f"{it.method} {it.path}"
)
with_a_body = pytest.mark.parametrize(
    "operation", [it for it in OPERATIONS if it.body is not None], ids=lambda it: f"{it.method} {it.path}"
)


def stored(stack: Stack) -> list[Any]:
    """What a call may create, and what it may change of a run."""
    tables = ("agent_runs", "agent_invocations", "agent_inputs", "agent_messages", "idempotency_keys")
    counts: list[Any] = [list(stack.execute(f"SELECT count(*) FROM {table}")[0]) for table in tables]
    return counts + sorted(map(list, stack.execute("SELECT id, status, title, metadata FROM agent_runs")))


async def names_for(operation: Described, api: Api) -> dict[str, str]:
    """What there is, for a path's parameters: a run in a queue that nobody serves, ended where its stream is read."""
    started = await api.start("unserved", "x")
    steering = await api.start("unserved", "y", runId=started["runId"])
    if "stream" in operation.path and operation.method == "GET":
        assert (await api.post(f"/v1/runs/{started['runId']}/cancel")).status_code == 200
    kinds = {"invocations": started["invocationId"], "streams": started["streamId"], "runs": started["runId"]}
    noun = operation.path.split("/")[2]
    return {
        "id": kinds.get(noun, "none"),
        "input_id": steering["inputId"],
        "agent": "unserved",
        "room": "lobby",
        "name": {"agents": "unserved", "functions": "add"}.get(noun, "none"),
    }


@every_operation
@pytest.mark.parametrize("mode", GenerationMode, ids=lambda mode: mode.value)
async def test_what_is_made_from_the_document(stack: Stack, operation: Described, mode: GenerationMode) -> None:
    api = stack.gateway.user()
    base_url = f"http://{stack.gateway.host}:{stack.gateway.port}"
    described = schemathesis.openapi.from_dict(DOCUMENT)[operation.path][operation.method]
    names = await names_for(operation, api)
    real = {name: value for name, value in names.items() if f"{{{name}}}" in operation.path}

    with requests.Session() as session:

        @settings(
            max_examples=EXAMPLES,
            derandomize=True,
            database=None,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        )
        @given(case=described.as_strategy(generation_mode=mode), is_real=st.booleans())
        def walk(case: schemathesis.Case, is_real: bool) -> None:
            if is_real:
                case.path_parameters = dict(real)
            before = stored(stack)
            response = case.call(base_url=base_url, session=session, headers=api.headers, timeout=30)
            case.validate_response(response, checks=HOLDING)
            if response.status_code >= 400:
                assert stored(stack) == before

        await asyncio.to_thread(walk)


HOSTILE: Mapping[str, bytes] = {
    "cut": b'{"input": "x"',
    "no-object": b"[]",
    "text": b'"x"',
    "null": b"null",
    "nan": b'{"input": NaN}',
    "infinity": b'{"input": "x", "maxSteps": Infinity}',
    "huge-number": b'{"input": "x", "maxSteps": 1e999}',
    "huge-integer": b'{"input": "x", "maxSteps": ' + b"9" * 5000 + b"}",
    "huge-in-metadata-float": b'{"input": "x", "agent": "unserved", "metadata": {"n": -1e999}}',
    "integer-of-65-bits": b'{"input": "x", "agent": "unserved", "metadata": {"n": 18446744073709551616}}',
    "huge-in-metadata": b'{"input": "x", "agent": "unserved", "metadata": {"n": ' + b"9" * 5000 + b"}}",
    "no-utf-8": b'{"input": "\xff"}',
    "utf-16": '{"input": "x"}'.encode("utf-16"),
    "bom": b'\xef\xbb\xbf{"input": "x"}',
    "deep": b'{"input": "x", "metadata": ' + b'{"a":' * 5000 + b"1" + b"}" * 5001,
    "deeper-than-any-reader": b"[" * 100_000,
    "twice": b'{"input": "x", "agent": "unserved", "title": "a", "title": "b"}',
    "twice-within": b'{"input": "x", "agent": "unserved", "metadata": {"a": 1, "a": 2}}',
    "a-raw-nul": b'{"input": "a\x00b"}',
    "form": b"input=x&agent=unserved",
    "many-fields": json.dumps({f"f{number}": 1 for number in range(5000)}).encode(),
    "field-named-badly": b'{"\\u0000\\ud800": 1}',
    "nothing-to-say": b'{"input": ""}',
    "blank": b'{"input": " \\t\\n"}',
    "wrong-types": b'{"input": 5, "messages": {}, "title": [], "metadata": [], "agent": {}, "name": 1, "as": "x"}',
}
"""Bodies that are refused wherever a body is taken."""


@with_a_body
async def test_hostile_bodies_are_refused(stack: Stack, operation: Described) -> None:
    api = stack.gateway.user()
    path = operation.path.format(**await names_for(operation, api))
    before = stored(stack)
    for name, body in HOSTILE.items():
        response = await api.call(operation.method, path, content=body, headers={"Idempotency-Key": name})
        assert 400 <= response.status_code < 500, (name, response.text)
        assert response.json()["error"]["code"], name
        assert stored(stack) == before, name


DIRTY = {"nul": "a\0b", "half-a-pair": "\ud83d", "key": {"a\0": 1}, "within": [{"a": ["fine", {"b": "\udc00"}]}]}


@with_a_body
async def test_text_that_no_store_holds_is_refused_by_the_name_of_its_field(stack: Stack, operation: Described) -> None:
    """In every field of every body, whatever its type."""
    api = stack.gateway.user()
    path = operation.path.format(**await names_for(operation, api))
    before = stored(stack)
    assert operation.body is not None
    for field in [info.alias or name for name, info in operation.body.model_fields.items()] or ["anything"]:
        for name, dirty in DIRTY.items():
            body = json.dumps({field: dirty})  # in ASCII, with escapes
            response = await api.call(operation.method, path, content=body, headers={"Idempotency-Key": field})
            assert response.status_code == 400, (field, name, response.text)
            error = response.json()["error"]
            assert error["code"] == "INVALID_ARGS"
            named = f"{field}.{next(iter(dirty))}".replace("\0", "\ufffd") if field == "as" and name == "key" else field
            assert error["fields"] == [named]
    assert stored(stack) == before


@with_a_body
async def test_what_is_said_to_be_no_json_is_not_read(stack: Stack, operation: Described) -> None:
    api = stack.gateway.user()
    path = operation.path.format(**await names_for(operation, api))
    before = stored(stack)
    media_types = ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "x")
    for headers in (*({"Content-Type": each} for each in media_types), {"Content-Encoding": "gzip"}):
        body = b'{"input": "x", "agent": "unserved"}'
        response = await api.call(operation.method, path, content=body, headers=headers)
        assert (response.status_code, response.json()["error"]["code"]) == (415, "UNSUPPORTED_MEDIA_TYPE")
    assert stored(stack) == before


HOSTILE_NAMES = (
    *("%00", "%ED%A0%80", "%FF", "%F0%9F%99%82", "%20", "%2F", "..%2f..", "%25", "null", "-1", "%0d%0aX-A:b"),
    *("%27%20OR%201=1--", "a" * 5000),
)


@pytest.mark.parametrize(
    "operation", [it for it in OPERATIONS if "{" in it.path], ids=lambda it: f"{it.method} {it.path}"
)
async def test_hostile_names_name_nothing(stack: Stack, operation: Described) -> None:
    api = stack.gateway.user()
    for name in HOSTILE_NAMES:
        path = operation.path.format(id=name, input_id=name, agent=name, room=name, name=name)
        response = await api.call(operation.method, path, content=b'{"input": "x"}' if operation.body else None)
        assert 400 <= response.status_code < 500, (name, response.text)
    assert (await api.get("/v1/runs")).json()["items"] == []


@every_operation
async def test_hostile_parameters_are_refused_or_mean_nothing(stack: Stack, operation: Described) -> None:
    """Of what is there. No header makes a fault."""
    api = stack.gateway.user()
    path = operation.path.format(**await names_for(operation, api))
    headers = {"Last-Event-ID": "9" * 400, "Prefer": "wait=99999999999999999999999, wait=-1", "Accept": ";;,q=,*"}
    values = ("", "9" * 400, "-1", "1.5", "٣", "🙂", "a" * 5000)
    for parameter in [it for it in operation.parameters if it.place == "query"]:
        for value in values:
            response = await api.call(operation.method, path, params={parameter.name: value}, headers=headers)
            assert response.status_code < 500, (parameter.name, value, response.text)
    response = await api.call(operation.method, path, params={"unknown\0": "x"})
    assert response.status_code == 400


@pytest.mark.parametrize(
    "operation",
    [it for it in OPERATIONS if any(isinstance(parameter, Text) for parameter in it.parameters)],
    ids=lambda it: f"{it.method} {it.path}",
)
async def test_parameters_that_no_store_holds_are_named(stack: Stack, operation: Described) -> None:
    api = stack.gateway.user()
    path = operation.path.format(**await names_for(operation, api))
    for name in [it.name for it in operation.parameters if isinstance(it, Text) and it is not SINCE]:
        response = await api.call(operation.method, path, params={name: "a\0b"})
        assert (response.status_code, response.json()["error"]["fields"]) == (400, [name])
    response = await api.call(operation.method, f"{path}?since=%FF")
    assert (response.status_code, response.json()["error"]["code"]) == (400, "INVALID_ARGS")
