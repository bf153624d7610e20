"""The shape of a whole request: known keys, right types, ranges that concern one key alone.

https://docs.claude.com/en/api/messages and .../messages-count-tokens. What concerns several keys is in
`settings.py`, `turns.py`, `pairing.py` and `thinking.py`.
"""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag, TypeAdapter, ValidationError

from tests.standin.rules.blocks import Block, Cacheable, CacheControl, Shape, Text, text_blocks
from tests.standin.rules.refusal import InvalidTranscript

NonEmpty = Annotated[str, Field(min_length=1)]


class Message(Shape):
    role: Literal["user", "assistant"]
    content: Annotated[list[Block], BeforeValidator(text_blocks)]


class CustomTool(Cacheable):
    type: Literal["custom"] | None = None
    name: Annotated[str, Field(pattern=r"^[a-zA-Z0-9_-]{1,128}$")]
    input_schema: dict[str, Any]
    description: str = ""
    strict: bool = False
    eager_input_streaming: bool | None = None
    defer_loading: bool = False
    allowed_callers: list[str] = Field(default_factory=list)
    input_examples: list[dict[str, Any]] = Field(default_factory=list)


class ServerTool(Shape, extra="allow"):
    """A tool that Anthropic runs; its options are not this judge's business."""

    type: Annotated[
        str,
        Field(
            pattern=r"^(web_search|web_fetch|code_execution|bash|text_editor|memory|tool_search_tool_(regex|bm25))_\d{8}$"
        ),
    ]
    name: NonEmpty


def _kind_of_tool(tool: Any) -> str:
    kind = tool.get("type") if isinstance(tool, dict) else None
    return "custom" if kind in (None, "custom") else "server"


Tool = Annotated[
    Annotated[CustomTool, Tag("custom")] | Annotated[ServerTool, Tag("server")], Discriminator(_kind_of_tool)
]


class AutoChoice(Shape):
    type: Literal["auto"]
    disable_parallel_tool_use: bool = False


class AnyChoice(Shape):
    type: Literal["any"]
    disable_parallel_tool_use: bool = False


class ToolChoice(Shape):
    type: Literal["tool"]
    name: NonEmpty
    disable_parallel_tool_use: bool = False


class NoChoice(Shape):
    type: Literal["none"]


class ThinkingEnabled(Shape):
    type: Literal["enabled"]
    budget_tokens: Annotated[int, Field(ge=1024)]
    display: Literal["summarized", "omitted"] | None = None


class ThinkingAdaptive(Shape):
    type: Literal["adaptive"]
    display: Literal["summarized", "omitted"] | None = None


class ThinkingBetweenTools(Shape):
    type: Literal["between_tools"]


class ThinkingDisabled(Shape):
    type: Literal["disabled"]


class Metadata(Shape):
    user_id: str | None = None


class JsonFormat(Shape):
    type: Literal["json_schema"]
    schema_: Annotated[dict[str, Any], Field(alias="schema")]


class OutputConfig(Shape):
    effort: Literal["low", "medium", "high", "xhigh", "max"] | None = None
    format: JsonFormat | None = None


class CountTokensRequest(Shape):
    """Defaults stand for keys left out (`model_fields_set` tells); null is taken only where the API documents it."""

    model: NonEmpty
    messages: Annotated[list[Message], Field(min_length=1, max_length=100_000)]
    system: Annotated[list[Text], BeforeValidator(text_blocks)] = Field(default_factory=list)
    tools: list[Tool] = Field(default_factory=list)
    tool_choice: Annotated[AutoChoice | AnyChoice | ToolChoice | NoChoice, Field(discriminator="type")] = AutoChoice(
        type="auto"
    )
    thinking: Annotated[
        ThinkingEnabled | ThinkingAdaptive | ThinkingBetweenTools | ThinkingDisabled, Field(discriminator="type")
    ] = ThinkingDisabled(type="disabled")
    output_config: OutputConfig = OutputConfig()
    cache_control: CacheControl | None = None
    speed: Literal["standard", "fast"] | None = None
    user_profile_id: str = ""
    workspace_id: str = ""


class MessagesRequest(CountTokensRequest):
    max_tokens: Annotated[int, Field(ge=1)]
    stream: bool = False
    temperature: Annotated[float, Field(ge=0, le=1)] = 1.0
    top_p: Annotated[float, Field(ge=0, le=1)] = 1.0
    top_k: Annotated[int, Field(ge=0)] = 0
    stop_sequences: list[NonEmpty] = Field(default_factory=list)
    metadata: Metadata = Metadata()
    service_tier: Literal["auto", "standard_only"] = "auto"
    container: str | None = None
    diagnostics: dict[str, Any] | None = None
    inference_geo: str | None = None


TRANSCRIPT = TypeAdapter(list[Message])


def read_request(body: Any, *, counting: bool) -> CountTokensRequest:
    """Raises:
    InvalidTranscript: a key is missing, unknown or of the wrong type.
    """
    if not isinstance(body, dict):
        raise InvalidTranscript("Input should be an object")
    shape = CountTokensRequest if counting else MessagesRequest
    try:
        return shape.model_validate(body)
    except ValidationError as error:
        raise InvalidTranscript(_first(error)) from None


def read_transcript(messages: Any) -> list[Message]:
    """The same for messages alone."""
    try:
        return TRANSCRIPT.validate_python(messages)
    except ValidationError as error:
        raise InvalidTranscript(_first(error, "messages")) from None


def _first(error: ValidationError, *above: str) -> str:
    detail = error.errors(include_url=False, include_context=False)[0]
    location = ".".join(str(part) for part in (*above, *detail["loc"]))
    message = detail["msg"].removeprefix("Value error, ")
    return f"{location}: {message}" if location else message
