"""The `runyard` command: its options, and the one line that explains an error."""

import importlib.metadata
import io
import sys
from datetime import datetime
from typing import Annotated

import typer

from runyard.cli import calls, exits
from runyard.cli.process import ChildExitedError
from runyard.errors import StartError
from runyard.fsck.findings import CouldNotLookError

CLIENTS_LIBRARY = "httpx2"
"""Comes with the extra `client`: some installations, like a gateway's image, never call a gateway."""

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
    """Run the whole system on this machine.

    Its state is kept in .runyard/.
    """
    from runyard.cli.dev import run

    run(agents=agents, host=host, port=port)


@app.command()
def migrate() -> None:
    """Upgrade the database's schema to this version.

    The database is the one at RUNYARD_DATABASE_URL.
    """
    from runyard.db.migrate import upgrade
    from runyard.settings import DatabaseSettings

    print(f"the schema is at revision {upgrade(DatabaseSettings.load().database_url)}")


@app.command()
def token(
    user: Annotated[str, typer.Option(help="The user: the claim sub.")],
    tenant: Annotated[str | None, typer.Option(help="Their tenant.", show_default="default")] = None,
    role: Annotated[list[str] | None, typer.Option(help="A role, like admin; may be repeated.")] = None,
    ttl: Annotated[str, typer.Option(help="How long it is valid: 30s, 15m, 1h, 7d.")] = "1h",
) -> None:
    """Print a token to try a gateway with.

    It is signed with RUNYARD_JWT_SECRET.
    """
    from runyard.cli.token import issue

    print(issue(user=user, tenant=tenant, roles=role or [], ttl=ttl))


keys = typer.Typer(help="Create, list and revoke keys of services.", no_args_is_help=True)
app.add_typer(keys, name="keys")


@keys.command("create")
def create_key(
    name: Annotated[str, typer.Argument(help="The key's name.")],
    tenant: Annotated[list[str], typer.Option(help="A tenant whose users it may act for; may be repeated.")],
) -> None:
    """Create a key and print it.

    It is shown only this once.
    """
    from runyard.cli.keys import create

    print(create(name, tenant))


@keys.command("list")
def list_keys() -> None:
    """List all keys, also revoked ones.

    Of each key only the last four digits are shown.
    """
    from runyard.cli.keys import print_list

    print_list()


@keys.command("revoke")
def revoke_key(name: Annotated[str, typer.Argument(help="The key's name.")]) -> None:
    """Revoke a key.

    Within five seconds gateways refuse it, and end the streams that are read with it.
    """
    from runyard.cli.keys import revoke

    revoke(name)


queues = typer.Typer(invoke_without_command=True)
app.add_typer(queues, name="queues")


@queues.callback()
def show_queues(
    context: typer.Context,
    watch: Annotated[bool, typer.Option("--watch", help="Show it again every second, until Ctrl-C.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON, one line each time.")] = False,
) -> None:
    """Show how deep the queues are, for all tenants.

    For each queue: runs that wait and that run, workers and their slots, messages in the broker.
    """
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
    """List the dead letters.

    At most 1,000 of each queue, the oldest first. A message becomes one when a worker cannot read it or does not know
    its actor: something else writes to the queue, or the versions do not fit together. Brokers delete dead letters
    after seven days.
    """
    from runyard.cli.dead import print_list

    print_list(queue or [], as_json=json)


@dead.command("requeue")
def requeue_dead(queue: QueueName, ids: LetterIds = None, every: EveryLetter = False) -> None:
    """Put dead letters back into their queue.

    Those that cannot be read stay. This starts no run that would not start by itself, since workers find every queued
    run by its row within two seconds. It shows whether workers can use the messages now: if not, they become dead
    letters again.
    """
    from runyard.cli.dead import requeue

    requeue(queue, ids or [], every=every)


@dead.command("drop")
def drop_dead(queue: QueueName, ids: LetterIds = None, every: EveryLetter = False) -> None:
    """Delete dead letters.

    No run is lost with them: which runs wait is in the database.
    """
    from runyard.cli.dead import drop

    drop(queue, ids or [], every=every)


@app.command()
def fsck(
    run: Annotated[str | None, typer.Option(help="Look at this run alone.", show_default=False)] = None,
    since: Annotated[
        datetime | None, typer.Option(help="Look at runs that were active since then (UTC).", show_default=False)
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print each finding as a line of JSON.")] = False,
    grace: Annotated[float, typer.Option(min=0, help="Seconds to wait for what the system repairs by itself.")] = 25,
) -> None:
    """Check that the database and Redis are consistent.

    It may run while the system does, and changes nothing. Exit code 0: nothing was found; 1: findings were printed; 2:
    the check was not possible.
    """
    from runyard.cli import fsck as command

    raise typer.Exit(command.run(run_id=run, since=since, as_json=json, grace_s=grace))


app.add_typer(calls.app)


def main() -> None:
    """The entry point. An error that was foreseen is printed as one line, and what the output's encoding lacks as an
    escape.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        app()
    except (StartError, CouldNotLookError, ChildExitedError) as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(exits.FAILED if isinstance(error, ChildExitedError) else exits.REFUSED)
    except ImportError as error:
        if error.name != CLIENTS_LIBRARY:
            raise
        print(f"error: {error}", file=sys.stderr)
        sys.exit(exits.REFUSED)
