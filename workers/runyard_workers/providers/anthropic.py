"""Anthropic's Messages API. Its SDK makes the requests and types their errors, over aiohttp; the bytes of a stream are
read here. Both cost half the CPU of what they replace: httpx2's own transport, and the SDK's streaming helper.
"""

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from pydantic import SecretStr

from runyard.blocks import call_ids
from runyard.errors import ProviderUnavailable
from runyard_workers.providers.demo.thinking import without_demo_thinking
from runyard_workers.providers.failures import cut_stream, no_stream
from runyard_workers.providers.model import ModelEvent, ModelRequest, Turn
from runyard_workers.providers.reading import read_turn

if TYPE_CHECKING:
    from anthropic import AsyncAnthropic
    from httpx2 import Response

_CONNECT_S = 10
_LAST_BYTES_S = 0.2
_NO_STREAMS = frozenset({"text/html", "application/json"})


class AnthropicProvider:
    """One SDK client for all runs of the process."""

    name = "anthropic"

    def __init__(self, *, api_key: SecretStr, base_url: str | None) -> None:
        self._api_key = api_key.get_secret_value()
        self._base_url = base_url
        self._client: AsyncAnthropic | None = None
        self._opening = asyncio.Lock()

    async def warm(self) -> "AsyncAnthropic":
        """Open the client. Importing the SDK takes seconds, so a thread does it while the loop goes on."""
        async with self._opening:
            if self._client is None:
                self._client = await asyncio.to_thread(_open, self._api_key, self._base_url)
            return self._client

    async def aclose(self) -> None:
        """Close the client; open streams fail."""
        async with self._opening:
            if self._client is not None:
                await self._client.close()

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        client = await self.warm()
        from runyard_workers.providers.sdk_errors import SDK_ERRORS, showable, translated

        try:
            async with client.messages.with_streaming_response.create(**_arguments(request)) as response:
                media_type = response.headers.get("content-type", "").partition(";")[0].strip().lower()
                if media_type in _NO_STREAMS:
                    raise no_stream(media_type)
                async with (
                    aclosing(_chunks(response.http_response)) as chunks,
                    aclosing(read_turn(chunks, model=request.model, taken=_call_ids(request))) as events,
                ):
                    async for event in events:
                        if isinstance(event, Turn):
                            await _read_to_end(chunks)
                        yield event
        except SDK_ERRORS as error:
            failure = translated(error, model=request.model, secret=self._api_key)
            raise failure from showable(error, secret=self._api_key)


def _call_ids(request: ModelRequest) -> Iterator[str]:
    return (call_id for message in request.messages for call_id in call_ids(message["content"]))


def _open(api_key: str, base_url: str | None) -> "AsyncAnthropic":
    import anthropic
    import anthropic.resources.messages
    import httpx2

    import runyard_workers.providers.sdk_errors  # noqa: F401 it is imported again where the loop must not wait

    # No limit on a read: the loop watches the silence. No limit on connections: the worker's slots are one, and aiohttp
    # takes 0 for none (None would leave its own 100). No retries: they are the loop's too, which tells readers, honours
    # a stop and goes on to the agent's next model.
    timeout = httpx2.Timeout(None, connect=_CONNECT_S)
    limits = httpx2.Limits(max_connections=0)
    return anthropic.AsyncAnthropic(
        api_key=api_key,
        base_url=base_url,
        max_retries=0,
        timeout=timeout,
        open_telemetry=False,  # the loop's span of a model call is the one there is; the SDK's may hold content
        http_client=anthropic.DefaultAioHttpClient(timeout=timeout, limits=limits),
    )


def _arguments(request: ModelRequest) -> dict[str, Any]:
    arguments: dict[str, Any] = {
        "model": request.model,
        "messages": without_demo_thinking(request.messages),
        "max_tokens": request.max_tokens,
        "stream": True,
        "extra_body": dict(request.options),
    }
    if request.system:
        arguments["system"] = request.system
    if request.tools:
        arguments["tools"] = request.tools
    return arguments


async def _chunks(response: "Response") -> AsyncGenerator[bytes, None]:
    """Raises `ProviderUnavailable`, or the client's own error, when the connection ends before the body does."""
    async with aclosing(response.aiter_bytes()) as chunks:
        try:
            async for chunk in chunks:
                yield chunk
        except RuntimeError as error:  # aiohttp's word for a connection that is gone, if nothing was waiting as it went
            raise cut_stream() from error


async def _read_to_end(chunks: AsyncGenerator[bytes, None]) -> None:
    # A body read to its end leaves the connection for the next request. The turn is whole: nothing here may lose it.
    from httpx2 import HTTPError

    try:
        async with asyncio.timeout(_LAST_BYTES_S):
            async for _ in chunks:
                pass
    except (TimeoutError, HTTPError, ProviderUnavailable):
        return
