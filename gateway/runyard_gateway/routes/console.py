"""The console at `/`: a page that lists agents and runs and chats with them, made of static files of this package."""

from collections.abc import Mapping
from importlib.resources import files

from starlette.routing import Route

from runyard_gateway.assets import page_routes

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
"""https://www.w3.org/TR/trusted-types/. The page shows text that models wrote. Whatever is in it, it can run nothing,
load nothing and send nothing anywhere."""


def console() -> list[Route]:
    """The page and its files. They need no token: what they show, they request with the reader's own."""
    return page_routes(files("runyard_gateway") / "console", page="/", files="/console", policy=POLICY)
