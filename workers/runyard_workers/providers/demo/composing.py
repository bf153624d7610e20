"""Composes the demo model's turn: a call of the agent's tools for a person's text, an answer for their results.

It knows no tool's name: what it calls, and with what, it takes from the tools' schemas and the text.
"""

import hashlib
from typing import Any

import orjson

from runyard.blocks import Block
from runyard.text import clean_json
from runyard_workers.providers.demo.answering import answer_alone, answer_from_results
from runyard_workers.providers.demo.arguments import fill_arguments
from runyard_workers.providers.demo.choosing import choose_tools
from runyard_workers.providers.demo.schemas import CannotFill
from runyard_workers.providers.demo.thinking import signed_thinking
from runyard_workers.providers.model import ModelRequest

_READ_MAX = 2000
"""Characters of the person's text that are looked at: the patterns that read it take time by its square."""


def compose(request: ModelRequest) -> list[Block]:
    """The content of one turn. Text that comes with results is a new question: it goes before them."""
    asked = _blocks(request.messages[-1])
    text = "\n".join(block["text"] for block in asked if block["type"] == "text").strip()[:_READ_MAX]
    results = [block for block in asked if block["type"] == "tool_result"]
    if results and not text:
        thought = "The results are here. I tell what they say."
        return [signed_thinking(thought), _text(answer_from_results(results, _call_names(request.messages)))]
    calls = _calls(request, text)
    if not calls:
        return [signed_thinking("No tool can help here. I answer in words."), _text(answer_alone(text, request.tools))]
    names = " and ".join(dict.fromkeys(f"`{call['name']}`" for call in calls))
    thought = f"The words of the question fit {names} best. I take the arguments from the text."
    return [signed_thinking(thought), _text(f"I am calling {names} for this."), *calls]


def _calls(request: ModelRequest, text: str) -> list[Block]:
    calls: list[Block] = []
    for choice in choose_tools(request.tools, text):
        try:
            arguments = fill_arguments(choice.tool["input_schema"], choice.clause, text)
        except CannotFill:
            continue
        calls.append(
            {"type": "tool_use", "id": _call_id(request, len(calls)), "name": choice.tool["name"], "input": arguments}
        )
    return calls


def _call_id(request: ModelRequest, position: int) -> str:
    # Of the whole conversation so far, so that no two calls of one run have the same id.
    digest = hashlib.sha256(orjson.dumps(clean_json([request.messages, position]))).hexdigest()
    return f"toolu_demo{digest[:20]}"


def _call_names(messages: list[dict[str, Any]]) -> dict[str, str]:
    return {
        block["id"]: block["name"] for message in messages for block in _blocks(message) if block["type"] == "tool_use"
    }


def _blocks(message: dict[str, Any]) -> list[Block]:
    content = message["content"]
    return [_text(content)] if isinstance(content, str) else content


def _text(text: str) -> Block:
    return {"type": "text", "text": text}
