"""The model's stand-in read by httpx2 alone, as the worker's provider reads it: no queue, no database, no stream."""

import asyncio
import contextlib
import time
from dataclasses import dataclass

import httpx2

from benchmarks.system import API_KEY, model_request
from benchmarks.wire import MODEL_TEXT


@dataclass(frozen=True, kw_only=True)
class Calls:
    calls_per_s: float
    cpu_s: float
    """Of this process, for each call."""


class ModelCaller:
    def __init__(self, standin_url: str) -> None:
        limits = httpx2.Limits(max_connections=None)
        self._http = httpx2.AsyncClient(base_url=standin_url, limits=limits, timeout=60, trust_env=False)
        self._headers = {"x-api-key": API_KEY, "anthropic-version": "2023-06-01"}

    async def close(self) -> None:
        await self._http.aclose()

    async def first_text_s(self, directive: str) -> float:
        """Until the first text; the body is read to its end."""
        began_s, found_s = time.perf_counter(), 0.0
        async with self._stream(directive) as response:
            async for chunk in response.aiter_raw():
                if not found_s and MODEL_TEXT.search(chunk):
                    found_s = time.perf_counter() - began_s
        return found_s

    async def many(self, directive: str, *, count: int, in_flight: int) -> Calls:
        left = iter(range(count))
        began_s, cpu_s = time.perf_counter(), time.process_time()

        async def call_after_call() -> None:
            for _ in left:
                await self.first_text_s(directive)

        await asyncio.gather(*(call_after_call() for _ in range(in_flight)))
        return Calls(calls_per_s=count / (time.perf_counter() - began_s), cpu_s=(time.process_time() - cpu_s) / count)

    def _stream(self, directive: str) -> contextlib.AbstractAsyncContextManager[httpx2.Response]:
        return self._http.stream("POST", "/v1/messages", json=model_request(directive), headers=self._headers)
