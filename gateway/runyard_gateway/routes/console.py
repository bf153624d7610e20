"""The console at `/`: a page that lists agents and runs and chats with them, made of static files of this package.

All files are read once, when the gateway is built: what a request names is looked up, never opened.
"""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files
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
"""What is served; other files of the folder (licences) are not."""

POLICY: Mapping[str, str] = {
    "default-src": "'none'",
    "script-src": "'self'",
    "style-src": "'self'",
    "img-src": "'self'",
    "connect-src": "'self'",
    "form-action": "'none'",
    "base-uri": "'none'",
    "frame-ancestors": "'none'",
    "require-trusted-types-for": "'script'",
    "trusted-types": "dompurify",  # the sanitiser is the only one that may turn text into markup
}
"""https://www.w3.org/TR/CSP3/ and https://www.w3.org/TR/trusted-types/. The page shows text that models wrote: whatever
becomes of it, it runs nothing, loads nothing and tells nobody."""

HEADERS: Mapping[str, str] = {
    "Cache-Control": "no-cache",  # kept, but asked for at each load: modules of two versions never meet in one page
    "Content-Security-Policy": "; ".join(f"{name} {value}" for name, value in POLICY.items()),
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


def console() -> list[Route]:
    """The page and its files. Both without a token: what they show, they ask for with the reader's own."""
    assets = dict(_assets(files("runyard_gateway") / "console"))
    index = assets.pop(PAGE)

    async def page(request: Request) -> Response:
        return _answer(request, index)

    async def asset(request: Request) -> Response:
        found = assets.get(request.path_params["path"])
        if found is None:
            raise RouteNotFound(f"no such route: {request.url.path}")
        return _answer(request, found)

    return [Route("/", page), Route("/console/{path:path}", asset)]


def _assets(folder: Traversable, prefix: str = "") -> Iterator[tuple[str, Asset]]:
    for entry in folder.iterdir():
        path = f"{prefix}{entry.name}"
        if entry.is_dir():
            yield from _assets(entry, f"{path}/")
        elif content_type := CONTENT_TYPES.get(PurePosixPath(entry.name).suffix):
            body = entry.read_bytes()
            yield path, Asset(body=body, content_type=content_type, etag=f'"{hashlib.sha256(body).hexdigest()[:32]}"')


def _answer(request: Request, asset: Asset) -> Response:
    headers = {**HEADERS, "ETag": asset.etag}
    if _has(request, asset.etag):
        return Response(status_code=304, headers=headers)
    return Response(asset.body, headers=headers, media_type=asset.content_type)


def _has(request: Request, etag: str) -> bool:
    """`If-None-Match`, compared weakly: a proxy that compresses makes the tag a weak one (RFC 9110, section 13.1.2)."""
    given = [tag.strip().removeprefix("W/") for tag in request.headers.get("if-none-match", "").split(",")]
    return etag in given or "*" in given
