"""docs/agents.md: a worker loads its files, the harness runs them, and they do what the page says of them."""

import dataclasses
import inspect
import re
from collections.abc import Callable
from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from tests.readme import ROOT, blocks, files, tables

from runyard import RunContext, agent, tool
from runyard.authoring.errors import AuthoringError
from runyard_workers.catalog import Catalog, load_folder
from runyard_workers.results import to_result
from runyard_workers.testing.sync import SyncHarness

PAGE = "docs/agents.md"
TEXT = (ROOT / PAGE).read_text()

Opened = Callable[..., SyncHarness]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, source in files(PAGE).items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(source)
    return tmp_path / "agents"


@pytest.fixture
def catalog(folder: Path) -> Catalog:
    return load_folder(folder)


def test_a_worker_loads_the_folder(catalog: Catalog) -> None:
    assert catalog.problems == ()
    names = {Path(name).stem for name in files(PAGE)}
    assert set(catalog.agents) == {name for name in names if not name.startswith("_")}
    assert list(catalog.functions) == ["fn:shipping_cost"]
    for loaded in catalog.agents.values():
        for each in loaded.agent.tools:
            assert each.description, each.name


def test_the_smallest_agent_answers(harness: Opened, folder: Path) -> None:
    h = harness(folder / "greeter.py")
    h.model.says("Hello!")
    assert h.run("hi").text == "Hello!"


# Tools ---------------------------------------------------------------------------------------------------------------


def test_the_schema_is_what_annotations_and_docstring_say(catalog: Catalog) -> None:
    find, cancel = catalog.agents["support"].agent.tools
    assert (find.name, find.description) == ("find_orders", "Find the customer's orders.")
    assert find.schema["properties"]["state"] == {
        "enum": ["packed", "sent", "any"],
        "type": "string",
        "description": "Only those in this state.",
    }
    assert find.schema["properties"]["limit"]["maximum"] == 50
    assert "required" not in find.schema
    assert cancel.schema["required"] == list(cancel.schema["properties"]) == ["order"]


def test_what_a_tool_gets_wrong_is_told_to_the_model(harness: Opened, folder: Path) -> None:
    h = harness(folder / "support.py")
    # One turn with three calls, then one with one, then one with three.
    h.model.calls("find_orders", limit=99).calls("find_orders", limit="5").calls("find_orders", colour="red")
    h.model.calls("find_orders", state=None, limit=1)
    h.model.calls("cancel_order", order="A-2").calls("cancel_order", order="A-9").calls("cancel_order", order="A-1")
    h.model.says("Done.")
    result = h.run("Where are my orders?")
    told = [(call.is_error, call.result) for call in result.calls]
    (over,) = blocks("text", PAGE)[1:]
    assert told[0] == (True, over.strip())
    assert told[1] == (True, "Invalid tool input: limit: expected integer, got string")
    assert told[2] == (True, 'Invalid tool input: Unknown field "colour"')
    assert told[3] == (False, '[{"order":"A-1","state":"packed"}]')
    assert told[4] == (True, "ORDER_SENT: The parcel has left, it can only be returned")
    assert told[5] == (True, "KeyError: 'A-9'")
    assert told[6] == (False, "order A-1 is cancelled")
    assert result.status == "completed"


def test_a_parameter_without_a_type_fails_the_import() -> None:
    def find(query):  # type: ignore[no-untyped-def]
        """Find something."""

    with pytest.raises(AuthoringError) as failure:
        tool(find)
    assert blocks("text", PAGE)[0].strip() == str(failure.value)


NOTHING = ("none", "any number", "the function's", "the docstring's", "`RUNYARD_MODEL`")
"""Words for a default of None."""


def test_options_are_those_that_there_are() -> None:
    of_tool, of_agent = (table for table in tables(PAGE) if table[0][0] == "option")
    for function, (_, *rows) in ((tool, of_tool), (agent, of_agent)):
        options = {
            name: each.default
            for name, each in inspect.signature(function).parameters.items()
            if each.kind is inspect.Parameter.KEYWORD_ONLY
        }
        assert [row[0].strip("`") for row in rows] == list(options)
        for name, default, _ in rows:
            given = options[name.strip("`")]
            assert default in NOTHING if given in (None, ()) else default.strip('`"') == str(given), name


VALUES = {"Decimal": Decimal, "date": date, "timedelta": timedelta, "Path": Path, "float": float}


def test_values_are_told_as_the_table_says() -> None:
    ((_, *rows),) = (table for table in tables(PAGE) if table[0] == ["returned", "the model reads"])
    assert len(rows) > 5
    for value, told in rows:
        returned = eval(value.strip("`"), dict(VALUES))
        assert to_result(returned, tool="any").content == told.strip("`")


def test_content_blocks_reach_the_model(harness: Opened, folder: Path) -> None:
    h = harness(folder / "illustrator.py")
    h.model.calls("draw", subject="a swift").says("It is very small.")
    (call,) = h.run("Draw a swift").calls
    assert isinstance(call.result, list)
    text, image = call.result
    assert text == {"type": "text", "text": "This is a swift:"}
    assert image["source"]["media_type"] == "image/png"


# The context ---------------------------------------------------------------------------------------------------------


def test_the_context_has_the_fields_that_are_listed() -> None:
    ((_, *rows),) = (table for table in tables(PAGE) if table[0][0] == "`ctx.`")
    listed = [name for row in rows for name in re.findall(r"`(\w+)`", row[0])]
    assert sorted(listed) == sorted(field.name for field in dataclasses.fields(RunContext))


def test_a_prompt_is_asked_with_the_context_and_rooms_are_told(harness: Opened, folder: Path) -> None:
    h = harness(folder / "concierge.py")
    h.model.calls("call_staff", wish="tea").says("It comes.")
    result = h.run("Tea, please", user_id="ada", tenant_id="inn", context={"plan": "suite"})
    assert {request.system for request in h.model.requests} == {"You look after ada, who is in room 7. Plan: suite."}
    assert result.calls[0].result == "the staff knows"
    (said,) = h.broadcasts
    assert (said.tenant_id, said.room, said.event) == ("inn", "staff", "wish")
    assert said.data == {"guest": "ada", "wish": "tea"}
    assert h.resources["guests"].room("eve") == "no room"


# Once, and never twice -----------------------------------------------------------------------------------------------


def test_a_payment_is_repeated_under_its_key_and_an_account_is_closed_once(harness: Opened, folder: Path) -> None:
    h = harness(folder / "cashier.py")
    h.model.calls("pay_back", amount=9.5).calls("close_account")
    h.model.says("I am not sure that it is closed.")
    h.after(tool="pay_back").crash()
    h.after(tool="close_account").crash()
    result = h.run("Pay me back and close it")
    assert [(call.result, call.is_error) for call in result.calls] == [
        ('{"paid":9.5}', False),
        ("tool execution was interrupted; it may have acted", True),
    ]
    assert [ran.tool for ran in h.executions] == ["pay_back", "pay_back", "close_account"]
    assert h.executions[0].idempotency_key == h.executions[1].idempotency_key


# Cancels and streams -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "arguments", "said"),
    [("build", {"project": "ark"}, "stopped while it had to fetch"), ("check", {"cases": 3}, "stopped after 0 cases")],
)
def test_tools_hear_of_a_cancel(harness: Opened, folder: Path, name: str, arguments: dict[str, Any], said: str) -> None:
    h = harness(folder / "builder.py")
    h.model.says("I begin.").calls(name, arguments)
    h.before(tool=name).cancel()
    result = h.run("Build it")
    assert result.status == "cancelled"
    assert result.calls[0].result == said


def test_readers_see_what_tools_write(harness: Opened, folder: Path) -> None:
    h = harness(folder / "builder.py")
    h.model.calls("build", project="ark")
    h.model.calls("check", cases=2).says("It floats.")
    h.after(tool="check").crash()
    result = h.run("Build it")
    assert [event["part"] for event in result.events("building")] == ["fetch", "compile", "link"]
    outputs = [(frame.seq, frame.data["text"]) for frame in result.frames if frame.event == "output"]
    assert [text for _, text in outputs] == ["case 1 passed\n", "case 2 passed\n"]
    (rewind,) = result.events("rewind")
    assert rewind["toSeq"] < outputs[0][0]
    assert result.calls[1].result == "tool execution was interrupted; it may have acted"


# Models --------------------------------------------------------------------------------------------------------------


def test_the_options_reach_the_provider_and_the_fallback_answers(harness: Opened, folder: Path) -> None:
    h = harness(folder / "writer.py")
    h.model.fails(529, times=4).thinks("Hm.").says("Once upon a time.")
    result = h.run("Write")
    assert (result.model, result.text) == ("claude-haiku-4-5", "Once upon a time.")
    assert "thinking" not in {frame.event for frame in result.frames}
    assert "thinking" in {block["type"] for block in result.messages[-1]["content"]}
    request = h.model.requests[0]
    assert (request.model, request.max_tokens) == ("claude-sonnet-5-5", 2000)
    assert request.options == {"temperature": 0.7, "stop_sequences": ["THE END"]}


def test_a_function_is_called_by_itself_and_by_a_model(harness: Opened, folder: Path) -> None:
    h = harness(folder / "shipping.py")
    assert h.call("shipping_cost", {"grams": 2500}).output == {"euros": 6.5}
    h.model.calls("shipping_cost", grams=2500, country="US").says("9.50 euros.")
    assert h.run("What does it cost?").calls[0].result == '{"euros":9.5}'
