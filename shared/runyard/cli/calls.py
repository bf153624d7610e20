"""The commands that call a gateway: what they take, and their help."""

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(rich_markup_mode=None)

Url = Annotated[
    str | None,
    typer.Option("--url", help="The gateway.", show_default="RUNYARD_URL, or http://127.0.0.1:8000"),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, a line each.")]
Agent = Annotated[str, typer.Argument(help="The agent's name: `runyard agents` lists them.")]
RunId = Annotated[str, typer.Argument(metavar="RUN", help="The run's id: `runyard runs` lists them.")]
Session = Annotated[
    str | None, typer.Option("--session", help="Continue the run of this session, or begin it.", show_default=False)
]

CODES = """\b
Exit codes: 0 completed, 1 failed, 2 wrong usage, no gateway or refused,
3 cancelled, 130 after Ctrl-C."""


@app.command(
    epilog=f"""\b
Examples:
  runyard run researcher "How do I retry a payment?"
  runyard run researcher --run run_01a2 "And how long is a key remembered?"
  git diff | runyard run reviewer - > review.md
  runyard run researcher --detach "Compare the two." | xargs runyard tail

{CODES}"""
)
def run(
    agent: Agent,
    said: Annotated[
        str | None,
        typer.Argument(metavar="[INPUT]", help="What to ask; - or nothing reads it from stdin.", show_default=False),
    ] = None,
    *,
    run_id: Annotated[
        str | None,
        typer.Option("--run", help="Continue this run; one that is at work is steered.", show_default=False),
    ] = None,
    session: Session = None,
    model: Annotated[str | None, typer.Option(help="Another model than the agent's.", show_default=False)] = None,
    detach: Annotated[bool, typer.Option("--detach", help="Print the run's id and do not wait.")] = False,
    thinking: Annotated[bool, typer.Option("--thinking", help="Show the model's reasoning, too.")] = False,
    json: Json = False,
    url: Url = None,
) -> None:
    """Ask an agent, and watch it answer.

    The answer goes to stdout, what happens around it to stderr. A file or a pipe gets only what will not be withdrawn.
    Ctrl-C asks whether to cancel the run or to leave it running; a second one leaves it running.
    """
    from runyard.cli import gateways, runs

    new = runs.NewCall(agent=agent, said=runs.said(said), run_id=run_id, session_id=session, model=model)
    output = runs.Output(as_json=json, thinking=thinking)
    begin = runs.start if detach else runs.call
    raise typer.Exit(gateways.run(lambda client: begin(client, new, output), url=url))


@app.command(
    epilog=f"""\b
Examples:
  runyard tail run_01a2
  runyard tail st_9f3c --since 120 --json

{CODES}"""
)
def tail(
    place: Annotated[str, typer.Argument(metavar="RUN|STREAM", help="A run's id, or a stream's.")],
    *,
    since: Annotated[
        int | None, typer.Option(min=0, help="Begin after this frame.", show_default="the beginning")
    ] = None,
    thinking: Annotated[bool, typer.Option("--thinking", help="Show the model's reasoning, too.")] = False,
    json: Json = False,
    url: Url = None,
) -> None:
    """Watch the newest answer of a run.

    From its beginning, even if it ended long ago.
    """
    from runyard.cli import gateways, runs

    output = runs.Output(as_json=json, thinking=thinking)
    raise typer.Exit(gateways.run(lambda client: runs.tail(client, place, since=since, output=output), url=url))


@app.command(
    epilog="""\b
Examples:
  runyard steer run_01a2 "Leave out the prices."
  runyard steer run_01a2 - < more.txt"""
)
def steer(
    run_id: RunId,
    said: Annotated[str, typer.Argument(metavar="TEXT", help="What to say; - reads it from stdin.")],
    *,
    json: Json = False,
    url: Url = None,
) -> None:
    """Send input to a run.

    A run that is working reads it at its next step. A run that has ended goes on with it.
    """
    from runyard.cli import gateways, runs

    output = runs.Output(as_json=json)
    text = runs.said(said)
    raise typer.Exit(gateways.run(lambda client: runs.steer(client, run_id, text, output), url=url))


@app.command(
    epilog="""\b
Examples:
  runyard cancel run_01a2
  runyard cancel run_01a2 --wait 0"""
)
def cancel(
    run_id: RunId,
    *,
    wait: Annotated[float, typer.Option(min=0, help="Seconds to wait until it has stopped.")] = 30,
    json: Json = False,
    url: Url = None,
) -> None:
    """Stop a run.

    What it has said is kept. Input that it has not read yet is dropped, and listed.
    """
    from runyard.cli import gateways, runs

    output = runs.Output(as_json=json)
    raise typer.Exit(gateways.run(lambda client: runs.cancel(client, run_id, wait_s=wait, output=output), url=url))


@app.command(
    "runs",
    epilog="""\b
Examples:
  runyard runs --agent researcher --status failed
  runyard runs --json --limit 1000 | jq -r 'select(.steps > 20) | .id'""",
)
def list_runs(
    *,
    agent: Annotated[str | None, typer.Option(help="Runs of this agent.", show_default=False)] = None,
    status: Annotated[
        str | None, typer.Option(help="Runs with this status, like running or failed.", show_default=False)
    ] = None,
    session: Annotated[str | None, typer.Option("--session", help="The session's run.", show_default=False)] = None,
    limit: Annotated[int, typer.Option(min=1, help="How many.")] = 20,
    json: Json = False,
    url: Url = None,
) -> None:
    """List runs, newest activity first."""
    from runyard.cli import gateways, runs

    where = runs.Filter(agent=agent, status=status, session_id=session, limit=limit)
    output = runs.Output(as_json=json)
    raise typer.Exit(gateways.run(lambda client: runs.listing(client, where, output), url=url))


@app.command("agents")
def list_agents(*, json: Json = False, url: Url = None) -> None:
    """List the agents that you may call.

    With their tools, and how many workers serve them.
    """
    from runyard.cli import agents, gateways

    raise typer.Exit(gateways.run(lambda client: agents.listing(client, json=json), url=url))


@app.command(
    "new",
    epilog="""\b
Examples:
  runyard new planner
  runyard dev &
  runyard run planner "How many days are left until 2030-12-31?\"""",
)
def new_agent(
    name: Annotated[str, typer.Argument(help="What the agent is called: small letters, digits and _.")],
    folder: Annotated[Path, typer.Option(help="Where agents are.")] = Path("agents"),
    tests: Annotated[Path, typer.Option(help="Where tests are.")] = Path("tests"),
) -> None:
    """Write a new agent, and tests for it.

    An existing file is not changed.
    """
    from runyard.cli import starter

    agent, test = starter.write(name, folder, tests)
    print(f'{agent}: serve it with `runyard dev`, then `runyard run {name} "How many days until 2030-12-31?"`')
    print(f"{test}: run it with `pytest`")
