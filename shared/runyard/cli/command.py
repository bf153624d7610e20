"""The `runyard` command: its options, and the one line that explains an error."""

import importlib.metadata
import sys
from datetime import datetime
from typing import Annotated

import typer

from runyard.cli import calls
from runyard.cli.process import ChildExitedError
from runyard.errors import StartError
from runyard.fsck.findings import CouldNotLookError

CLIENTS_LIBRARY = "httpx2"
"""Only an extra has it: there are places, as a gateway's image, where the command calls nobody."""

app = typer.Typer(
    help="Runs LLM agents on a fleet.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _print_version(asked: bool) -> None:
    if asked:
        print(importlib.metadata.version("runyard"))
        raise typer.Exit


@app.callback()
def root(
    *,
    _version: Annotated[
        bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=_print_version)
    ] = False,
) -> None:
    pass


@app.command()
def dev(
    agents: Annotated[str | None, typer.Option(help="Folder of agent files.", show_default="agents")] = None,
    port: Annotated[str | None, typer.Option(help="Port to listen on, 0 for any.", show_default="8000")] = None,
    host: Annotated[str | None, typer.Option(help="Loopback address.", show_default="127.0.0.1")] = None,
) -> None:
    """Run the whole system on this machine, with its state in .runyard/."""
    from runyard.cli.dev import run

    run(agents=agents, host=host, port=port)


@app.command()
def migrate() -> None:
    """Bring the database at RUNYARD_DATABASE_URL to this version's schema."""
    from runyard.db.migrate import upgrade
    from runyard.settings import DatabaseSettings

    print(f"the schema is at revision {upgrade(DatabaseSettings.load().database_url)}")


@app.command()
def token(
    user: Annotated[str, typer.Option(help="Who it is for: the claim sub.")],
    tenant: Annotated[str | None, typer.Option(help="Their tenant.", show_default="default")] = None,
    role: Annotated[list[str] | None, typer.Option(help="A role, like admin; may be repeated.")] = None,
    ttl: Annotated[str, typer.Option(help="How long it is good: 30s, 15m, 1h, 7d.")] = "1h",
) -> None:
    """Print a token to try a gateway with, signed with RUNYARD_JWT_SECRET."""
    from runyard.cli.token import issue

    print(issue(user=user, tenant=tenant, roles=role or [], ttl=ttl))


keys = typer.Typer(help="Keys of programs that call for users.", no_args_is_help=True)
app.add_typer(keys, name="keys")


@keys.command("create")
def create_key(
    name: Annotated[str, typer.Argument(help="What it is known by.")],
    tenant: Annotated[list[str], typer.Option(help="A tenant whose users it may act for; may be repeated.")],
) -> None:
    """Print a new key: the only time that it is shown."""
    from runyard.cli.keys import create

    print(create(name, tenant))


@keys.command("list")
def list_keys() -> None:
    """Print all keys, the revoked ones too; of each the last four digits."""
    from runyard.cli.keys import print_list

    print_list()


@keys.command("revoke")
def revoke_key(name: Annotated[str, typer.Argument(help="What it is known by.")]) -> None:
    """End a key: gateways refuse it within five seconds, and end what it reads."""
    from runyard.cli.keys import revoke

    revoke(name)


queues = typer.Typer(invoke_without_command=True)
app.add_typer(queues, name="queues")


@queues.callback()
def show_queues(
    context: typer.Context,
    watch: Annotated[bool, typer.Option("--watch", help="Go on, once a second, until Ctrl-C.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON, a line a look.")] = False,
) -> None:
    """Show what waits, what runs and who works, of all tenants, queue by queue."""
    if context.invoked_subcommand is None:
        from runyard.cli import queues as command

        command.run(watch=watch, as_json=json)


dead = typer.Typer(help="Messages that no worker could use. No run waits for one.", no_args_is_help=True)
queues.add_typer(dead, name="dead")

QueueName = Annotated[str, typer.Argument(help="As in RUNYARD_QUEUES.", show_default=False)]
LetterIds = Annotated[list[str] | None, typer.Argument(help="As the list prints them.")]
EveryLetter = Annotated[bool, typer.Option("--all", help="All of the queue.")]


@dead.command("list")
def list_dead(
    queue: Annotated[list[str] | None, typer.Option(help="This queue; may be repeated.", show_default="all")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print each as a line of JSON.")] = False,
) -> None:
    """Print the dead letters, the oldest of each queue first, at most 1,000 of each.

    A message is dead when a worker could not read it or knows no actor of its name: something else writes to the
    queue, or versions do not fit together. Brokers delete dead letters after seven days.
    """
    from runyard.cli.dead import print_list

    print_list(queue or [], as_json=json)


@dead.command("requeue")
def requeue_dead(queue: QueueName, ids: LetterIds = None, every: EveryLetter = False) -> None:
    """Put dead letters back into their queue; those that cannot be read stay.

    This starts nothing that would not start by itself: a message is only a hint that a run of the queue may be
    claimed, and workers find every queued run by its row within two seconds. It shows whether workers can use the
    messages now; one that they cannot dies again.
    """
    from runyard.cli.dead import requeue

    requeue(queue, ids or [], every=every)


@dead.command("drop")
def drop_dead(queue: QueueName, ids: LetterIds = None, every: EveryLetter = False) -> None:
    """Delete dead letters. No run is lost with one: the database alone knows which runs wait."""
    from runyard.cli.dead import drop

    drop(queue, ids or [], every=every)


@app.command()
def fsck(
    run: Annotated[str | None, typer.Option(help="Look at this run alone.", show_default=False)] = None,
    since: Annotated[
        datetime | None, typer.Option(help="Look at runs that were active since then (UTC).", show_default=False)
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print each finding as a line of JSON.")] = False,
    grace: Annotated[float, typer.Option(min=0, help="Seconds to wait for what the system mends by itself.")] = 25,
) -> None:
    """Look for what is broken in the database and in Redis, while the system runs. Changes nothing.

    Exit code 0: nothing is broken; 1: what was printed is; 2: it could not look.
    """
    from runyard.cli import fsck as command

    raise typer.Exit(command.run(run_id=run, since=since, as_json=json, grace_s=grace))


app.add_typer(calls.app)


def main() -> None:
    """The entry point. An error that was foreseen is printed as one line."""
    try:
        app()
    except (StartError, CouldNotLookError, ChildExitedError) as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(1 if isinstance(error, ChildExitedError) else 2)
    except ImportError as error:
        if error.name != CLIENTS_LIBRARY:
            raise
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
