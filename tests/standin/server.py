"""The stand-in: `async with Standin() as model:` serves the Messages API on a loopback port.

Everything runs in the caller's event loop; worker processes reach it through `model.base_url`.
"""

import asyncio
from collections.abc import Collection, Iterable
from types import TracebackType
from typing import Any, Self

from tests.standin.control import PREFIX, Control
from tests.standin.gates import Gate
from tests.standin.http import Connection, Exchange
from tests.standin.plans import By, Choice, Match, Plan
from tests.standin.record import Request
from tests.standin.rules import validate_transcript
from tests.standin.script import Script
from tests.standin.service import Service
from tests.standin.signals import GUARD_S
from tests.standin.state import State


class Unexpected(AssertionError):
    """The test ended well, but a request was refused by the judge, found no script, or could not be answered."""


class Standin:
    """The Messages API for tests.

    Args:
        strict: see `rules.validate`.
        bad_keys: API keys answered with 401.
        otherwise: chooses a script where no plan has one.
        expects_refusals: without it, leaving the block raises `Unexpected`, so that no test passes over a refusal.
    """

    def __init__(
        self,
        *,
        strict: bool = True,
        bad_keys: Collection[str] = (),
        otherwise: Choice | None = None,
        expects_refusals: bool = False,
    ) -> None:
        self._state = State(strict=strict, otherwise=otherwise)
        self._service = Service(self._state, bad_keys)
        self._control = Control(self._state)
        self._expects_refusals = expects_refusals
        self._connections: set[Connection] = set()
        self._server: asyncio.Server | None = None

    async def start(self, port: int = 0) -> None:
        self._server = await asyncio.get_running_loop().create_server(
            lambda: Connection(self._answer, self._connections), "127.0.0.1", port, backlog=1024
        )

    async def stop(self) -> None:
        """Close the port and every connection; answers under way are broken off."""
        assert self._server is not None
        self._state.stopping = True
        self._server.close()
        connections = list(self._connections)
        for connection in connections:
            connection.transport.abort()
        answering = (connection.answering for connection in connections)
        await asyncio.gather(*(task for task in answering if task is not None), return_exceptions=True)
        await self._server.wait_closed()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.stop()
        if exc is None and self.unexpected and not self._expects_refusals:
            raise Unexpected("\n".join(self.unexpected))

    async def _answer(self, exchange: Exchange) -> None:
        if exchange.path.startswith(PREFIX):
            await self._control.answer(exchange)
        else:
            await self._service.answer(exchange)

    @property
    def base_url(self) -> str:
        """For `ANTHROPIC_BASE_URL`."""
        assert self._server is not None
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    # What it answers -------------------------------------------------------------------------------------------

    def answers(
        self,
        *scripts: Script,
        by: By | str = By.QUEUE,
        contains: str | None = None,
        system: str | None = None,
        model: str | None = None,
    ) -> None:
        """Answer with these scripts, each once, in the order of the requests.

        `by="turn"`: any number of conversations at once, each its n-th request with the n-th script. `contains` (in
        what the user said), `system` (in the system prompt) and `model` limit it to some requests. The plan given
        first that has a script for a request answers it.
        """
        match = Match(contains=contains, system=system, model=model)
        self._state.choices.append(Plan(scripts=scripts, by=By(by), match=match).choice())

    def answers_with(self, choice: Choice) -> None:
        """Answer with what this function of the request returns; None leaves it to the next plan."""
        self._state.choices.append(choice)

    def gate(self, name: str) -> Gate:
        return self._state.gates[name]

    def reset(self) -> None:
        """Forget scripts and requests, open every gate. Transcripts of before stay known: they may go on."""
        self._state.reset()

    # What it saw -----------------------------------------------------------------------------------------------

    @property
    def requests(self) -> list[Request]:
        return self._state.requests

    async def request(self, number: int, *, guard_s: float = GUARD_S) -> Request:
        """The n-th request (from 1), as soon as it is there."""
        return await self._state.request(number, guard_s)

    @property
    def calls(self) -> list[Request]:
        """The model calls, in the order of arrival; token counts are none."""
        return self._state.calls

    def conversations(self) -> dict[str, list[Request]]:
        """The model calls by the user's first text."""
        return self._state.conversations()

    def usage(self, requests: Iterable[Request] | None = None) -> dict[str, int]:
        """The token counts that these calls (by default all) reported, summed."""
        return self._state.usage(self.calls if requests is None else requests)

    @property
    def refusals(self) -> list[str]:
        """The judge's messages."""
        return [request.refusal for request in self.requests if request.refusal is not None]

    @property
    def unexpected(self) -> list[str]:
        return self._state.unexpected

    def validate_transcript(self, messages: Any) -> None:
        """Judge a stored transcript, `[{"role": ..., "content": ...}, ...]`, also against what was sent.

        Raises:
            InvalidTranscript: a request with it would be refused.
        """
        validate_transcript(messages, sent=self._state.ledger, strict=self._state.strict)
