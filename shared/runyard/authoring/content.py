"""`Content([...])`: content blocks of the Messages API as a tool's return value.

Blocks are checked where they are made, so that a mistake is the tool's error: a transcript with a block that the API
refuses could not be sent again. https://docs.claude.com/en/api/messages (tool_result content)
"""

import base64
import binascii
import copy
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from runyard.authoring.issues import as_text, find_issues


class Content:
    """Text, image and document blocks, in the order in which the model reads them.

        Content([{"type": "text", "text": "The chart:"}, {"type": "image", "source": {...}}])

    Like everything that a tool returns, blocks are cut at 65,536 bytes.
    """

    __slots__ = ("blocks",)

    blocks: tuple[dict[str, Any], ...]

    def __init__(self, blocks: Iterable[Mapping[str, Any]]) -> None:
        """Raises ValueError for a block that the Messages API would refuse, naming its place."""
        copied = [copy.deepcopy(dict(block)) for block in blocks]
        try:
            _block_list().validate_python(copied)
        except ValidationError as error:
            raise ValueError(f"Content: {as_text(find_issues(error, copied))}") from None
        self.blocks = tuple(copied)


def find_block_issues(block: Mapping[str, Any]) -> dict[str, str]:
    """Path -> why the Messages API would refuse it from a user; empty for a block that it takes."""
    return _issues(_one_block(), block)


def find_turn_issues(block: Mapping[str, Any]) -> dict[str, str]:
    """The same for a block of a model's turn, and for the result of a tool."""
    return _issues(_turn_block(), block)


def _issues(adapter: TypeAdapter[Any], block: Mapping[str, Any]) -> dict[str, str]:
    try:
        adapter.validate_python(block)
    except ValidationError as error:
        return find_issues(error, block)
    return {}


def _check_base64(data: str) -> str:
    try:
        base64.b64decode(data, validate=True)
    except binascii.Error as error:
        raise ValueError(f"must be base64: {error}") from None
    return data


Base64 = Annotated[str, Field(min_length=1), AfterValidator(_check_base64)]
WebUrl = Annotated[str, Field(pattern=r"^https?://")]


class _Part(BaseModel):
    # Built at the first Content: importing runyard stays cheap.
    model_config = ConfigDict(extra="forbid", strict=True, defer_build=True)


class _CacheControl(_Part):
    type: Literal["ephemeral"]
    ttl: Literal["5m", "1h"] = "5m"


class _Block(_Part):
    cache_control: _CacheControl | None = None


class _Base64Image(_Part):
    type: Literal["base64"]
    media_type: Literal["image/jpeg", "image/png", "image/gif", "image/webp"]
    data: Base64


class _UrlSource(_Part):
    type: Literal["url"]
    url: WebUrl


class _FileSource(_Part):
    type: Literal["file"]
    file_id: Annotated[str, Field(min_length=1)]


class _Base64Pdf(_Part):
    type: Literal["base64"]
    media_type: Literal["application/pdf"]
    data: Base64


class _PlainText(_Part):
    type: Literal["text"]
    media_type: Literal["text/plain"]
    data: Annotated[str, Field(min_length=1)]


class _TextBlock(_Block):
    type: Literal["text"]
    text: str


class _ImageBlock(_Block):
    type: Literal["image"]
    source: Annotated[_Base64Image | _UrlSource | _FileSource, Field(discriminator="type")]


class _BlocksSource(_Part):
    type: Literal["content"]
    content: Annotated[list[Annotated[_TextBlock | _ImageBlock, Field(discriminator="type")]], Field(min_length=1)]


class _Citations(_Part):
    enabled: bool = False


class _DocumentBlock(_Block):
    type: Literal["document"]
    source: Annotated[_Base64Pdf | _PlainText | _BlocksSource | _UrlSource | _FileSource, Field(discriminator="type")]
    title: str | None = None
    context: str | None = None
    citations: _Citations | None = None


class _SaidBlock(_TextBlock):
    citations: list[dict[str, Any]] | None = None


class _ThinkingBlock(_Part):
    type: Literal["thinking"]
    thinking: str
    signature: str


class _RedactedBlock(_Part):
    type: Literal["redacted_thinking"]
    data: str


class _CallBlock(_Block):
    type: Literal["tool_use"]
    id: str
    name: str
    input: dict[str, Any]
    caller: dict[str, Any] = Field(default_factory=dict)


class _ResultBlock(_Block):
    type: Literal["tool_result"]
    tool_use_id: str
    content: str | list[dict[str, Any]] = ""
    is_error: bool = False


@cache
def _turn_block() -> TypeAdapter[Any]:
    blocks = _SaidBlock | _ThinkingBlock | _RedactedBlock | _CallBlock | _ResultBlock
    return TypeAdapter(Annotated[blocks, Field(discriminator="type")])


@cache
def _one_block() -> TypeAdapter[Any]:
    return TypeAdapter(Annotated[_TextBlock | _ImageBlock | _DocumentBlock, Field(discriminator="type")])


@cache
def _block_list() -> TypeAdapter[Any]:
    return TypeAdapter(list[Annotated[_TextBlock | _ImageBlock | _DocumentBlock, Field(discriminator="type")]])
