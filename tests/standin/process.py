"""The stand-in in a process of its own, driven over its control routes."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2

from tests.standin.plans import By, Match, Plan
from tests.standin.script import Script
from tests.standin.signals import GUARD_S

WORKSPACE = Path(__file__).resolve().parents[2]


class RemoteGate:
    def __init__(self, http: httpx2.AsyncClient, name: str) -> None:
        self._http = http
        self._path = f"/_standin/gates/{name}"

    async def reached(self, times: int = 1) -> None:
        (await self._http.get(self._path, params={"reached": times})).raise_for_status()

    async def release(self) -> None:
        (await self._http.post(self._path, json={"release": True})).raise_for_status()

    async def advance(self, count: int = 1) -> None:
        (await self._http.post(self._path, json={"advance": count})).raise_for_status()


class RemoteStandin:
    """The verbs of `Standin`, over HTTP. Requests come as the JSON of `record.Request.to_json`."""

    def __init__(self, http: httpx2.AsyncClient, base_url: str) -> None:
        self.base_url = base_url
        self._http = http

    async def answers(self, *scripts: Script, by: By | str = By.QUEUE, **match: str) -> None:
        plan = Plan(scripts=scripts, by=By(by), match=Match(**match))
        await self._post("scripts", plan.model_dump(mode="json"))

    async def reset(self) -> None:
        await self._post("reset", {})

    def gate(self, name: str) -> RemoteGate:
        return RemoteGate(self._http, name)

    async def requests(self, *, at_least: int = 0) -> list[dict[str, Any]]:
        requests: list[dict[str, Any]] = await self._get("requests", at_least=at_least)
        return requests

    async def ended(self, number: int) -> dict[str, Any]:
        """The n-th request (from 1), once its answer is over."""
        request: dict[str, Any] = await self._get(f"requests/{number}", ended=1)
        return request

    async def counts(self) -> dict[str, Any]:
        counts: dict[str, Any] = await self._get("counts")
        return counts

    async def refusal_of(self, messages: list[dict[str, Any]]) -> str | None:
        """What the judge says of a stored transcript; None: valid."""
        refusal: str | None = (await self._post("validate", {"messages": messages}))["refusal"]
        return refusal

    async def _get(self, path: str, **query: int) -> Any:
        response = await self._http.get(f"/_standin/{path}", params=query)
        return response.raise_for_status().json()

    async def _post(self, path: str, body: Any) -> Any:
        response = await self._http.post(f"/_standin/{path}", json=body)
        return response.raise_for_status().json()


@asynccontextmanager
async def standin_process(*arguments: str) -> AsyncIterator[RemoteStandin]:
    """Start it, wait until it listens, end it. It ends by itself when this process is gone."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.standin",
        "--until-stdin-closes",
        *arguments,
        cwd=WORKSPACE,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        async with asyncio.timeout(GUARD_S):
            base_url = json.loads(await process.stdout.readline())["base_url"]
        async with httpx2.AsyncClient(base_url=base_url, timeout=2 * GUARD_S) as http:
            yield RemoteStandin(http, base_url)
    finally:
        process.stdin.close()
        await process.wait()
