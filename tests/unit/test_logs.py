"""One log for structlog's events and the libraries' records."""

import json
import logging
from collections.abc import Iterator

import pytest
import structlog

from runyard import logs


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers, root.level
    levels = {name: logging.getLogger(name).level for name in (*logs.QUIET_LIBRARIES, *logs.SILENT_LIBRARIES)}
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
    structlog.get_logger().debug("shown")
    assert [json.loads(line)["event"] for line in capsys.readouterr().err.splitlines()] == ["shown"]


@pytest.mark.parametrize("library", logs.QUIET_LIBRARIES)
def test_libraries_speak_from_warnings_on(library: str, capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("worker", "debug", json=True)
    logging.getLogger(f"{library}.part").info("hidden")
    logging.getLogger(f"{library}.part").warning("shown")
    assert [json.loads(line)["event"] for line in capsys.readouterr().err.splitlines()] == ["shown"]


@pytest.mark.parametrize("library", logs.SILENT_LIBRARIES)
def test_what_a_library_raises_it_does_not_log_as_well(library: str, capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("worker", "debug", json=True)
    logging.getLogger(f"{library}.part").error("hidden")
    assert capsys.readouterr().err == ""
