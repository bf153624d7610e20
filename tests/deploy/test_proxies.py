"""Whose word on a caller's address and scheme counts: the proxy's, never the caller's."""

from typing import Any

import pytest
from starlette.types import Receive, Scope, Send
from tests.deploy.compose import SERVICES
from tests.deploy.manifests import Manifest, environment
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

CALLER, SPOOFED = "203.0.113.5", "198.51.100.9"


async def seen(trusted: str, *, peer: str, forwarded_for: str) -> tuple[str, str]:
    """The address and the scheme that a gateway sees of a call that came over the peer's connection."""
    found: dict[str, Any] = {}

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        found.update(scope)

    headers = [(b"x-forwarded-for", forwarded_for.encode()), (b"x-forwarded-proto", b"https")]
    scope = {"type": "http", "client": (peer, 1), "scheme": "http", "headers": headers}
    await ProxyHeadersMiddleware(app, trusted_hosts=trusted)(scope, None, None)
    return found["client"][0], found["scheme"]


@pytest.fixture(params=["kubernetes", "compose"])
def trusted(request: pytest.FixtureRequest, objects: list[Manifest]) -> str:
    """`FORWARDED_ALLOW_IPS`, which uvicorn reads."""
    of_compose: dict[str, str] = SERVICES["gateway"]["environment"]
    return (environment(objects, "gateway") if request.param == "kubernetes" else of_compose)["FORWARDED_ALLOW_IPS"]


@pytest.mark.anyio
async def test_a_proxy_tells_who_calls_and_the_caller_does_not(trusted: str) -> None:
    assert await seen(trusted, peer="172.18.0.1", forwarded_for=f"{SPOOFED}, {CALLER}") == (CALLER, "https")


@pytest.mark.anyio
async def test_who_calls_without_a_proxy_is_not_believed(trusted: str) -> None:
    assert await seen(trusted, peer=CALLER, forwarded_for=SPOOFED) == (CALLER, "http")
