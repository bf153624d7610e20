"""Rules on the rest of a request: system, tools and their choice, thinking, sampling, cache breakpoints."""

from collections.abc import Iterator

from tests.standin.rules.blocks import Cacheable, ToolResult
from tests.standin.rules.refusal import InvalidTranscript
from tests.standin.rules.request import (
    CountTokensRequest,
    CustomTool,
    MessagesRequest,
    ThinkingEnabled,
    ToolChoice,
)
from tests.standin.rules.schema import check_input_schema
from tests.standin.rules.versions import has_sampling

MAX_CACHE_BREAKPOINTS = 4  # https://docs.claude.com/en/docs/build-with-claude/prompt-caching


def check_settings(request: CountTokensRequest, version: str) -> None:
    if "system" in request.model_fields_set and not any(block.text.strip() for block in request.system):
        raise InvalidTranscript("system: text content blocks must be non-empty")
    for index, block in enumerate(request.system):
        if not block.text.strip():
            raise InvalidTranscript(f"system.{index}: text content blocks must be non-empty")
    _check_tools(request)
    _check_cache(request)
    if isinstance(request, MessagesRequest):
        _check_sampling(request, version)


def _check_tools(request: CountTokensRequest) -> None:
    names = [tool.name for tool in request.tools]
    if len(set(names)) < len(names):
        raise InvalidTranscript("tools: Tool names must be unique.")
    for index, tool in enumerate(request.tools):
        if isinstance(tool, CustomTool):
            check_input_schema(tool.input_schema, f"tools.{index}.custom.input_schema")
    if "tool_choice" not in request.model_fields_set:
        return
    if not names:
        raise InvalidTranscript("tool_choice: may only be specified while providing tools.")
    choice = request.tool_choice
    if isinstance(choice, ToolChoice) and choice.name not in names:
        raise InvalidTranscript(f"Tool '{choice.name}' not found in provided tools")
    if choice.type in {"any", "tool"} and request.thinking.type != "disabled":
        raise InvalidTranscript("Thinking may not be enabled when tool_choice forces tool use.")


def _check_sampling(request: MessagesRequest, version: str) -> None:
    given = [name for name in ("temperature", "top_p", "top_k") if name in request.model_fields_set]
    if given and not has_sampling(version):
        raise InvalidTranscript(f"{given[0]}: Extra inputs are not permitted")
    for index, sequence in enumerate(request.stop_sequences):
        if not sequence.strip():
            raise InvalidTranscript(f"stop_sequences.{index}: each stop sequence must contain non-whitespace")
    if request.thinking.type == "disabled":
        return
    if request.temperature != 1:
        raise InvalidTranscript("`temperature` may only be set to 1 when thinking is enabled.")
    if isinstance(request.thinking, ThinkingEnabled) and request.max_tokens <= request.thinking.budget_tokens:
        raise InvalidTranscript("`max_tokens` must be greater than `thinking.budget_tokens`.")


def _check_cache(request: CountTokensRequest) -> None:
    found = sum(block.cache_control is not None for block in _cacheable(request))
    found += request.cache_control is not None
    if found > MAX_CACHE_BREAKPOINTS:
        raise InvalidTranscript(
            f"A maximum of {MAX_CACHE_BREAKPOINTS} blocks with cache_control may be provided. Found {found}."
        )


def _cacheable(request: CountTokensRequest) -> Iterator[Cacheable]:
    yield from request.system
    for message in request.messages:
        for block in message.content:
            if isinstance(block, Cacheable):
                yield block
            if isinstance(block, ToolResult):
                yield from block.content
    for tool in request.tools:
        if isinstance(tool, CustomTool):
            yield tool
