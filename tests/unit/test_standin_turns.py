"""The judge on messages: order, emptiness, whose blocks, calls and their results."""

from typing import Any

import pytest
from tests.standin import InvalidTranscript, validate, validate_transcript

Block = dict[str, Any]
Message = dict[str, Any]

PNG = "iVBORw0KGgo="
CITATION = {
    "type": "char_location",
    "cited_text": "a",
    "document_index": 0,
    "document_title": None,
    "start_char_index": 0,
    "end_char_index": 1,
}


def user(*content: Block | str) -> Message:
    return {"role": "user", "content": content[0] if content and isinstance(content[0], str) else list(content)}


def assistant(*content: Block | str) -> Message:
    return {**user(*content), "role": "assistant"}


def text(words: Any = "hello", **more: Any) -> Block:
    return {"type": "text", "text": words, **more}


def call(call_id: str = "toolu_1", **more: Any) -> Block:
    return {"type": "tool_use", "id": call_id, "name": "lookup", "input": {}, **more}


def result(call_id: str = "toolu_1", content: Any = "ok", **more: Any) -> Block:
    return {"type": "tool_result", "tool_use_id": call_id, "content": content, **more}


def search(call_id: str = "srvtoolu_1", name: str = "web_search") -> Block:
    return {"type": "server_tool_use", "id": call_id, "name": name, "input": {"query": "pylon"}}


def found(call_id: str = "srvtoolu_1", kind: str = "web_search_tool_result") -> Block:
    return {"type": kind, "tool_use_id": call_id, "content": []}


def image(data: str = PNG) -> Block:
    return {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}}


def document(**source: Any) -> Block:
    return {"type": "document", "source": source or {"type": "text", "media_type": "text/plain", "data": "words"}}


def hit(*content: Block) -> Block:
    return {"type": "search_result", "source": "s", "title": "t", "content": list(content) or [text()]}


def judge(*messages: Message, strict: bool = True) -> None:
    validate({"model": "m", "max_tokens": 1, "messages": list(messages)}, strict=strict)


@pytest.mark.parametrize(
    "messages",
    [
        [user("hello")],
        [user(text())],
        [user(text(), text("again"))],
        [user(text("  spaces around  "))],
        [user("hello"), assistant("hi"), user("and?")],
        [user("hello"), assistant(text("ends in space ")), user("and?")],
        [user("hello"), assistant(text(citations=None)), user("and?")],
        [user("hello"), assistant(text(citations=[CITATION])), user("and?")],
        [user(image(), text())],
        [user({"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}})],
        [user(document(), document(type="base64", media_type="application/pdf", data=PNG))],
        [user(document(type="content", content="words"), document(type="file", file_id="file_1"))],
        [user(hit())],
        [user(text(cache_control={"type": "ephemeral", "ttl": "5m"}))],
        [user("go"), assistant(call()), user(result())],
        [user("go"), assistant(text(), call()), user(result(), text("and this"))],
        [user("go"), assistant(call("a"), call("b")), user(result("b"), result("a"))],
        [user("go"), assistant(call(caller={"type": "direct"})), user(result())],
        [user("go"), assistant(call()), user(result(content=""))],
        [user("go"), assistant(call()), user(result(content=[]))],
        [user("go"), assistant(call()), user({"type": "tool_result", "tool_use_id": "toolu_1"})],
        [user("go"), assistant(call()), user(result(content="no", is_error=True))],
        [user("go"), assistant(call()), user(result(content=[text(), image(), document(), hit()]))],
        [user("go"), assistant(search(), found(), text()), user("and?")],
        [user("go"), assistant(search(), found("srvtoolu_1"), search("srvtoolu_2"), found("srvtoolu_2")), user("?")],
        [user("go"), assistant(search(), call()), user(result()), assistant(found(), text()), user("?")],
        [user("go"), assistant(text(), search())],  # paused: with nothing to compare with, taken for it
    ],
)
def test_takes(messages: list[Message]) -> None:
    judge(*messages)


UNANSWERED = "messages.1: `tool_use` ids were found without `tool_result` blocks immediately after: toolu_1."


@pytest.mark.parametrize(
    ("messages", "message"),
    [
        ([assistant("hi"), user("hello")], 'messages: first message must use the "user" role'),
        ([{"role": "system", "content": "x"}], "messages.0.role: Input should be 'user' or 'assistant'"),
        ([{"role": "user"}], "messages.0.content: Field required"),
        ([{**user("hello"), "id": 1}], "messages.0.id: Extra inputs are not permitted"),
        (
            [user("a"), user("b")],
            'messages: roles must alternate between "user" and "assistant", but found multiple "user" roles in a row',
        ),
        (
            [user("a"), assistant("b"), assistant("c"), user("d")],
            'messages: roles must alternate between "user" and "assistant", but found multiple "assistant" roles',
        ),
        ([user("")], "messages.0: all messages must have non-empty content"),
        ([user(" \n")], "messages.0: all messages must have non-empty content"),
        ([user()], "messages.0: all messages must have non-empty content"),
        ([user("a"), assistant(), user("b")], "messages.1: all messages must have non-empty content"),
        ([user(text(""))], "messages.0.content.0: text content blocks must be non-empty"),
        ([user(text("\n\t "))], "messages.0.content.0: text content blocks must contain non-whitespace text"),
        ([user("a"), assistant(text(""), call()), user(result())], "messages.1.content.0: text content blocks"),
        ([user(text(None))], "messages.0.content.0.text.text: Input should be a valid string"),
        ([user({"type": "text"})], "messages.0.content.0.text.text: Field required"),
        ([user(text(id="x"))], "messages.0.content.0.text.id: Extra inputs are not permitted"),
        ([user({"type": "video"})], "messages.0.content.0: Input tag 'video' found using 'type'"),
        ([user({"text": "a"})], "messages.0.content.0: Unable to extract tag using discriminator 'type'"),
        ([user(text(), "b")], "messages.0.content.1: Input should be a valid dictionary"),
        ([user(text(citations=[CITATION]))], "messages.0.content.0.citations: citations can only be in `assistant`"),
        ([user(hit(text(citations=[CITATION])))], "messages.0.content.0.search_result.content.0.citations: citations"),
        ([user(hit(text(" ")))], "messages.0.content.0.search_result.content.0: text content blocks must contain"),
        (
            [user("a"), assistant(text(citations=[{"type": "page"}])), user("b")],
            "messages.1.content.0.text.citations.0",
        ),
        ([user(image("no base64!"))], "messages.0.content.0.image.source.base64.data: Invalid base64 data"),
        ([user(document(type="text", media_type="text/plain", data=""))], "messages.0.content.0.document.source.text"),
        # whose blocks
        ([user(call())], "messages.0.content.0: `tool_use` blocks can only be in `assistant` messages"),
        ([user(search())], "messages.0.content.0: `server_tool_use` blocks can only be in `assistant` messages"),
        ([user(found())], "messages.0.content.0: `web_search_tool_result` blocks can only be in `assistant` messages"),
        (
            [user({"type": "thinking", "thinking": "a", "signature": "b"})],
            "messages.0.content.0: `thinking` blocks can only be in `assistant` messages",
        ),
        (
            [user("a"), assistant(result()), user("b")],
            "messages.1.content.0: `tool_result` blocks can only be in `user` messages",
        ),
        ([user("a"), assistant(image()), user("b")], "messages.1.content.0: `image` blocks can only be in `user`"),
        (
            [user("a"), assistant(document()), user("b")],
            "messages.1.content.0: `document` blocks can only be",
        ),
        # calls
        ([user("go"), assistant(call())], UNANSWERED),
        ([user("go"), assistant(call()), user("never mind")], UNANSWERED),
        ([user("go"), assistant(call()), user(text("first"), result())], UNANSWERED),
        ([user("go"), assistant(call("toolu_0"), call()), user(result("toolu_0"))], UNANSWERED),
        (
            [user("go"), assistant(call()), user(result(), result())],
            (
                "messages.2.content.1: each tool_use must have a single result. "
                "Found multiple `tool_result` blocks with id: toolu_1"
            ),
        ),
        (
            [user(result())],
            (
                "messages.0.content.0: unexpected `tool_use_id` found in `tool_result` blocks: toolu_1. "
                "Each `tool_result` block must have a corresponding `tool_use` block in the previous message."
            ),
        ),
        (
            [user("go"), assistant(call()), user(result(), result("toolu_2"))],
            "messages.2.content.1: unexpected `tool_use_id` found in `tool_result` blocks: toolu_2.",
        ),
        (
            [user("go"), assistant(call()), user(result()), assistant("done"), user(result())],
            "messages.4.content.0: unexpected `tool_use_id` found in `tool_result` blocks: toolu_1.",
        ),
        (
            [user("go"), assistant(call(), call()), user(result())],
            "messages.1.content.1: `tool_use` ids must be unique",
        ),
        (
            [user("go"), assistant(call()), user(result()), assistant(call()), user(result())],
            "messages.3.content.0: `tool_use` ids must be unique",
        ),
        (
            [user("go"), assistant(call("a.b")), user(result("a.b"))],
            "messages.1.content.0.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'",
        ),
        ([user("go"), assistant(call("")), user(result(""))], "messages.1.content.0.tool_use.id: String should match"),
        (
            [user("go"), assistant(call(input="{}")), user(result())],
            "messages.1.content.0.tool_use.input: Input should be a valid dictionary",
        ),
        (
            [user("go"), assistant(call(input=None)), user(result())],
            "messages.1.content.0.tool_use.input: Input",
        ),
        ([user("go"), assistant(call(index=0)), user(result())], "messages.1.content.0.tool_use.index: Extra inputs"),
        (
            [user("go"), assistant(call()), user(result(name="lookup"))],
            "messages.2.content.0.tool_result.name: Extra inputs are not permitted",
        ),
        (
            [user("go"), assistant(call()), user(result(is_error=None))],
            "messages.2.content.0.tool_result.is_error: Input should be a valid boolean",
        ),
        (
            [user("go"), assistant(call()), user(result(content={"hits": 3}))],
            "messages.2.content.0.tool_result.content: Input should be a valid list",
        ),
        (
            [user("go"), assistant(call()), user(result(content=[text("")]))],
            "messages.2.content.0.tool_result.content.0: text content blocks must be non-empty",
        ),
        (
            [user("go"), assistant(call()), user(result(content=[call("b")]))],
            "messages.2.content.0.tool_result.content.0: Input tag 'tool_use' found",
        ),
        (
            [user("go"), assistant(call()), user(result(content="", is_error=True))],
            "messages.2.content.0.tool_result: content cannot be empty if `is_error` is true",
        ),
        # server tools
        (
            [user("go"), assistant(search(), text()), user("?")],
            (
                "messages.1: `web_search` tool use with id `srvtoolu_1` was found without a corresponding "
                "`web_search_tool_result` block"
            ),
        ),
        (
            [user("go"), assistant(found(), text()), user("?")],
            "messages.1.content.0: unexpected `tool_use_id` found in `web_search_tool_result` blocks: srvtoolu_1.",
        ),
        (
            [user("go"), assistant(search(), found(kind="web_fetch_tool_result")), user("?")],
            "messages.1.content.1: unexpected `tool_use_id` found in `web_fetch_tool_result` blocks: srvtoolu_1.",
        ),
        (
            [user("go"), assistant(search("toolu_1"), found("toolu_1")), user("?")],
            "messages.1.content.0.server_tool_use.id: String should match pattern '^srvtoolu_[a-zA-Z0-9_]+$'",
        ),
        (
            [user("go"), assistant(search(name="search")), user("?")],
            "messages.1.content.0.server_tool_use.name: Input should be 'web_search'",
        ),
        # the end
        ([user("a"), assistant("The answer is")], "This model does not support assistant message prefill."),
        (
            [user("a"), assistant({"type": "thinking", "thinking": "a", "signature": "b"}), user("b")],
            "messages.1: The final block in an assistant message cannot be `thinking`.",
        ),
    ],
)
def test_refuses(messages: list[Message], message: str) -> None:
    with pytest.raises(InvalidTranscript) as refusal:
        judge(*messages)
    assert refusal.value.message.startswith(message)


@pytest.mark.parametrize(
    "messages",
    [
        [user("a"), user("b")],
        [user("a"), assistant("b"), assistant("c"), user("d")],
        [user("go"), assistant(call()), user(result()), user("and this")],
        [user("go"), assistant(call("a")), assistant(call("b")), user(result("a")), user(result("b"))],
        [user("a"), assistant("The answer is")],
        [user("a"), assistant()],
    ],
)
def test_leniently_takes_what_the_api_merges_and_prefill(messages: list[Message]) -> None:
    judge(*messages, strict=False)


@pytest.mark.parametrize(
    ("messages", "message"),
    [
        (
            [user("a"), assistant("The answer is ")],
            "messages: final assistant content cannot end with trailing whitespace",
        ),
        ([user("go"), assistant(call()), user("steer"), user(result())], UNANSWERED),
        ([user("a"), assistant(), user("b")], "messages.1: all messages must have non-empty content"),
    ],
)
def test_leniently_refuses_what_the_api_refuses(messages: list[Message], message: str) -> None:
    with pytest.raises(InvalidTranscript) as refusal:
        judge(*messages, strict=False)
    assert refusal.value.message.startswith(message)


@pytest.mark.parametrize(
    "messages",
    [
        [],
        [user("a")],
        [user("a"), assistant("b ")],
        [user("go"), assistant(call()), user(result()), assistant("done")],
    ],
)
def test_a_transcript_may_end_with_either(messages: list[Message]) -> None:
    validate_transcript(messages)


@pytest.mark.parametrize(
    ("messages", "message"),
    [
        ([user("go"), assistant(call())], UNANSWERED),
        ([user("a"), assistant()], "messages.1: all messages must have non-empty content"),
        ([user("a"), user("b")], "messages: roles must alternate"),
        ([{"role": "user", "content": "a", "seq": 1}], "messages.0.seq: Extra inputs are not permitted"),
        ({"role": "user"}, "messages: Input should be a valid list"),
    ],
)
def test_a_transcript_keeps_the_rules_on_messages(messages: Any, message: str) -> None:
    with pytest.raises(InvalidTranscript) as refusal:
        validate_transcript(messages)
    assert refusal.value.message.startswith(message)
