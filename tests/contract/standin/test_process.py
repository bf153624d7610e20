"""The stand-in as a process of its own, driven over its control routes."""

import asyncio
import json
import subprocess
import sys
from typing import Any

import anthropic
import httpx2
import pytest
from tests.standin import Standin, calls, hold, raw, says
from tests.standin.process import WORKSPACE, RemoteStandin, standin_process

pytestmark = pytest.mark.anyio

TOOLS: list[Any] = [{"name": "now", "input_schema": {"type": "object"}}]


def client_of(model: RemoteStandin) -> anthropic.AsyncAnthropic:
    return anthropic.AsyncAnthropic(base_url=model.base_url, api_key="sk-test", max_retries=0)


def asking(text: str = "go", **more: Any) -> dict[str, Any]:
    return {"model": "m", "max_tokens": 64, "messages": [{"role": "user", "content": text}], **more}


async def test_scripts_gates_and_records_over_http() -> None:
    async with standin_process() as model, client_of(model) as client:
        await model.answers(says("a", hold("g"), "b").then(raw(b": \xff\n\n")), contains="scripted")
        asked = asyncio.ensure_future(client.messages.create(**asking("scripted")))
        await model.gate("g").reached()
        (request,) = await model.requests(at_least=1)
        assert (request["body"]["model"], request["ending"]) == ("m", None)
        await model.gate("g").advance()
        assert (await asked).content[0].text == "ab"

        request = await model.ended(1)
        assert (request["ending"], request["client_closed"], request["conversation"]) == (
            "complete",
            False,
            "scripted",
        )
        counts = await model.counts()
        assert (counts["calls"], counts["conversations"], counts["unexpected"]) == (1, {"scripted": 1}, [])
        assert counts["usage"]["output_tokens"] == 5

        await model.gate("g").release()
        await model.reset()
        assert await model.requests() == []


async def test_turns_over_http() -> None:
    async with standin_process() as model, client_of(model) as client:
        await model.answers(calls("now"), says("done"), by="turn")
        first = [await client.messages.create(**asking(text, tools=TOOLS)) for text in ("one", "two")]
        assert [answer.stop_reason for answer in first] == ["tool_use", "tool_use"]


async def test_it_judges_transcripts_over_http() -> None:
    async with standin_process() as model:
        assert await model.refusal_of([{"role": "user", "content": "go"}]) is None
        refusal = await model.refusal_of([{"role": "user", "content": ""}])
        assert refusal is not None
        assert refusal.startswith("messages.0: all messages must have non-empty content")


async def test_without_scripts_it_plays_what_the_request_asks_for() -> None:
    async with standin_process() as model, client_of(model) as client:
        answer = await client.messages.create(**asking("standin[deltas=3,chars=4]"))
        assert answer.content[0].text == "The jumpdog "
        answer = await client.messages.create(**asking("standin[steps=1,calls=2]", tools=TOOLS))
        assert [block.name for block in answer.content] == ["now", "now"]


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("POST", "scripts", {"scripts": []}, 400),
        ("POST", "scripts", {"scripts": [{"steps": [{"kind": "dance"}]}]}, 400),
        ("POST", "gates/g", {"open": True}, 400),
        ("GET", "requests/9", None, 404),
        ("GET", "nothing", None, 404),
    ],
)
async def test_wrong_calls_of_the_control_routes(method: str, path: str, body: Any, status: int) -> None:
    async with Standin() as model, httpx2.AsyncClient() as http:
        response = await http.request(method, f"{model.base_url}/_standin/{path}", json=body)
        assert response.status_code == status
        assert response.json()["error"]


async def test_scripts_are_plain_json() -> None:
    plan = {
        "scripts": [
            {
                "steps": [
                    {"kind": "text", "deltas": ["a", {"kind": "pause", "ms": 1}, "b"]},
                    {"kind": "tool_use", "name": "now", "id": "toolu_1"},
                ],
                "usage": {"start": {"input_tokens": 3, "output_tokens": 1}, "deltas": [{"output_tokens": 9}]},
            }
        ],
        "by": "turn",
        "match": {"model": "m"},
    }
    async with standin_process() as model, client_of(model) as client, httpx2.AsyncClient() as http:
        (await http.post(f"{model.base_url}/_standin/scripts", json=plan)).raise_for_status()
        answer = await client.messages.create(**asking(tools=TOOLS))
        assert (answer.content[0].text, answer.content[1].id) == ("ab", "toolu_1")
        assert (answer.usage.input_tokens, answer.usage.output_tokens) == (3, 9)


def test_it_ends_with_whoever_started_it() -> None:
    command = [sys.executable, "-m", "tests.standin", "--until-stdin-closes"]
    with subprocess.Popen(command, cwd=WORKSPACE, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["base_url"].startswith("http://127.0.0.1:")
        process.communicate(timeout=30)
        assert process.returncode == 0
