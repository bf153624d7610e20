"""What a request may say: bodies and headers, checked before anything is stored.

`parameters.py` has the query, `bodies.py` what every body must satisfy.
"""

import re
from collections.abc import Sequence
from functools import partial
from hashlib import sha256
from typing import Annotated, Any, Literal, TypeVar

import orjson
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, ValidationError, field_validator
from pydantic.alias_generators import to_camel
from starlette.requests import Request

from runyard.db.idempotency import CallKey
from runyard.errors import Forbidden, InputRequired, InvalidArgs
from runyard.history import HistoryMessage, check_user_blocks
from runyard.text import NAME_MAX, NAME_RULE, is_name
from runyard_gateway.auth.principal import Principal
from runyard_gateway.bodies import PROBLEMS_MAX, WRONG_EVERYWHERE, as_object, check_media_type, read_raw

METADATA_MAX_BYTES = 16_384
CONTEXT_MAX_BYTES = 65_536
TITLE_MAX = 512
WAIT_MAX_S = 60
CALL_KEY_MAX = 255
MESSAGES_MAX = 1000
_NO_WEIGHT = re.compile(r"q=0(\.0{0,3})?")
"""RFC 9110, section 12.4.2: not acceptable."""

_WAIT = re.compile(r"(?:^|[,;])\s*wait\s*=\s*\"?(\d+)\"?\s*(?:$|[,;])", re.IGNORECASE)

Model = TypeVar("Model", bound=BaseModel)
Name = Annotated[str, StringConstraints(min_length=1, max_length=NAME_MAX)]
Blocks = Annotated[list[dict[str, Any]], Field(fail_fast=True)]


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, hide_input_in_errors=True, alias_generator=to_camel)


def _small(name: str, limit_bytes: int, value: dict[str, Any]) -> dict[str, Any]:
    if len(orjson.dumps(value)) > limit_bytes:
        raise ValueError(f"{name} is larger than {limit_bytes} bytes")
    return value


class Nothing(_Body):
    """A call that takes no fields."""


class MessageIn(_Body):
    """One message of a conversation, in the Messages API's form."""

    role: Literal["user", "assistant"]
    content: str | Blocks

    @property
    def is_plain(self) -> bool:
        """Whether any caller may send it: a user's message without results of tools."""
        results = isinstance(self.content, list) and any(block.get("type") == "tool_result" for block in self.content)
        return self.role == "user" and not results

    def checked(self) -> HistoryMessage:
        return HistoryMessage(role=self.role, content=self.content)


Messages = Annotated[list[MessageIn], Field(min_length=1, max_length=MESSAGES_MAX, fail_fast=True)]
Metadata = Annotated[dict[str, Any], AfterValidator(partial(_small, "metadata", METADATA_MAX_BYTES))]
Context = Annotated[dict[str, Any], AfterValidator(partial(_small, "context", CONTEXT_MAX_BYTES))]
Title = Annotated[str, StringConstraints(max_length=TITLE_MAX)]


class ActAs(_Body):
    """The user for whom a service calls. `tenant_id` may be left out by a service that is for one tenant only."""

    user_id: str
    tenant_id: str | None = None
    admin: bool = False

    @field_validator("user_id", "tenant_id")
    @classmethod
    def _nameable(cls, value: str | None) -> str | None:
        if value is not None and not is_name(value):
            raise ValueError(f"must be {NAME_RULE}")
        return value


class _ForUser(_Body):
    """What services may add: for whom they call, and what the run's tools should know. From other callers `context` is
    ignored.
    """

    act_as: ActAs | None = Field(default=None, alias="as")
    context: Context | None = None


class QueuedCall(_ForUser):
    """`priority`: the call's class while it waits; by default the agent's or the function's."""

    priority: Literal["interactive", "background"] | None = None


class ContinueRun(QueuedCall):
    """`POST /v1/runs/{id}/input`. The options apply to a new invocation; one that is steered keeps its own."""

    input: str | Blocks | None = None
    messages: Messages | None = None
    if_busy: Literal["steer", "reject", "cancel"] | None = None
    model: Name | None = None
    max_steps: Annotated[int, Field(ge=1, le=10_000)] | None = None
    max_tokens: Annotated[int, Field(ge=1, le=10_000_000)] | None = None

    def options(self) -> dict[str, Any]:
        """The invocation's options, those that were given."""
        given = {"model": self.model, "maxSteps": self.max_steps, "maxTokens": self.max_tokens}
        return {name: value for name, value in given.items() if value is not None}

    def said(self) -> tuple[tuple[HistoryMessage, ...] | None, str | list[dict[str, Any]]]:
        """What was said before, if the call has `messages`, and the input, both as the transcript will hold them.

        Raises:
            InputRequired: there is no input, or only white space.
            InvalidArgs: a block is not allowed for users; both `input` and `messages` are given; or the messages end
                with the model's.
        """
        if self.messages is None:
            return None, _checked_input(self.input)
        if self.input is not None:
            raise InvalidArgs("input and messages both say what to do: give one", fields=["input", "messages"])
        *history, last = [message.checked() for message in self.messages]
        if last.role != "user":
            raise InvalidArgs("messages must end with the user's", fields=["messages"])
        return tuple(history), last.content


class StartRun(ContinueRun):
    """`POST /v1/agents/{agent}/runs`."""

    run_id: Name | None = None
    session_id: Name | None = None
    title: Title | None = None
    metadata: Metadata | None = None


class CallFunction(QueuedCall):
    """`POST /v1/functions/{name}`. `input`: the arguments by name."""

    input: dict[str, Any] = Field(default_factory=dict)
    title: Title | None = None
    metadata: Metadata | None = None


class CancelRun(_Body):
    """`POST /v1/runs/{id}/cancel`. `invocationId`: what alone it may stop; without it, whatever the run is at."""

    invocation_id: Name | None = None


class CreateRun(_ForUser):
    """`POST /v1/runs`: a run that nothing is asked of yet."""

    agent: Name
    session_id: Name | None = None
    title: Title | None = None
    metadata: Metadata | None = None
    messages: Messages | None = None


class DescribeRun(_Body):
    """`PATCH /v1/runs/{id}`: `null` removes the title, or all metadata."""

    title: Title | None = None
    metadata: Metadata | None = None

    def values(self) -> dict[str, Any]:
        """What was given, by column."""
        given = {name: getattr(self, name) for name in self.model_fields_set}
        if "metadata" in given:
            given["metadata"] = given["metadata"] or {}
        return given


class AppendMessages(_Body):
    """`POST /v1/runs/{id}/messages`."""

    messages: Messages


def checked_messages(messages: Sequence[MessageIn], principal: Principal) -> tuple[HistoryMessage, ...]:
    """The messages, if this caller may send them. Whether they fit behind the transcript is checked when they are
    stored.

    Raises:
        Forbidden: only services may send the model's turns and the results of tools.
    """
    if not principal.is_service:
        for index, message in enumerate(messages):
            if not message.is_plain:
                raise Forbidden(
                    f"messages[{index}]: only a service may say what the model or a tool said", fields=["messages"]
                )
    return tuple(message.checked() for message in messages)


def _checked_input(given: str | list[dict[str, Any]] | None) -> str | list[dict[str, Any]]:
    if not given or (isinstance(given, str) and not given.strip()):
        raise InputRequired("input is required")
    if isinstance(given, list):
        check_user_blocks(given, "input")
    return given


async def read_body(request: Request, model: type[Model], *, limit_bytes: int) -> Model:
    """The JSON body, checked; an empty body counts as `{}`.

    Raises:
        PayloadTooLarge: it has more bytes than allowed; it reads no further than that.
        UnsupportedMediaType: the request says that it is something other than JSON.
        InvalidArgs: it is not a JSON object, has an unknown field or one of the wrong type, or no store could hold it.
            `fields` names the fields.
    """
    raw = await read_raw(request, limit_bytes=limit_bytes)
    if raw:
        check_media_type(request)
    return checked_body(as_object(raw), model)


def checked_body(body: dict[str, Any], model: type[Model]) -> Model:
    """Raises `InvalidArgs` for an unknown field, or one of the wrong type."""
    try:
        return model.model_validate(body)
    except ValidationError as error:
        if error.error_count() > PROBLEMS_MAX:
            raise InvalidArgs(f"{WRONG_EVERYWHERE}: unknown fields, or values of the wrong type") from None
        named = [(_field(item["loc"]), item) for item in error.errors()]
        problems = [_explain(name, item["type"], item["msg"]) for name, item in named]
        fields = sorted({name for name, _ in named if name})
        raise InvalidArgs("; ".join(dict.fromkeys(problems)), fields=fields) from None


def _field(location: tuple[int | str, ...]) -> str:
    """`metadata`, or `as.userId` inside the nested body; deeper parts of a location only name parts of types."""
    return ".".join(map(str, location[: 2 if location[:1] == ("as",) else 1]))


def _explain(name: str, kind: str, message: str) -> str:
    if kind == "extra_forbidden":
        return f'unknown field "{name}"'
    return f"{name or 'body'}: {message.removeprefix('Value error, ')}"


def call_key(request: Request, body: BaseModel) -> CallKey | None:
    """The `Idempotency-Key` header, together with what the call says: its route and its body, however that is written.

    Raises:
        InvalidArgs: it is not 1 to 255 printable ASCII characters.
    """
    key = request.headers.get("idempotency-key")
    if key is None:
        return None
    if not 1 <= len(key) <= CALL_KEY_MAX or not (key.isascii() and key.isprintable()):
        raise InvalidArgs(f"Idempotency-Key must be 1 to {CALL_KEY_MAX} printable ASCII characters")
    said = [request.method, request.url.path, body.model_dump(by_alias=True, exclude_unset=True)]
    return CallKey(key=key, request_hash=sha256(orjson.dumps(said, option=orjson.OPT_SORT_KEYS)).hexdigest())


def wait_s(request: Request) -> int | None:
    """`Prefer: wait=N` (RFC 7240, section 4.3) in seconds, at most 60; None without it."""
    for header in request.headers.getlist("prefer"):
        if found := _WAIT.search(header):
            digits = found[1].lstrip("0") or "0"
            return min(int(digits[:3]), WAIT_MAX_S)  # three are more than it anyway; thousands `int` would refuse
    return None


def address_of(request: Request) -> str:
    """Where the call comes from: the other end of its connection, or what a proxy on this machine reports."""
    return request.client.host if request.client is not None else ""


def wants(request: Request) -> Literal["stream", "json"]:
    """`Accept: text/event-stream` asks for the stream; anything else for JSON."""
    for header in request.headers.getlist("accept"):
        for item in header.split(","):
            media, *parameters = (part.strip().lower() for part in item.split(";"))
            if media == "text/event-stream" and not any(map(_NO_WEIGHT.fullmatch, parameters)):
                return "stream"
    return "json"


def cursor_of(request: Request) -> int | None:
    """The last frame that the reader has: `Last-Event-ID`, else `since`; None: from the beginning.

    In both, anything but a whole number from 0 on counts as missing, since client libraries send made-up values.
    """
    for given in (request.headers.get("last-event-id"), request.query_params.get("since")):
        if given is not None and (text := given.strip()).isascii() and text.isdigit() and len(text) <= len(str(2**63)):
            return int(text)
    return None
