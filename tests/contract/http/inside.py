"""A gateway in the test's own process, beside those of a stack, so that a test can see its tasks and set its clocks."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest
from tests.integration.stack import Stack

from runyard.settings import Settings
from runyard_gateway.app import build_app, open_gateway
from runyard_gateway.gateway import Gateway
from runyard_gateway.server import DrainingServer, listen


@contextlib.asynccontextmanager
async def gateway_inside(
    stack: Stack, monkeypatch: pytest.MonkeyPatch, **settings: str
) -> AsyncIterator[tuple[Gateway, int]]:
    """Its parts, and its port."""
    for name, value in stack.environment(**settings).items():
        if name.startswith("RUNYARD_"):
            monkeypatch.setenv(name, value)
    listener = listen("127.0.0.1", 0)
    async with open_gateway(Settings.load()) as gateway:
        server = DrainingServer(build_app(gateway), on_leave=gateway.leave)
        serving = asyncio.create_task(server.serve([listener]))
        try:
            yield gateway, listener.getsockname()[1]
        finally:
            server.should_exit = True
            gateway.leave()
            await serving
