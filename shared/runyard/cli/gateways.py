"""Running a command that calls a gateway, and the one line that explains an error."""

import asyncio
import logging
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import orjson

from runyard.cli import exits
from runyard.cli.tables import printable
from runyard.client import Client, Unreachable
from runyard.errors import RunyardError, StartError, Unauthenticated
from runyard.settings import CallerSettings


def run(command: Callable[[Client], Awaitable[int]], *, url: str | None) -> int:
    """Run a command that calls a gateway; its exit code.

    Raises:
        StartError: it cannot be carried out.
    """
    try:
        return asyncio.run(_called(command, url))
    except RunyardError as error:
        raise StartError(printable(explained(error))) from None
    except KeyboardInterrupt:
        return exits.INTERRUPTED
    except BrokenPipeError:
        _read_no_more()
        return exits.UNREAD
    except OSError as error:
        _read_no_more()
        raise StartError(f"the output cannot be written: {error.strerror}") from None


def explained(error: RunyardError) -> str:
    """`Run not found (RUN_NOT_FOUND, req_...)`, and what to do about it."""
    match error:
        case Unreachable():
            return f"{error.message}: is it there? Start one with `runyard dev`, or name one by --url or RUNYARD_URL"
        case Unauthenticated():
            hint = ": set RUNYARD_TOKEN"
        case _:
            hint = ""
    said = ", ".join(filter(None, (error.code, error.request_id)))
    return f"{error.message} ({said}){hint}"


def tell(*lines: str) -> None:
    """Print to stderr, for the person. Text of others in it cannot move the cursor."""
    for line in lines:
        print(printable(line), file=sys.stderr, flush=True)


def print_json(value: object) -> None:
    """Print a line to stdout."""
    print(orjson.dumps(value).decode(), flush=True)


async def _called(command: Callable[[Client], Awaitable[int]], url: str | None) -> int:
    async with _client(url) as client:
        return await command(client)


@asynccontextmanager
async def _client(url: str | None) -> AsyncIterator[Client]:
    settings = CallerSettings.load()
    place = url or settings.url
    secret = None if settings.token is None else settings.token.get_secret_value()
    _show_retries()
    await _look(place, secret)
    async with Client(place, token=secret) as client:
        yield client


async def _look(place: str, secret: str | None) -> None:
    """Report a wrong address or token at once: the client would retry for two minutes."""
    try:
        async with Client(place, token=secret, patience_s=0) as client:
            await client.agents()
    except ValueError as error:  # of the address, of the token
        raise StartError(str(error)) from None
    except (Unreachable, Unauthenticated):
        raise
    except RunyardError:
        pass  # what may pass is for the command's own patience


def _show_retries() -> None:
    """Show what the client waits for while it tries again."""
    log = logging.getLogger("runyard.client")
    if not log.handlers:
        log.addHandler(_ToStderr())
        log.setLevel(logging.INFO)


class _ToStderr(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        tell(self.format(record))


def _read_no_more() -> None:
    """Send the rest of stdout nowhere: Python flushes it at its end, and its reader is gone."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
