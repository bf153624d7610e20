"""Shows a stream to its end. Ctrl-C asks the person at the terminal whether to cancel the run, leave it, or read on."""

import asyncio
import contextlib
import signal
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runyard.cli import exits
from runyard.cli.gateways import tell
from runyard.cli.screen import Screen, summary
from runyard.client import Client, Frame, Stream
from runyard.errors import RunyardError

QUESTION = "\n[c]ancel the run, [d]etach from it and let it go on, or Enter to read on? "
TERMINAL = Path("/dev/tty")
CANCEL, DETACH = "c", "d"


@dataclass(frozen=True, kw_only=True, slots=True)
class Followed:
    """The invocation whose stream is read, so that it can be cancelled."""

    run_id: str
    invocation_id: str | None


async def follow(client: Client, stream: Stream, screen: Screen, followed: Followed | None) -> int:
    """Show every frame. Returns the exit code. `followed` None: nothing is known that could be cancelled."""
    try:
        async with stream, _interrupts() as interrupts:
            return await _Following(client, stream, screen, followed, interrupts).to_its_end()
    except (RunyardError, OSError) as error:
        if isinstance(error, OSError) or error.retryable:
            tell(*detached(_place(stream, followed)))
        raise


def detached(place: str) -> list[str]:
    """The line that says how to come back to a run or a stream."""
    return [f"it goes on; to see it again: runyard tail {place}"]


def _place(stream: Stream, followed: Followed | None) -> str:
    return stream.stream_id if followed is None else followed.run_id


class _Following:
    def __init__(
        self, client: Client, stream: Stream, screen: Screen, followed: Followed | None, interrupts: asyncio.Event
    ) -> None:
        self._client = client
        self._stream = stream
        self._screen = screen
        self._followed = followed
        self._interrupts = interrupts
        self._cancelled = False
        self._reading: asyncio.Task[Frame | None] | None = None

    async def to_its_end(self) -> int:
        try:
            while True:
                if self._reading is None:
                    self._reading = asyncio.create_task(self._next())
                if await _came_first(self._reading, self._interrupts):
                    frame, self._reading = self._reading.result(), None
                    if frame is None:
                        break
                    self._screen.show(frame, self._stream)
                elif not await self._goes_on():
                    return exits.INTERRUPTED
        finally:
            if self._reading is not None:
                self._reading.cancel()
        tell(summary(self._stream.result))
        return exits.INTERRUPTED if self._cancelled else exits.of_run(self._stream.result.status)

    async def _next(self) -> Frame | None:
        return await anext(self._stream, None)

    async def _goes_on(self) -> bool:
        """Ask what Ctrl-C was to do, and do it. False: the person has left."""
        self._interrupts.clear()
        self._screen.line()
        answer = DETACH if self._cancelled or self._followed is None else await _asked(self._interrupts)
        if answer == CANCEL and self._followed is not None and not await self._cancels(self._followed):
            answer = DETACH
        if answer == DETACH:
            tell(*detached(_place(self._stream, self._followed)))
        return answer != DETACH

    async def _cancels(self, followed: Followed) -> bool:
        """Cancel the invocation. False: the person left before a gateway took the cancel."""
        self._cancelled = True
        tell("cancelling; Ctrl-C again leaves at once")
        cancel = self._client.cancel(followed.run_id, invocation_id=followed.invocation_id)
        cancelling = asyncio.create_task(cancel)
        try:
            if not await _came_first(cancelling, self._interrupts):
                return False
        finally:
            cancelling.cancel()
        cancelling.result()
        return True


async def _asked(interrupts: asyncio.Event) -> str:
    """The first letter of the answer. At another Ctrl-C, or without a terminal: `DETACH`."""
    answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    threading.Thread(target=_ask, args=(answer,), daemon=True).start()
    if await _came_first(answer, interrupts):
        return answer.result().strip().lower()[:1]
    tell("")
    return DETACH


def _ask(answer: "asyncio.Future[str]") -> None:
    """Runs in a daemon thread, since only an answer ends the wait for one."""
    line = DETACH
    with contextlib.suppress(OSError), TERMINAL.open("r+b", buffering=0) as terminal:
        terminal.write(QUESTION.encode())
        line = terminal.readline().decode(errors="replace") or DETACH
    with contextlib.suppress(RuntimeError):  # the loop has ended
        answer.get_loop().call_soon_threadsafe(lambda: None if answer.done() else answer.set_result(line))


async def _came_first(awaited: "asyncio.Future[Any]", interrupts: asyncio.Event) -> bool:
    """Whether it was done before an interrupt came."""
    pressed: asyncio.Future[Any] = asyncio.ensure_future(interrupts.wait())
    try:
        await asyncio.wait({awaited, pressed}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        pressed.cancel()
    return awaited.done()


@asynccontextmanager
async def _interrupts() -> AsyncIterator[asyncio.Event]:
    """An event that Ctrl-C sets. Inside the block Ctrl-C does nothing else."""
    pressed, loop = asyncio.Event(), asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, pressed.set)
    try:
        yield pressed
    finally:
        loop.remove_signal_handler(signal.SIGINT)
