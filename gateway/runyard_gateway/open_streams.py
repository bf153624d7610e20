"""How many streams each user has open at this gateway.

A stream counts from when its answer begins until the answer ends.
"""

import contextlib
from collections import Counter
from collections.abc import Iterator

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from runyard.errors import StreamOverloaded
from runyard_gateway.auth.principal import Identity, Principal, Service
from runyard_gateway.requests import address_of

Reader = tuple[str, str]
"""The tenant and the user for whom a stream counts. A caller without a token has an address in place of the user."""


def reader_of(tenant_id: str, user_id: str, request: Request) -> Reader:
    # No user's name can contain a NUL, so no address looks like one.
    return tenant_id, user_id or f"\0{address_of(request)}"


def reader_behind(principal: Principal, request: Request, *, owner: Reader | None = None) -> Reader:
    """For whom a stream counts: a service's for the run's owner, or for the service itself if there is no run."""
    match principal.caller:
        case Identity() as user:
            return reader_of(user.tenant_id, user.user_id, request)
        case Service() as service:
            return ("", service.name) if owner is None else reader_of(*owner, request)


class OpenStreams:
    def __init__(self, per_user: int) -> None:
        """`per_user` 0: any number."""
        self._per_user = per_user
        self._open: Counter[Reader] = Counter()

    def check(self, reader: Reader) -> None:
        """Raises `StreamOverloaded` if the reader has as many streams as is allowed. What is awaited between this and
        the answer lets in others who come at once: hold a `place` meanwhile.
        """
        if self._per_user and self._open[reader] >= self._per_user:
            raise StreamOverloaded(
                f"{self._per_user} streams are open already: close one, or come back later", limit=self._per_user
            )

    @contextlib.contextmanager
    def place(self, reader: Reader) -> Iterator[None]:
        """Count a stream that may come of a call, as long as the block runs. Raises the same as `check`."""
        self.check(reader)
        with self._counting(reader):
            yield

    def counted(self, reader: Reader, answer: ASGIApp) -> ASGIApp:
        """Count the answer while it is given. It is not refused any more, since its call may be accepted already."""

        async def count(scope: Scope, receive: Receive, send: Send) -> None:
            with self._counting(reader):
                await answer(scope, receive, send)

        return count

    @contextlib.contextmanager
    def _counting(self, reader: Reader) -> Iterator[None]:
        self._open[reader] += 1
        try:
            yield
        finally:
            self._open[reader] -= 1
            if not self._open[reader]:
                del self._open[reader]
