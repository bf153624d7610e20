"""Reads what a process writes, line by line."""

import asyncio
import os
from collections.abc import Callable

LINE_LIMIT_BYTES = 1_048_576  # a longer line comes in pieces: output without line ends takes no memory


async def each_line(descriptor: int, take: Callable[[str], None]) -> None:
    """Hand over each line until every writer has closed the pipe. `descriptor`, its read end, is closed in any case."""
    output = asyncio.StreamReader()
    pipe, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(output), os.fdopen(descriptor, "rb", buffering=0)
    )
    try:
        rest = b""
        while piece := await output.read(65_536):
            *lines, rest = (rest + piece).split(b"\n")
            if len(rest) > LINE_LIMIT_BYTES:
                lines.append(rest)
                rest = b""
            for line in lines:
                take(_text(line))
        if rest:
            take(_text(rest))
    finally:
        pipe.close()


def _text(line: bytes) -> str:
    return line.decode(errors="replace").rstrip("\r")
