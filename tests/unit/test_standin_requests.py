"""The judge on everything but messages: keys, types, ranges, system, tools' choice, thinking, JSON itself."""

from typing import Any

import pytest
from tests.standin import InvalidTranscript, validate
from tests.standin.rules import strict_json

TOOL = {"name": "lookup", "input_schema": {"type": "object"}}
CACHED = {"cache_control": {"type": "ephemeral"}}


def request(**changes: Any) -> dict[str, Any]:
    return {
        "model": "claude-sonnet-5-5",
        "max_tokens": 1024,
        "messages": [{"role": "user", "content": "hello"}],
        **changes,
    }


def without(key: str) -> dict[str, Any]:
    return {name: value for name, value in request().items() if name != key}


@pytest.mark.parametrize(
    "body",
    [
        request(),
        request(stream=True),
        request(stream=False),
        request(system="You help."),
        request(system=[{"type": "text", "text": "You help.", **CACHED}]),
        request(tools=[]),
        request(tools=[TOOL]),
        request(tools=[{**TOOL, "type": "custom", "description": "Looks up.", "strict": True, **CACHED}]),
        request(tools=[{"type": "web_search_20250305", "name": "web_search", "max_uses": 3}]),
        request(tools=[TOOL], tool_choice={"type": "auto", "disable_parallel_tool_use": True}),
        request(tools=[TOOL], tool_choice={"type": "any"}),
        request(tools=[TOOL], tool_choice={"type": "tool", "name": "lookup"}),
        request(tools=[TOOL], tool_choice={"type": "none"}),
        request(thinking={"type": "disabled"}),
        request(thinking={"type": "adaptive", "display": "omitted"}),
        request(thinking={"type": "enabled", "budget_tokens": 1024}, max_tokens=2048),
        request(thinking={"type": "between_tools"}),
        request(diagnostics={"previous_message_id": "msg_1"}, user_profile_id="p", workspace_id="w"),
        request(metadata={"user_id": "u-1"}),
        request(metadata={"user_id": None}),
        request(metadata={}),
        request(stop_sequences=["END"]),
        request(service_tier="standard_only"),
        request(output_config={"effort": "low"}),
        request(output_config={"format": {"type": "json_schema", "schema": {"type": "object"}}}),
        request(cache_control={"type": "ephemeral", "ttl": "1h"}),
    ],
)
def test_takes(body: dict[str, Any]) -> None:
    validate(body)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ([], "Input should be an object"),
        (without("model"), "model: Field required"),
        (without("max_tokens"), "max_tokens: Field required"),
        (without("messages"), "messages: Field required"),
        (request(model=""), "model: String should have at least 1 character"),
        (request(model=5), "model: Input should be a valid string"),
        (request(max_tokens=0), "max_tokens: Input should be greater than or equal to 1"),
        (request(max_tokens=True), "max_tokens: Input should be a valid integer"),
        (request(max_tokens="8"), "max_tokens: Input should be a valid integer"),
        (request(messages=[]), "messages: List should have at least 1 item"),
        (request(messages="hello"), "messages: Input should be a valid list"),
        (request(max_steps=3), "max_steps: Extra inputs are not permitted"),
        (request(stream="yes"), "stream: Input should be a valid boolean"),
        (request(system=""), "system: text content blocks must be non-empty"),
        (request(system=" \n"), "system: text content blocks must be non-empty"),
        (request(system=[]), "system: text content blocks must be non-empty"),
        (request(system=None), "system: Input should be a valid list"),
        (request(system=[{"type": "text", "text": " "}]), "system: text content blocks must be non-empty"),
        (
            request(system=[{"type": "text", "text": "a"}, {"type": "text", "text": ""}]),
            "system.1: text content blocks must be non-empty",
        ),
        (request(system=[{"type": "image", "text": "a"}]), "system.0.type: Input should be 'text'"),
        (request(metadata={"user_id": 5}), "metadata.user_id: Input should be a valid string"),
        (request(metadata={"run_id": "r"}), "metadata.run_id: Extra inputs are not permitted"),
        (request(stop_sequences=[""]), "stop_sequences.0: String should have at least 1 character"),
        (request(stop_sequences=[" "]), "stop_sequences.0: each stop sequence must contain non-whitespace"),
        (request(stop_sequences="END"), "stop_sequences: Input should be a valid list"),
        (request(service_tier="fast"), "service_tier: Input should be 'auto' or 'standard_only'"),
        (request(output_config={"effort": "huge"}), "output_config.effort: Input should be"),
        (request(cache_control={"type": "forever"}), "cache_control.type: Input should be 'ephemeral'"),
        (request(tools=[TOOL, TOOL]), "tools: Tool names must be unique."),
        (request(tools=[{"name": "lookup"}]), "tools.0.custom.input_schema: Field required"),
        (request(tools=[{**TOOL, "name": "look up"}]), "tools.0.custom.name: String should match pattern"),
        (request(tools=[{**TOOL, "name": ""}]), "tools.0.custom.name: String should match pattern"),
        (request(tools=[{**TOOL, "name": "x" * 129}]), "tools.0.custom.name: String should match pattern"),
        (request(tools=[{**TOOL, "parameters": {}}]), "tools.0.custom.parameters: Extra inputs are not permitted"),
        (request(tools=[{**TOOL, "description": None}]), "tools.0.custom.description: Input should be a valid string"),
        (request(tools=[{**TOOL, "type": "function"}]), "tools.0.server.type: String should match pattern"),
        (request(tool_choice={"type": "auto"}), "tool_choice: may only be specified while providing tools."),
        (request(tools=[TOOL], tool_choice="auto"), "tool_choice: Input should be"),
        (request(tools=[TOOL], tool_choice={"type": "some"}), "tool_choice: Input tag 'some'"),
        (request(tools=[TOOL], tool_choice={"type": "tool"}), "tool_choice.tool.name: Field required"),
        (request(tools=[TOOL], tool_choice={"type": "auto", "name": "x"}), "tool_choice.auto.name: Extra inputs"),
        (
            request(tools=[TOOL], tool_choice={"type": "tool", "name": "other"}),
            "Tool 'other' not found in provided tools",
        ),
        (
            request(tools=[TOOL], tool_choice={"type": "any"}, thinking={"type": "adaptive"}),
            "Thinking may not be enabled when tool_choice forces tool use.",
        ),
        (
            request(thinking={"type": "enabled", "budget_tokens": 100}),
            "thinking.enabled.budget_tokens: Input should be greater than or equal to 1024",
        ),
        (
            request(thinking={"type": "enabled", "budget_tokens": 1024}),
            "`max_tokens` must be greater than `thinking.budget_tokens`.",
        ),
        (request(thinking={"type": "on"}), "thinking: Input tag 'on'"),
        (
            request(system=[{"type": "text", "text": "a", **CACHED}] * 5),
            "A maximum of 4 blocks with cache_control may be provided. Found 5.",
        ),
    ],
)
def test_refuses(body: Any, message: str) -> None:
    with pytest.raises(InvalidTranscript) as refusal:
        validate(body)
    assert refusal.value.message.startswith(message)


@pytest.mark.parametrize("name", ["temperature", "top_p", "top_k"])
def test_the_version_of_2026_has_no_sampling_parameters(name: str) -> None:
    body = request(**{name: 1})
    validate(body, version="2023-06-01")
    with pytest.raises(InvalidTranscript, match=f"{name}: Extra inputs are not permitted"):
        validate(body)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"temperature": 1.5}, "temperature: Input should be less than or equal to 1"),
        ({"temperature": -0.1}, "temperature: Input should be greater than or equal to 0"),
        ({"temperature": None}, "temperature: Input should be a valid number"),
        ({"top_p": 2}, "top_p: Input should be less than or equal to 1"),
        ({"top_k": -1}, "top_k: Input should be greater than or equal to 0"),
        (
            {"temperature": 0.5, "thinking": {"type": "adaptive"}},
            "`temperature` may only be set to 1 when thinking is enabled.",
        ),
    ],
)
def test_the_version_of_2023_has_them_in_range(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidTranscript) as refusal:
        validate(request(**changes), version="2023-06-01")
    assert refusal.value.message.startswith(message)


def test_counting_tokens_takes_no_limit_and_no_stream() -> None:
    validate(without("max_tokens"), counting=True)
    with pytest.raises(InvalidTranscript, match="max_tokens: Extra inputs are not permitted"):
        validate(request(), counting=True)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b'{"model": NaN}',
        b'{"model": Infinity}',
        b'{"model": "\xff"}',
        b'{"model": "\\ud800"}',
        b'{"model": "\xed\xa0\x80"}',
        b'{"model": "a\nb"}',
    ],
)
def test_a_body_is_strict_json(body: bytes) -> None:
    with pytest.raises(InvalidTranscript, match=r"^The request body is not valid JSON"):
        strict_json.parse(body)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "\ud800", {"\ud800": 1}, {1: 1}, b"bytes", {1, 2}, (1,)])
def test_a_value_has_a_strict_json_form(value: Any) -> None:
    with pytest.raises(InvalidTranscript, match=r"^The request body is not valid JSON"):
        validate(request(metadata={"user_id": [value]}))


def test_any_character_but_a_lone_surrogate_is_text() -> None:
    validate(
        request(messages=[{"role": "user", "content": "\x00 \x85 \u2028 \U0001f468\u200d\U0001f469\u200d\U0001f467"}])
    )
