"""The options of a call, besides its input."""

from collections.abc import Collection, Mapping
from typing import Any, Literal, NotRequired, TypedDict, Unpack
from urllib.parse import quote
from uuid import uuid4

from runyard.client.transport import Call

Blocks = list[dict[str, Any]]
"""Content blocks of the Messages API: text, images, documents."""


class ActAs(TypedDict):
    """The user on whose behalf a service calls."""

    user_id: str
    tenant_id: NotRequired[str]
    """May be left out by a service that is for one tenant only."""
    admin: NotRequired[bool]


class SharedOptions(TypedDict, total=False):
    """Options of calls on agents and on functions."""

    title: str | None
    metadata: dict[str, Any] | None
    priority: Literal["interactive", "background"] | None
    """With "background", nobody waits for the call, and it goes behind calls that somebody waits for. By default the
    agent's."""
    act_as: ActAs | None
    """For services: the user on whose behalf they call."""
    context: dict[str, Any] | None
    """For services: what tools see as `ctx.context`."""
    idempotency_key: str | None
    """1 to 255 printable ASCII characters: calls with the same key are accepted once. Without it each call gets a key
    of its own, so that the client can repeat it safely."""


class CallOptions(SharedOptions, total=False):
    """Options of calls on agents."""

    run_id: str | None
    """Continue this run; one that is working is steered (see `if_busy`)."""
    session_id: str | None
    """Continue the run of this session, or begin its first."""
    messages: list[dict[str, Any]] | None
    """In place of `input`: the conversation so far, with the user's new message at the end."""
    if_busy: Literal["steer", "reject", "cancel"] | None
    model: str | None
    max_steps: int | None
    max_tokens: int | None


_NAMES = {
    "title": "title",
    "metadata": "metadata",
    "priority": "priority",
    "context": "context",
    "run_id": "runId",
    "session_id": "sessionId",
    "messages": "messages",
    "if_busy": "ifBusy",
    "model": "model",
    "max_steps": "maxSteps",
    "max_tokens": "maxTokens",
}


def agent_call(agent: str, said: str | Blocks | None, **options: Unpack[CallOptions]) -> Call:
    """`POST /v1/agents/{agent}/runs`.

    Raises:
        TypeError: there is no such option.
    """
    return _call(place("agents", agent, "runs"), said, options, CallOptions.__annotations__)


def input_call(run_id: str, said: str | Blocks, **options: Unpack[SharedOptions]) -> Call:
    """`POST /v1/runs/{id}/input`."""
    return _call(place("runs", run_id, "input"), said, options, SharedOptions.__annotations__)


def function_call(name: str, arguments: Mapping[str, Any] | None, **options: Unpack[SharedOptions]) -> Call:
    """`POST /v1/functions/{name}`."""
    return _call(place("functions", name), dict(arguments or {}), options, SharedOptions.__annotations__)


def place(*parts: str) -> str:
    """`place("runs", "run_1")` is `/v1/runs/run_1`, whatever the parts hold."""
    return "/".join(["/v1", *(quote(part, safe="") for part in parts)])


def _call(path: str, said: Any, options: Mapping[str, Any], known: Collection[str]) -> Call:
    if unknown := sorted(options.keys() - set(known)):
        raise TypeError(f"there is no option {unknown[0]!r}: {', '.join(sorted(known))}")
    given = {name: value for name, value in options.items() if value is not None}
    body = {_NAMES[name]: value for name, value in given.items() if name in _NAMES}
    if said is not None:
        body["input"] = said
    if (act_as := given.get("act_as")) is not None:
        body["as"] = {_ACT_AS[name]: value for name, value in act_as.items()}
    key = given.get("idempotency_key") or uuid4().hex
    return Call(method="POST", path=path, body=body, headers={"Idempotency-Key": key})


_ACT_AS = {"user_id": "userId", "tenant_id": "tenantId", "admin": "admin"}
