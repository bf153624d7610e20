"""The shapes of content blocks in a request: known types, known keys, right types.

https://docs.claude.com/en/api/messages. Every shape refuses unknown keys ("Extra inputs are not permitted") and
converts nothing. A location in an error reads as the API's: `messages.1.content.0.tool_use.id`.
"""

import base64
import binascii
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field


class Shape(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


def _is_base64(data: str) -> str:
    try:
        base64.b64decode(data, validate=True)
    except binascii.Error:
        raise ValueError("Invalid base64 data") from None
    return data


Base64 = Annotated[str, Field(min_length=1), AfterValidator(_is_base64)]
ToolUseId = Annotated[str, Field(pattern=r"^[a-zA-Z0-9_-]+$")]
ServerToolUseId = Annotated[str, Field(pattern=r"^srvtoolu_[a-zA-Z0-9_]+$")]


class CacheControl(Shape):
    type: Literal["ephemeral"]
    ttl: Literal["5m", "1h"] = "5m"


class Cacheable(Shape):
    cache_control: CacheControl | None = None


class CharLocation(Shape):
    type: Literal["char_location"]
    cited_text: str
    document_index: int
    document_title: str | None
    start_char_index: int
    end_char_index: int
    file_id: str | None = None


class PageLocation(Shape):
    type: Literal["page_location"]
    cited_text: str
    document_index: int
    document_title: str | None
    start_page_number: int
    end_page_number: int
    file_id: str | None = None


class ContentBlockLocation(Shape):
    type: Literal["content_block_location"]
    cited_text: str
    document_index: int
    document_title: str | None
    start_block_index: int
    end_block_index: int
    file_id: str | None = None


class WebSearchResultLocation(Shape):
    type: Literal["web_search_result_location"]
    cited_text: str
    encrypted_index: str
    title: str | None
    url: str


class SearchResultLocation(Shape):
    type: Literal["search_result_location"]
    cited_text: str
    search_result_index: int
    source: str
    start_block_index: int
    end_block_index: int
    title: str | None


Citation = Annotated[
    CharLocation | PageLocation | ContentBlockLocation | WebSearchResultLocation | SearchResultLocation,
    Field(discriminator="type"),
]


class Text(Cacheable):
    type: Literal["text"]
    text: str
    citations: list[Citation] | None = None


class Base64Image(Shape):
    type: Literal["base64"]
    media_type: Literal["image/jpeg", "image/png", "image/gif", "image/webp"]
    data: Base64


class Url(Shape):
    type: Literal["url"]
    url: str


class File(Shape):
    type: Literal["file"]
    file_id: str


class Image(Cacheable):
    type: Literal["image"]
    source: Annotated[Base64Image | Url | File, Field(discriminator="type")]


class Base64Pdf(Shape):
    type: Literal["base64"]
    media_type: Literal["application/pdf"]
    data: Base64


class PlainText(Shape):
    type: Literal["text"]
    media_type: Literal["text/plain"]
    data: Annotated[str, Field(min_length=1)]


def text_blocks(content: Any) -> Any:
    """A string is shorthand for one text block; a blank string is no block at all."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content.strip() else []
    return content


class BlocksSource(Shape):
    type: Literal["content"]
    content: Annotated[
        list[Annotated[Text | Image, Field(discriminator="type")]], BeforeValidator(text_blocks), Field(min_length=1)
    ]


class CitationsConfig(Shape):
    enabled: bool = False


class Document(Cacheable):
    type: Literal["document"]
    source: Annotated[Base64Pdf | PlainText | BlocksSource | Url | File, Field(discriminator="type")]
    title: str | None = None
    context: str | None = None
    citations: CitationsConfig | None = None


class SearchResult(Cacheable):
    type: Literal["search_result"]
    source: str
    title: str
    content: Annotated[list[Text], Field(min_length=1)]
    citations: CitationsConfig = CitationsConfig()


class Thinking(Shape):
    type: Literal["thinking"]
    thinking: str
    signature: str


class RedactedThinking(Shape):
    type: Literal["redacted_thinking"]
    data: str


class ToolUse(Cacheable):
    type: Literal["tool_use"]
    id: ToolUseId
    name: Annotated[str, Field(pattern=r"^[a-zA-Z0-9_-]{1,128}$")]
    input: dict[str, Any]
    caller: dict[str, Any] = {}


class ToolResult(Cacheable):
    type: Literal["tool_result"]
    tool_use_id: ToolUseId
    content: Annotated[
        list[Annotated[Text | Image | Document | SearchResult, Field(discriminator="type")]],
        BeforeValidator(text_blocks),
    ] = []
    is_error: bool = False


RESULT_OF_SERVER_TOOL = {
    "web_search": "web_search_tool_result",
    "web_fetch": "web_fetch_tool_result",
    "code_execution": "code_execution_tool_result",
    "bash_code_execution": "bash_code_execution_tool_result",
    "text_editor_code_execution": "text_editor_code_execution_tool_result",
    "tool_search_tool_regex": "tool_search_tool_result",
    "tool_search_tool_bm25": "tool_search_tool_result",
}


class ServerToolUse(Cacheable):
    type: Literal["server_tool_use"]
    id: ServerToolUseId
    name: Literal[
        "web_search",
        "web_fetch",
        "code_execution",
        "bash_code_execution",
        "text_editor_code_execution",
        "tool_search_tool_regex",
        "tool_search_tool_bm25",
    ]
    input: dict[str, Any]
    caller: dict[str, Any] = {}


class ServerToolResult(Cacheable):
    """What Anthropic's server found is opaque here: it must come back as it was sent, which `thinking.py` checks."""

    type: Literal[
        "web_search_tool_result",
        "web_fetch_tool_result",
        "code_execution_tool_result",
        "bash_code_execution_tool_result",
        "text_editor_code_execution_tool_result",
        "tool_search_tool_result",
    ]
    tool_use_id: ServerToolUseId
    content: list[dict[str, Any]] | dict[str, Any]
    caller: dict[str, Any] = {}


Block = Annotated[
    Text
    | Image
    | Document
    | SearchResult
    | Thinking
    | RedactedThinking
    | ToolUse
    | ToolResult
    | ServerToolUse
    | ServerToolResult,
    Field(discriminator="type"),
]
