"""Finds the provider of a model's name: `claude-sonnet-5-5`, `anthropic:claude-sonnet-5-5`, `demo:`."""

import asyncio
import re
from collections.abc import Mapping
from urllib.parse import urlsplit

import structlog
from pydantic import SecretStr

from runyard.errors import ModelNotConfigured
from runyard_workers import prices
from runyard_workers.providers.anthropic import AnthropicProvider
from runyard_workers.providers.demo import DemoProvider
from runyard_workers.providers.model import DEMO_MODEL, Provider

_PREFIXES = ("anthropic:", "demo:")

_UNUSABLE_IN_A_HEADER = re.compile(r"[^!-~]")
"""Anything except printable ASCII without the space. (A key read from a file often comes with a line break.)"""

_UNUSABLE_IN_A_URL = re.compile(r"[\x00-\x20\x7f]")

_log = structlog.get_logger()


class Providers:
    """The providers of one worker process; it owns them and closes them.

    `environ` holds the SDKs' own settings (`ANTHROPIC_API_KEY`, `ANTHROPIC_BASE_URL`). A missing or unusable one does
    not stop the worker: it fails the runs that need it.
    """

    def __init__(self, *, environ: Mapping[str, str], dev: bool = False) -> None:
        key = environ.get("ANTHROPIC_API_KEY", "")
        url = environ.get("ANTHROPIC_BASE_URL") or None
        self._demo = DemoProvider()
        self._fault = _fault(key, url)
        self._anthropic = None if self._fault else AnthropicProvider(api_key=SecretStr(key), base_url=url)
        self.demo_stands_in = dev and not key
        """The demo model answers for every model: `runyard dev` without a key."""
        if self.demo_stands_in:
            _log.warning("demo model answers", reason="ANTHROPIC_API_KEY is not set")

    async def warm(self) -> None:
        """Import what takes seconds to import before the first run needs it, without holding up the loop."""
        if self._anthropic is not None:
            await self._anthropic.warm()
            await asyncio.to_thread(prices.load)

    async def aclose(self) -> None:
        """Close all connections; open streams fail."""
        if self._anthropic is not None:
            await self._anthropic.aclose()

    def resolve(self, model: str | None) -> tuple[Provider, str]:
        """The provider, and its own name of the model.

        Raises:
            ModelNotConfigured: the message names the setting that is missing or unusable, never its value.
        """
        if self.demo_stands_in:
            return self._demo, model or DEMO_MODEL
        if not model:
            raise ModelNotConfigured("no model is set: give the agent a model, or set RUNYARD_MODEL")
        prefix, name = _split(model)
        match prefix:
            case "demo:":
                return self._demo, name or DEMO_MODEL
            case "anthropic:" if self._anthropic is not None and name:
                return self._anthropic, name
            case "anthropic:":
                raise ModelNotConfigured(self._fault or f"{model!r} names no model after its prefix")
            case _:
                known = " and ".join(_PREFIXES)
                raise ModelNotConfigured(f"no provider has the prefix {prefix!r} of the model {model!r}: use {known}")


def _split(model: str) -> tuple[str, str]:
    prefix, colon, name = model.partition(":")
    return (prefix + colon, name) if colon else ("anthropic:", model)


def _fault(key: str, url: str | None) -> str | None:
    if not key:
        return "ANTHROPIC_API_KEY is not set"
    if _UNUSABLE_IN_A_HEADER.search(key):
        return "ANTHROPIC_API_KEY holds a space, a line break or a character that is not ASCII"
    if url is not None and not _is_base_url(url):
        return "ANTHROPIC_BASE_URL is not usable: http:// or https://, a host, and neither a space nor a line break"
    return None


def _is_base_url(url: str) -> bool:
    """Whether a client can be made with it: trying with an unusable URL would keep the worker from starting."""
    if _UNUSABLE_IN_A_URL.search(url) is not None:
        return False
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # of a port that is none
        return False
