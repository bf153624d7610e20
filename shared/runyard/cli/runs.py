"""The commands on runs: `runyard run`, `tail`, `runs`, `steer`, `cancel`."""

import asyncio
import sys
import time
from dataclasses import dataclass
from datetime import datetime

from runyard.cli import exits
from runyard.cli.following import Followed, detached, follow
from runyard.cli.gateways import print_json, tell
from runyard.cli.screen import Answer, Lines, Screen
from runyard.cli.tables import age, output_console, row, table
from runyard.client import Client
from runyard.errors import StartError

STDIN = "-"


@dataclass(frozen=True, kw_only=True)
class Output:
    as_json: bool = False
    thinking: bool = False

    def screen(self) -> Screen:
        return Lines() if self.as_json else Answer(live=sys.stdout.isatty(), thinking=self.thinking)


@dataclass(frozen=True, kw_only=True)
class NewCall:
    """What `runyard run` asks for."""

    agent: str
    said: str
    run_id: str | None
    session_id: str | None
    model: str | None


async def call(client: Client, new: NewCall, output: Output) -> int:
    """Start or continue a run and show it; returns the exit code."""
    stream = client.stream(new.agent, input=new.said, run_id=new.run_id, session_id=new.session_id, model=new.model)
    try:
        await stream.open()
    except asyncio.CancelledError:
        tell("interrupted before the call was answered: if it was accepted, `runyard runs` shows it")
        raise
    assert stream.run_id is not None, "whoever begins or steers a run is told which"
    if not output.as_json:
        tell(stream.run_id)
    followed = Followed(run_id=stream.run_id, invocation_id=stream.invocation_id)
    return await follow(client, stream, output.screen(), followed)


async def start(client: Client, new: NewCall, output: Output) -> int:
    """Start or continue a run without waiting for it."""
    accepted = await client.start(new.agent, new.said, run_id=new.run_id, session_id=new.session_id, model=new.model)
    if output.as_json:
        print_json(accepted.to_json())
    else:
        print(accepted.run_id)
        tell(*detached(accepted.run_id))
    return exits.DONE


async def tail(client: Client, place: str, *, since: int | None, output: Output) -> int:
    """Show the newest stream of a run, or a stream by its id, from the beginning or after a frame."""
    followed, stream_id = None, place
    if not place.startswith("st_"):
        run = await client.get_run(place)
        if run.stream_id is None:
            raise StartError(f"nothing was asked of {place} yet: it has no stream")
        followed, stream_id = Followed(run_id=run.id, invocation_id=run.invocation_id), run.stream_id
    stream = client.resume_stream(stream_id, since=since)
    return await follow(client, stream, output.screen(), followed)


async def steer(client: Client, run_id: str, said: str, output: Output) -> int:
    accepted = await client.steer(run_id, said)
    if output.as_json:
        print_json(accepted.to_json())
    elif accepted.queued is None:
        print(f"{run_id} goes on with it")
    else:
        waits = "1 input waits" if accepted.queued == 1 else f"{accepted.queued} inputs wait"
        print(f"{run_id} reads it at its next step; {waits}")
    return exits.DONE


async def cancel(client: Client, run_id: str, *, wait_s: float, output: Output) -> int:
    done = await client.cancel(run_id, wait_s=wait_s)
    if output.as_json:
        print_json(done.to_json())
        return exits.DONE
    print(f"{run_id} is asked to stop, and has not yet" if done.cancel_requested else f"{run_id} is {done.status}")
    for item in done.dropped:
        tell(f"dropped: {item.text}")
    return exits.DONE


@dataclass(frozen=True, kw_only=True)
class Filter:
    agent: str | None
    status: str | None
    session_id: str | None
    limit: int


async def listing(client: Client, where: Filter, output: Output) -> int:
    """Runs, newest activity first."""
    found = client.runs(agent=where.agent, status=where.status, session_id=where.session_id, limit=where.limit)
    if output.as_json:
        async for run in found:
            print_json(run.to_json())
        return exits.DONE
    drawn = table(("RUN", "AGENT", "STATUS", "ACTIVE", "ROWS", "TITLE"), right=("ACTIVE", "ROWS"))
    async for run in found:
        row(drawn, run.id, run.agent, run.status, _ago(run.last_activity_at), run.message_count, run.title or "")
    if not drawn.row_count:
        tell('no runs yet: `runyard run AGENT "..."` begins one')
        return exits.DONE
    output_console().print(drawn)
    return exits.DONE


def said(given: str | None) -> str:
    """The argument, or everything that stdin holds."""
    if given not in (None, STDIN):
        return str(given)
    if sys.stdin.isatty():
        tell("type what to ask, and end with Ctrl-D:")
    return sys.stdin.buffer.read().decode(errors="replace")


def _ago(moment: datetime | None) -> str:
    return "" if moment is None else age(max(0, int(1000 * (time.time() - moment.timestamp()))))
