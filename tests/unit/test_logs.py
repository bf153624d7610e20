"""One log for structlog's events and the libraries' records."""

import json
import logging
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from runyard import logs, traces

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers, root.level
    named = (*logs.QUIET_LIBRARIES, *logs.SILENT_LIBRARIES, *logs.OURS)
    levels = {name: logging.getLogger(name).level for name in named}
    yield
    root.handlers = handlers
    root.setLevel(level)
    for name, before in levels.items():
        logging.getLogger(name).setLevel(before)
    structlog.reset_defaults()


def test_machines_get_one_object_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("worker", "info", json=True)
    structlog.get_logger().info("run settled", run_id="run_1", steps=2)
    logging.getLogger("an_author").warning("%s is late", "the ferry")
    settled, late = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert settled.pop("timestamp").endswith("Z")
    assert settled == {"role": "worker", "level": "info", "event": "run settled", "run_id": "run_1", "steps": 2}
    assert (late["role"], late["level"], late["logger"]) == ("worker", "warning", "an_author")
    assert late["event"] == "the ferry is late"


class Mute:
    def __repr__(self) -> str:
        raise RuntimeError


def test_a_field_that_is_no_json_costs_no_line(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("worker", "info", json=True)
    loop: list[object] = []
    loop.append(loop)
    fields = {"ratio": float("nan"), "pairs": {(1, 2): 3}, "loop": loop, "mute": Mute(), "steps": 2, "tags": {"a"}}
    structlog.get_logger("agent").info("looked", **fields)
    (line,) = capsys.readouterr().err.splitlines()
    told = json.loads(line, parse_constant=pytest.fail)
    assert {name: told[name] for name in fields} == {
        "ratio": "nan",
        "pairs": "{(1, 2): 3}",
        "loop": "[[...]]",
        "mute": "Mute",
        "steps": 2,
        "tags": "{'a'}",
    }


def test_an_exception_is_a_field_of_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("gateway", "info", json=True)
    try:
        raise ValueError("why")
    except ValueError:
        structlog.get_logger().exception("request failed")
    (line,) = capsys.readouterr().err.splitlines()
    assert json.loads(line)["exception"].endswith("ValueError: why")


def test_a_person_gets_columns_and_a_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("worker", "info", json=False)
    structlog.get_logger().info("run settled", steps=2)
    try:
        raise ValueError("why")
    except ValueError:
        logging.getLogger("an_author").exception("failed")
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].split()[1:] == ["[info", "]", "run", "settled", "steps=2"]
    assert lines[-1] == "ValueError: why"


def test_levels(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("worker", "warning", json=True)
    structlog.get_logger().info("hidden")
    logging.getLogger("an_author").info("hidden")
    logs.configure("worker", "debug", json=True)
    structlog.get_logger("runyard.runs").debug("shown")
    assert [json.loads(line)["event"] for line in capsys.readouterr().err.splitlines()] == ["shown"]


def test_what_libraries_write_for_debugging_is_never_shown(capsys: pytest.CaptureFixture[str]) -> None:
    """Prompts are in it: the provider's SDK logs each request."""
    logs.configure("worker", "debug", json=True)
    logging.getLogger("anthropic._base_client").debug("hidden")
    logging.getLogger("a_tool_s_library").debug("hidden")
    logging.getLogger("runyard_agents.researcher").debug("shown")
    assert [json.loads(line)["event"] for line in capsys.readouterr().err.splitlines()] == ["shown"]


def test_what_a_process_is_known_as_is_in_every_line(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("worker", "info", json=True)
    logs.identify(worker_id="wk_1")
    structlog.get_logger().info("run claimed")
    logging.getLogger("an_author").info("told")
    structlog.get_logger().info("run claimed", worker_id="wk_0")  # under the id that it had then
    logs.configure("gateway", "info", json=True)
    structlog.get_logger().info("gateway listens")
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [line.get("worker_id") for line in lines] == ["wk_1", "wk_1", "wk_0", None]


@pytest.mark.parametrize("library", logs.QUIET_LIBRARIES)
def test_libraries_speak_from_warnings_on(library: str, capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("worker", "debug", json=True)
    logging.getLogger(f"{library}.part").info("hidden")
    logging.getLogger(f"{library}.part").warning("shown")
    assert [json.loads(line)["event"] for line in capsys.readouterr().err.splitlines()] == ["shown"]


@pytest.mark.parametrize("library", logs.SILENT_LIBRARIES)
def test_some_libraries_never_speak(library: str, capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("worker", "debug", json=True)
    logging.getLogger(f"{library}.part").error("hidden")
    assert capsys.readouterr().err == ""


def test_trace_headers_that_strangers_make_up_are_not_logged(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("gateway", "debug", json=True)
    for tracestate in ("no member: a prompt", "x" * 10_000, ",".join(f"k{number}=1" for number in range(33))):
        traces.beneath({"traceparent": f"00-{'a' * 32}-{'b' * 16}-01", "tracestate": tracestate})
    traces.beneath({"traceparent": "x" * 10_000})
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("part", ["shared", "gateway", "workers"])
def test_events_are_named_in_plain_words(part: str) -> None:
    sources = "".join(path.read_text() for path in (ROOT / part).rglob("*.py"))
    events = re.findall(r'log\.(?:debug|info|warning|error|exception)\(\s*"([^"]+)"', sources)
    assert events
    assert [event for event in events if re.search(r"\w[._]\w", event)] == []
