"""Calls to one gateway over HTTP: retried where that is safe and may help, then answered or raised."""

import inspect
import ssl
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import urlsplit

import httpx2

from runyard.client.failures import Unreachable, failure_of, may_pass, retry_after_s
from runyard.client.patience import Patience
from runyard.errors import RunyardError, Unauthenticated

CONNECT_S = 10.0
EVENT_STREAM = "text/event-stream"

Token = str | Callable[[], str] | Callable[[], Awaitable[str]]
"""A token, or a function that returns one that is valid now; it is called before each request."""


@dataclass(frozen=True, kw_only=True)
class Call:
    """A request that may be repeated: it only reads, or carries an `Idempotency-Key`, or has the same effect twice as
    once.
    """

    method: str
    path: str
    body: Any = field(default=None, repr=False)
    query: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    waits_s: float = 0.0
    """How long the gateway may hold the answer back."""

    def with_headers(self, headers: Mapping[str, str]) -> "Call":
        return replace(self, headers={**self.headers, **headers})

    @property
    def is_stream(self) -> bool:
        return self.headers.get("Accept") == EVENT_STREAM


@dataclass(frozen=True, kw_only=True, repr=False)
class Transport:
    url: str
    token: Token | None
    http: httpx2.AsyncClient
    timeout_s: float
    """For sending, and for an answer that the gateway does not hold back."""
    silence_s: float
    """A stream without a byte for this long is dead; heartbeats come every 15 s."""
    patience_s: float

    def patience(self) -> Patience:
        return Patience(self.patience_s)

    async def call(self, call: Call) -> httpx2.Response:
        """Send a call and return its answer: a success, already read."""
        return await self.answered(call, self.patience())

    async def answered(self, call: Call, patience: Patience) -> httpx2.Response:
        """Send a call and return its answer, a success. It is read, unless it is a stream of events: that, the caller
        closes.

        Raises:
            RunyardError: the gateway refuses, or has not answered when the patience ends.
        """
        renewed = False
        while True:
            failure: RunyardError
            try:
                response = await self._attempt(call)
            except httpx2.RequestError as error:
                failure, wait_s = Unreachable(f"no answer from {self.place}"), 0.0
                failure.__cause__ = error
                if _is_final(error):
                    raise failure from error
            else:
                if response.is_success:
                    return response
                failure, wait_s = failure_of(response), retry_after_s(response)
                if isinstance(failure, Unauthenticated) and callable(self.token) and not renewed:
                    renewed = True
                    continue
                if not may_pass(response, failure):
                    raise failure
            await patience.wait(failure, at_least_s=wait_s)

    @property
    def place(self) -> str:
        """The URL without a user and a password that it may contain."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"

    def __repr__(self) -> str:
        return f"Transport({self.place!r})"

    async def _attempt(self, call: Call) -> httpx2.Response:
        request = self.http.build_request(
            call.method,
            self.url + call.path,
            json=call.body,
            params=dict(call.query),
            headers=await self._headers(call),
            timeout=self._timeout(call),
        )
        response = await self.http.send(request, stream=True, follow_redirects=False)
        try:
            is_open = response.is_success and response.headers.get("content-type", "").startswith(EVENT_STREAM)
            if not is_open:
                await response.aread()
        except BaseException:
            await response.aclose()
            raise
        return response

    def _timeout(self, call: Call) -> httpx2.Timeout:
        read_s = self.silence_s if call.is_stream else self.timeout_s + call.waits_s
        return httpx2.Timeout(connect=CONNECT_S, read=read_s, write=self.timeout_s, pool=self.timeout_s)

    async def _headers(self, call: Call) -> dict[str, str]:
        headers = dict(call.headers)
        if call.is_stream:
            headers["Accept-Encoding"] = "identity"  # what compresses an answer holds its frames back
        if (token := await self._token_now()) is not None:
            headers["Authorization"] = f"Bearer {token}"
        return headers

    async def _token_now(self) -> str | None:
        given = self.token() if callable(self.token) else self.token
        token = await given if inspect.isawaitable(given) else given
        if token is not None and not (token.isascii() and token.isprintable()):
            raise ValueError("the token holds a character that no header can carry")  # which, is not told
        return token


def checked_url(url: str) -> str:
    """The URL without a slash at its end.

    Raises:
        ValueError: it is not an HTTP URL.
    """
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ValueError("the URL of a gateway begins with http:// or https:// and names a host")
    _ = parts.port  # read to be checked: it raises
    return url.rstrip("/")


def _is_final(error: BaseException) -> bool:
    """Whether it is the same at every try: a request that cannot be written, a certificate that is not trusted."""
    final = (httpx2.LocalProtocolError, httpx2.UnsupportedProtocol, ssl.SSLCertVerificationError)
    return any(isinstance(link, final) for link in _chain(error))


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
