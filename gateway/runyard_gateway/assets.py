"""Pages made of static files of this package, read once: a name in a request is looked up in memory and
never opened.
"""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.resources.abc import Traversable
from pathlib import PurePosixPath

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from runyard.errors import RouteNotFound

PAGE = "index.html"

CONTENT_TYPES: Mapping[str, str] = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",  # browsers refuse a module of any other type
    ".svg": "image/svg+xml",
}
"""What is served; other files of a folder (licences) are not."""

HEADERS: Mapping[str, str] = {
    "Cache-Control": "no-cache",  # kept, but asked for at each load: files of two versions never meet in one page
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Asset:
    body: bytes
    content_type: str
    etag: str


def page_routes(folder: Traversable, *, page: str, files: str, policy: Mapping[str, str]) -> list[Route]:
    """The folder's page at `page` and its other files below `files`, without a token.

    `policy`: its content security policy, https://www.w3.org/TR/CSP3/.
    """
    assets = dict(_assets(folder))
    index = assets.pop(PAGE)
    headers = {**HEADERS, "Content-Security-Policy": "; ".join(f"{name} {value}" for name, value in policy.items())}

    async def show(request: Request) -> Response:
        return _answer(request, index, headers)

    async def asset(request: Request) -> Response:
        found = assets.get(request.path_params["path"])
        if found is None:
            raise RouteNotFound(f"no such route: {request.url.path}")
        return _answer(request, found, headers)

    return [Route(page, show), Route(f"{files}/{{path:path}}", asset)]


def _assets(folder: Traversable, prefix: str = "") -> Iterator[tuple[str, Asset]]:
    for entry in folder.iterdir():
        path = f"{prefix}{entry.name}"
        if entry.is_dir():
            yield from _assets(entry, f"{path}/")
        elif content_type := CONTENT_TYPES.get(PurePosixPath(entry.name).suffix):
            body = entry.read_bytes()
            yield path, Asset(body=body, content_type=content_type, etag=f'"{hashlib.sha256(body).hexdigest()[:32]}"')


def _answer(request: Request, asset: Asset, headers: Mapping[str, str]) -> Response:
    tagged = {**headers, "ETag": asset.etag}
    if _has(request, asset.etag):
        return Response(status_code=304, headers=tagged)
    return Response(asset.body, headers=tagged, media_type=asset.content_type)


def _has(request: Request, etag: str) -> bool:
    """`If-None-Match`, compared weakly: a proxy that compresses makes the tag a weak one (RFC 9110, section 13.1.2)."""
    given = [tag.strip().removeprefix("W/") for tag in request.headers.get("if-none-match", "").split(",")]
    return etag in given or "*" in given
