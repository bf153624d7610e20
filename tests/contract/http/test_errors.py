"""What is refused: one body for every error, with a code, and the fields that are wrong by their names."""

import json
from typing import Any

import pytest
from tests.clients.api import Api
from tests.clients.wire import wire
from tests.integration.fixtures import on_sqlite
from tests.integration.stack import Stack
from tests.standin import says

pytestmark = [pytest.mark.anyio, on_sqlite]

START = "/v1/agents/talker/runs"


def error_of(response: Any, status: int, code: str) -> dict[str, Any]:
    """The error of an answer that must be one; its shape is the same everywhere."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/json"
    (error,) = response.json().values()
    assert list(error)[:4] == ["code", "message", "requestId", "retryable"]
    assert error["code"] == code
    assert isinstance(error["message"], str)
    assert error["message"]
    assert error["requestId"] == response.headers["x-request-id"]
    assert error["retryable"] is (code == "RUN_BUSY")
    return dict(error)


@pytest.fixture
def api(stack: Stack) -> Api:
    return stack.gateway.user()


@pytest.mark.parametrize(
    ("body", "fields"),
    [
        ({"input": "x", "prompt": "y"}, ["prompt"]),
        ({"input": "x", "ifPending": "omit", "decisions": []}, ["decisions", "ifPending"]),
        ({"input": "x", "run_id": "r"}, ["run_id"]),
        ({"input": 5}, ["input"]),
        ({"input": {"type": "text"}}, ["input"]),
        ({"input": ["x"]}, ["input"]),
        ({"input": "x", "runId": 5}, ["runId"]),
        ({"input": "x", "runId": ""}, ["runId"]),
        ({"input": "x", "sessionId": ""}, ["sessionId"]),
        ({"input": "x", "sessionId": "s" * 257}, ["sessionId"]),
        ({"input": "x", "runId": "r", "sessionId": "s"}, ["runId", "sessionId"]),
        ({"input": "x", "title": ["t"]}, ["title"]),
        ({"input": "x", "title": "t" * 513}, ["title"]),
        ({"input": "x", "metadata": "m"}, ["metadata"]),
        ({"input": "x", "metadata": {"m": "m" * 16_384}}, ["metadata"]),
        ({"input": "x", "maxSteps": 0}, ["maxSteps"]),
        ({"input": "x", "maxSteps": 1.5}, ["maxSteps"]),
        ({"input": "x", "maxSteps": "3"}, ["maxSteps"]),
        ({"input": "x", "maxSteps": True}, ["maxSteps"]),
        ({"input": "x", "maxTokens": -1}, ["maxTokens"]),
        ({"input": "x", "maxTokens": 10**30}, ["maxTokens"]),
        ({"input": "x", "model": ""}, ["model"]),
        ({"input": "x", "ifBusy": "wait"}, ["ifBusy"]),
    ],
    ids=lambda value: json.dumps(value)[:50] if isinstance(value, dict) else "",
)
async def test_wrong_fields_are_named(api: Api, body: dict[str, Any], fields: list[str]) -> None:
    error = error_of(await api.post(START, body), 400, "INVALID_ARGS")
    assert error["fields"] == fields
    assert all(name in error["message"] for name in fields)
    assert (await api.get("/v1/runs")).json()["items"] == []


@pytest.mark.parametrize(
    "blocks",
    [
        [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "x"}],
        [{"type": "tool_use", "id": "toolu_1", "name": "f", "input": {}}],
        [{"type": "thinking", "thinking": "x", "signature": "y"}],
        [{"text": "x"}],
        [{"type": "text"}],
        [{"type": "text", "text": 5}],
        [{"type": "text", "text": "fine"}, {"type": "text", "text": " \n"}],
        [{"type": "image"}],
        [{"type": "document", "source": "s"}],
        [{"type": "text", "text": "fine", "colour": "red"}],
        [{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "no base64"}}],
        [{"type": "document", "source": {"type": "url", "url": "file:///etc/passwd"}}],
    ],
    ids=lambda blocks: json.dumps(blocks)[:40],
)
async def test_blocks_that_a_user_may_not_send(api: Api, blocks: list[dict[str, Any]]) -> None:
    error = error_of(await api.post(START, {"input": blocks}), 400, "INVALID_ARGS")
    assert error["field"].startswith(f"input[{len(blocks) - 1}].")


@pytest.mark.parametrize("body", [{}, {"input": None}, {"input": ""}, {"input": " \t\n"}, {"input": []}, None])
async def test_nothing_to_say(api: Api, body: Any) -> None:
    error_of(await api.post(START, body), 400, "AGENT_INPUT_REQUIRED")


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b'{"input": "x"',
        b'{"input": "x",}',
        b'{"input": NaN}',
        b"\xff\xfe",
        b'{"input": "\xff"}',
        b"[1]",
        b'"input"',
        b"null",
    ],
    ids=lambda body: body.decode(errors="backslashreplace"),
)
async def test_bodies_that_are_no_json_object(api: Api, body: bytes) -> None:
    error_of(await api.call("POST", START, content=body), 400, "INVALID_ARGS")


@pytest.mark.parametrize("depth", [300, 900, 2000, 100_000])
@pytest.mark.parametrize("place", ['"input": "x", "metadata": %s', '"input": [{"type": "document", "source": %s}]'])
async def test_nesting_that_no_store_takes(api: Api, depth: int, place: str) -> None:
    nested = place % ('{"a":' * depth + "1" + "}" * depth)
    error_of(await api.call("POST", START, content=f"{{{nested}}}"), 400, "INVALID_ARGS")


@pytest.mark.parametrize(
    "body",
    [
        {"input": [1] * 300_000},
        {"messages": [{}] * 900},
        {"messages": [{f"k{key}": 1 for key in range(50)}] * 900},
        {"as": {f"k{key}": 1 for key in range(60_000)}},
        {f"k{key}": 1 for key in range(60_000)},
    ],
    ids=["input", "messages", "fields-of-messages", "fields-of-as", "fields"],
)
async def test_a_body_that_is_wrong_everywhere_is_answered_in_a_few_words(api: Api, body: dict[str, Any]) -> None:
    assert len(error_of(await api.post(START, body), 400, "INVALID_ARGS")["message"]) < 1000


async def test_a_body_that_is_too_large(api: Api) -> None:
    body = json.dumps({"input": "x" * 1_048_576})
    error = error_of(await api.call("POST", START, content=body), 413, "PAYLOAD_TOO_LARGE")
    assert error["limitBytes"] == 1_048_576


async def test_a_body_that_says_it_is_too_large_is_not_read(stack: Stack, api: Api) -> None:
    async with wire(stack.gateway.host, stack.gateway.port) as link:
        headers = {"Host": "x", "Content-Length": str(10**9), **api.headers}
        await link.send(f"POST {START} HTTP/1.1", headers)
        head = await link.head()
        assert head.status == 413
        assert json.loads(await link.body(head))["error"]["code"] == "PAYLOAD_TOO_LARGE"


@pytest.mark.parametrize(
    "request_line",
    ["GET", "GET /\N{LATIN SMALL LETTER E WITH ACUTE} HTTP/1.1", "PRI * HTTP/2.0", "CONNECT x:80 HTTP/1.1"],
)
async def test_what_is_no_http_is_told_so_like_everything_else(stack: Stack, request_line: str) -> None:
    async with wire(stack.gateway.host, stack.gateway.port) as link:
        await link.send(request_line, {"Host": "x"})
        head = await link.head()
        error = json.loads(await link.body(head))["error"]
        assert (head.status, error["code"]) == (400, "INVALID_ARGS")
        assert error["requestId"] == head.headers["x-request-id"]
        assert await link.to_the_end() == b""


async def test_a_head_that_is_too_large(stack: Stack) -> None:
    async with wire(stack.gateway.host, stack.gateway.port) as link:
        await link.send("GET /healthz HTTP/1.1", {"Host": "x", "Cookie": "c" * 70_000})
        head = await link.head()
        assert (head.status, json.loads(await link.body(head))["error"]["code"]) == (413, "PAYLOAD_TOO_LARGE")


@pytest.mark.parametrize("chunked", [False, True])
async def test_an_offer_to_upgrade_costs_no_body(stack: Stack, chunked: bool) -> None:
    """RFC 9110, section 7.8. Java's client offers HTTP/2 with its first request."""
    api = stack.gateway.user()
    stack.standin.answers(says("one"), says("two"))
    body = b'{"input": "go"}'
    offer = {
        "Host": "x",
        "Connection": "Upgrade, HTTP2-Settings",
        "Upgrade": "h2c",
        "HTTP2-Settings": "",
        **api.headers,
    }
    if chunked:
        offer["Transfer-Encoding"] = "chunked"
    async with wire(stack.gateway.host, stack.gateway.port) as link:
        for said in ("one", "two"):
            await link.send(f"POST {START} HTTP/1.1", offer | {"Prefer": "wait=30"}, b"" if chunked else body)
            if chunked:
                await link.send_raw(b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body))
            head = await link.head()
            assert (head.status, json.loads(await link.body(head))["text"]) == (200, said)


async def test_a_caller_who_leaves_in_the_middle_of_a_request_is_no_fault(stack: Stack, api: Api) -> None:
    async with wire(stack.gateway.host, stack.gateway.port) as link:
        await link.send(f"POST {START} HTTP/1.1", {"Host": "x", "Content-Length": "100", **api.headers})
        await link.send_raw(b"{")
    await stack.gateway.process.logged("caller left before the end of the request")
    assert stack.gateway.process.complaints() == []


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/nowhere", 404, "NOT_FOUND"),
        ("GET", "/v1", 404, "NOT_FOUND"),
        ("GET", "/v1/runs/", 404, "NOT_FOUND"),
        ("POST", "/v1/agents/talker/runs/", 404, "NOT_FOUND"),
        ("DELETE", "/v1/agents/talker/runs", 405, "METHOD_NOT_ALLOWED"),
        ("PUT", "/v1/runs/run_1", 405, "METHOD_NOT_ALLOWED"),
        ("POST", "/healthz", 405, "METHOD_NOT_ALLOWED"),
        ("POST", "/v1/agents/nobody/runs", 404, "AGENT_NOT_FOUND"),
        ("GET", "/v1/agents/nobody", 404, "AGENT_NOT_FOUND"),
        ("GET", "/v1/runs/run_unknown", 404, "RUN_NOT_FOUND"),
        ("GET", "/v1/runs/run_unknown/messages", 404, "RUN_NOT_FOUND"),
        ("GET", "/v1/runs/run_unknown/invocations", 404, "RUN_NOT_FOUND"),
        ("GET", "/v1/runs/run_unknown/stream", 404, "RUN_NOT_FOUND"),
        ("GET", "/v1/invocations/inv_unknown", 404, "RUN_NOT_FOUND"),
        ("GET", "/v1/streams/st_unknown", 404, "STREAM_NOT_FOUND"),
        ("GET", "/v1/runs?limt=5", 400, "INVALID_ARGS"),
        ("GET", "/v1/agents?x=1", 400, "INVALID_ARGS"),
        ("GET", "/v1/runs?status=asleep", 400, "INVALID_ARGS"),
    ],
)
async def test_routes_methods_and_ids(api: Api, method: str, path: str, status: int, code: str) -> None:
    response = await api.call(method, path, json={"input": "x"} if method == "POST" else None)
    error_of(response, status, code)


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("/healthz", ["GET", "HEAD"]),
        ("/v1/runs", ["GET", "HEAD", "POST"]),
        ("/v1/runs/run_1", ["DELETE", "GET", "HEAD", "PATCH"]),
        ("/v1/runs/run_1/messages", ["DELETE", "GET", "HEAD", "POST"]),
        ("/v1/runs/run_1/cancel", ["POST"]),
        ("/docs", ["GET", "HEAD"]),
    ],
)
async def test_a_method_that_is_not_allowed_is_told_which_are(api: Api, path: str, allowed: list[str]) -> None:
    """All of the path's (RFC 9110, section 15.5.6)."""
    response = await api.call("PUT", path)
    assert error_of(response, 405, "METHOD_NOT_ALLOWED")["allow"] == allowed
    assert response.headers["allow"] == ", ".join(allowed)


async def test_every_answer_has_an_id_of_its_own(api: Api) -> None:
    ids = {(await api.get(path)).headers["x-request-id"] for path in ("/healthz", "/v1/runs", "/v1/runs", "/nowhere")}
    assert len(ids) == 4


async def test_a_prefers_that_says_nothing_of_waiting_is_ignored(api: Api) -> None:
    for preference in ("respond-async", "wait", "wait=soon", "wait=-1", ""):
        response = await api.post(START, {}, headers={"Prefer": preference})
        error_of(response, 400, "AGENT_INPUT_REQUIRED")
