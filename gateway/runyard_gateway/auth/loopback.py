"""Guards a gateway that trusts every caller (`RUNYARD_AUTH=dev`) against pages of other sites in the user's browser.

A loopback address keeps other machines out, not other sites: a page may send simple requests to it, and a name that a
site points at 127.0.0.1 (DNS rebinding) even lets it read the answers. Both show in the headers that a browser sets.
"""

from collections.abc import Collection
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from runyard.errors import Forbidden
from runyard.settings import LOOPBACK


class LoopbackOnly:
    """Refuses requests for another host's name, and from pages of other origins than this host's and `origins`."""

    def __init__(self, app: ASGIApp, *, origins: Collection[str]) -> None:
        self._app = app
        self._origins = origins

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            self._check(Headers(scope=scope))
        await self._app(scope, receive, send)

    def _check(self, headers: Headers) -> None:
        host, origin = headers.get("host"), headers.get("origin")
        if host is not None and not _is_loopback(f"//{host}"):
            raise Forbidden("this gateway trusts every caller and answers to its loopback address only", host=host)
        if origin is not None and origin not in self._origins and not _is_loopback(origin):
            raise Forbidden("this gateway trusts every caller, but no page of another origin", origin=origin)


def _is_loopback(url: str) -> bool:
    try:
        return urlsplit(url).hostname in LOOPBACK
    except ValueError:
        return False
