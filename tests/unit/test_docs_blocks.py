"""Blocks of the pages that no other test runs: bodies, streams, agents and output are as they are shown."""

import configparser
import json
import re
from pathlib import Path
from typing import Any, get_type_hints

import jwt
import pytest
from scripts import chaos
from tests import shell
from tests.clients.sse import Event, EventStreamParser
from tests.fault.chaos import Outcome, Plan
from tests.readme import blocks, tables
from typer.testing import CliRunner

from runyard import agent, tool, traces
from runyard.authoring.context import RunContext
from runyard.cli.command import app
from runyard.db import migrate
from runyard.db.postgres import IDLE_IN_TRANSACTION_MS
from runyard.errors import RunBusy
from runyard.frames import FrameEvent
from runyard.ids import RequestId
from runyard.testing import harness
from runyard_gateway import shapes
from runyard_gateway.requests import StartRun

SECRET = "s" * 32
OUTCOME = Outcome(
    plan=Plan(seed=1),
    ends={},
    **dict.fromkeys(("killed", "moves", "take_overs", "once", "interrupted", "repeated", "lost"), 0),
    invalid_transcripts=[],
    unequal_readers=[],
    unsound=[],
)


def whole(block: str) -> dict[str, Any]:
    """A JSON block, without the `...` that stands for more."""
    value: dict[str, Any] = json.loads(block.replace(", ...}", "}"))
    return value


# Bodies --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", ["docs/scaling.md", "docs/security.md"])
def test_bodies_are_some_that_are_taken(page: str) -> None:
    (block,) = blocks("json", page)
    said = StartRun.model_validate_json(block)
    assert said.said() == (None, json.loads(block)["input"])


def test_the_fields_of_a_call_are_those_that_are_taken() -> None:
    ((_, *rows),) = (table for table in tables("docs/http.md") if table[0] == ["field", ""])
    listed = [name for names, _ in rows for name in re.findall(r"`(\w+)`", names)]
    assert sorted(listed) == sorted(StartRun.model_json_schema()["properties"])


def test_an_errors_body_is_the_one_that_is_shown() -> None:
    (block,) = blocks("json", "docs/errors.md")
    body = RunBusy("...").body(RequestId("req_..."))
    assert whole(block) == body


def test_the_function_answers_as_it_is_shown(tmp_path: Path) -> None:
    (source,) = blocks("python", "docs/functions.md")
    (block,) = blocks("json", "docs/functions.md")
    (tmp_path / "support.py").write_text(source)
    with harness(tmp_path / "support.py") as h:
        found = h.call("order_status", {"order": "A-17"})
        refused = h.call("order_status", {"order": "A-18"})
        h.model.calls("order_status", order="A-18").says("There is none.")
        told = h.run("Where is A-18?").calls[0]
    assert (found.output, found.text) == ({"state": "packed"}, "Looking at the parcel.\n")
    shown = whole(block)["error"]
    assert shown.pop("requestId") == "req_..."
    (frame,) = refused.events("error")
    assert shown == {name: frame["error"][name] for name in shown}
    assert (told.is_error, told.result) == (True, "ORDER_UNKNOWN: There is no such order")


def test_tickets_are_answered_with_what_is_shown() -> None:
    header, tickets = blocks("", "docs/security.md")
    assert header.startswith("Authorization: Bearer ")
    answers = [set(json.loads(answer)) for answer in re.findall(r"201 (\{.*\})", tickets)]
    assert answers == [set(get_type_hints(kind)) for kind in (shapes.StreamTicket, shapes.Ticket, shapes.Ticket)]


# Streams -------------------------------------------------------------------------------------------------------------


def events(block: str) -> list[Event]:
    return EventStreamParser().feed(f"{block}\n".encode())


def names(data: str) -> set[str]:
    """The fields of an object that is shown shortened."""
    return set(re.findall(r'"(\w+)":', data))


def test_streams_are_shown_as_they_are() -> None:
    (feed,) = blocks("", "docs/streaming.md")
    run, message = events(feed)
    assert [run.type, message.type] == ["run", "message"]
    assert (run.last_event_id, run.id, message.id) == ("8122", None, "8131")
    assert names(run.data) < set(get_type_hints(shapes.Run))
    assert names(message.data) < set(get_type_hints(shapes.Message))
    (waiting,) = blocks("", "docs/scaling.md")
    (status,) = events(waiting)
    assert (status.type, status.id) == (FrameEvent.STATUS, None)
    assert names(status.data) < set(get_type_hints(shapes.Run))


@tool
def dig(ctx: RunContext) -> str:
    ctx.stream.write("earth\n")
    return "a hole"


NOT_BUILT = {FrameEvent.PENDING, FrameEvent.DECIDED, FrameEvent.AGENT}
OF_GATEWAYS = {FrameEvent.QUEUED, FrameEvent.TEXT}
ENDS = {FrameEvent.RESULT, FrameEvent.ERROR}


def test_frames_are_those_that_are_listed_with_their_fields() -> None:
    ((_, *rows),) = (table for table in tables("docs/streaming.md") if table[0][0] == "event")
    listed = {event.strip("`"): set(re.findall(r'"(\w+)"', data)) for event, data, _ in rows}
    assert set(listed) == {"none", "any other", *FrameEvent} - NOT_BUILT
    with harness(agent(tools=[dig])) as h:
        h.model.fails(529).thinks("Hm.").says("I dig.").calls(dig).says("A hole.")
        h.before(tool="dig").steer("quick")
        h.after(step=3).crash()
        dug = h.run("Dig")
        h.model.fails(401)
        frames = (*dug.frames, *h.run("Dig").frames)
    assert {frame.event or "none" for frame in frames} == set(listed) - OF_GATEWAYS - {"any other"}
    for event in set(listed) - OF_GATEWAYS - ENDS:
        told = [set(frame.data) for frame in frames if frame.event == event and isinstance(frame.data, dict)]
        assert set().union(*told) == listed[event], event


def test_what_is_printed_is_what_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    frames, readme = blocks("text")
    (page,) = blocks("text", "docs/reliability.md")
    text, start, result = events(frames)
    assert (text.type, start.type, result.type) == ("", FrameEvent.TOOL_START, FrameEvent.RESULT)
    assert list(json.loads(start.data)) == ["id", "name", "input"]
    assert names(result.data) < set(get_type_hints(shapes.Result))
    chaos.print_table(OUTCOME)
    printed = capsys.readouterr().out
    for shown in (readme, page.partition("\n\n")[2]):
        assert [label(line) for line in shown.splitlines()] == [label(line) for line in printed.strip().splitlines()]


def label(line: str) -> str:
    return line[: chaos.LABEL_WIDTH]


# Agents --------------------------------------------------------------------------------------------------------------


@tool
async def transcribe(recording: str) -> str:
    return f"what was said in {recording}"


def test_an_agent_names_its_queue() -> None:
    (source,) = blocks("python", "docs/scaling.md")
    given = {"agent": agent, "transcribe": transcribe}
    exec(source, given)
    manifest = given["transcriber"].manifest("transcriber")  # type: ignore[attr-defined]
    assert (manifest["queue"], manifest["maxRunning"]) == ("gpu", 8)
    served = [command.variables for block in blocks("sh", "docs/scaling.md") for command in shell.commands(block)]
    assert manifest["queue"] in {variables["RUNYARD_QUEUES"] for variables in served}


def test_a_tool_speaks_in_a_room() -> None:
    (source,) = blocks("python", "docs/streaming.md")
    given = {"agent": agent, "tool": tool, "RunContext": RunContext}
    exec(source, given)
    with harness(given["herald"], name="herald") as h:  # type: ignore[arg-type]
        h.model.calls("announce", room="lobby", text="Dinner!").says("It is said.")
        h.run("Call them")
        (said,) = h.broadcasts
    assert (said.room, said.event, said.data) == ("lobby", "announced", {"text": "Dinner!"})


# Commands and settings -----------------------------------------------------------------------------------------------


def test_keys_and_tokens_are_made_as_it_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"sqlite:///{tmp_path}/runyard.db"
    migrate.upgrade(url)
    monkeypatch.setenv("RUNYARD_DATABASE_URL", url)
    monkeypatch.setenv("RUNYARD_JWT_SECRET", SECRET)
    printed = []
    for block in blocks("bash", "docs/security.md"):
        for command in shell.commands(block):
            result = CliRunner().invoke(app, command.words[1:], catch_exceptions=False)
            assert result.exit_code == 0
            printed.append(result.output)
    token, key, listing, revoked = printed
    claims = jwt.decode(token.strip(), SECRET, algorithms=["HS256"])
    assert (claims["sub"], claims["tenant"], claims["roles"]) == ("ann", "acme", ["admin"])
    assert re.fullmatch(r"ry_[0-9a-f]{64}", key.strip())
    assert re.search(r"^billing +ry_\.\.\.\S{4} +acme,initech ", listing, re.MULTILINE)
    assert revoked == ""


def test_the_pools_setting_is_that_of_links() -> None:
    (block,) = blocks("ini", "docs/connections.md")
    parser = configparser.ConfigParser()
    parser.read_string(f"[pgbouncer]\n{block}")
    assert dict(parser["pgbouncer"]) == {
        "pool_mode": "transaction",
        "idle_transaction_timeout": f"{IDLE_IN_TRANSACTION_MS // 1000}",
    }


def test_the_endpoint_turns_traces_on() -> None:
    (block,) = blocks("bash", "docs/traces.md")
    (command,) = shell.commands(block)
    assert command.words == ()
    assert set(command.variables) < set(traces.ENDPOINTS)
