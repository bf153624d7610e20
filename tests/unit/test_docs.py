"""README and ARCHITECTURE say what is so: their files, commands, calls and the agent that they show."""

import importlib
import json
import pkgutil
import re
import shlex
import sys
from pathlib import Path
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.routing import compile_path
from tests.readme import README, blocks, documented_agent

import runyard.db
import runyard.lifecycle
from runyard_gateway.requests import CallFunction, StartRun, wants
from runyard_gateway.routes import OPERATIONS
from runyard_workers.catalog import load_folder

ROOT = Path(__file__).parents[2]
PARTS = ("shared", "gateway", "workers", "agents", "tests", "docs", "scripts", "k8s")
ARCHITECTURE = (ROOT / "ARCHITECTURE.md").read_text()
ADRS = sorted((ROOT / "docs" / "adr").glob("*.md"))

_CODE = re.compile(r"`([^`\n]+)`")
_FILE = re.compile(r"(?!/)[\w.][\w./-]*(?:\.(?:py|lua|md|toml|lock|yaml)|/)")


def named_files(text):
    """What stands between backquotes and looks like a file, a folder of the repository, or ends with a slash."""
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    names = set(_CODE.findall(prose))
    return sorted(name for name in names if _FILE.fullmatch(name) or name.split("/")[0] in PARTS)


def exists(name):
    """Named from the root, or from inside one of the parts: `runs.py`, `db/locks.py`."""
    if (ROOT / name).exists():
        return True
    suffix = f"/{name.rstrip('/')}"
    return any(str(path).endswith(suffix) for part in PARTS for path in (ROOT / part).rglob(Path(name).name))


def test_files_that_are_named_are_there():
    named = named_files(ARCHITECTURE)
    assert len(named) > 50
    assert [name for name in named if not exists(name)] == []
    assert [name for name in named_files(README) if not exists(name) and not name.startswith((".", "my_agents"))] == []


def test_the_architecture_stays_short():
    assert len(ARCHITECTURE.splitlines()) < 300


def test_transactions_that_are_named_are_there():
    _, _, rest = ARCHITECTURE.partition("## Transactions and their locks")
    table = rest.partition("\n\nA step")[0]
    names = {name for row in table.splitlines() if row.startswith("| `") for name in _CODE.findall(row.split("|")[1])}
    assert {"accept_turn", "end_turn", "bury"} <= names
    modules = [
        importlib.import_module(f"{package.__name__}.{item.name}")
        for package in (runyard.db, runyard.lifecycle)
        for item in pkgutil.iter_modules(package.__path__)
    ]
    assert [name for name in names if not any(callable(getattr(module, name, None)) for module in modules)] == []


def test_the_map_names_every_module():
    table = set(_CODE.findall(ARCHITECTURE.partition("## Map")[2].partition("## How a call flows")[0]))
    packages = ("shared/runyard", "shared/runyard/lifecycle", "gateway/runyard_gateway", "workers/runyard_workers")
    modules = [path for package in packages for path in (ROOT / package).glob("*.py") if not path.stem.startswith("__")]
    assert len(modules) > 100
    assert [str(path.relative_to(ROOT)) for path in modules if path.name not in table] == []


def test_decisions_are_numbered_pages_with_a_context_and_a_decision():
    numbers = [path.name[:4] for path in ADRS]
    assert numbers == [f"{number:04}" for number in range(1, len(ADRS) + 1)]
    for path in ADRS:
        lines = path.read_text().splitlines()
        assert lines[0].startswith(f"# {path.name[:4]}. "), path.name
        assert lines[2].startswith("Status: "), path.name
        assert {"## Context", "## Decision"} <= set(lines), path.name
        assert len(lines) <= 70, path.name


# The README's commands ---------------------------------------------------------------------------------------------


def test_the_server_is_started_by_a_block_of_its_own():
    started = [block for block in blocks("bash") if "make dev" in block]
    assert started == ["make dev\n"]
    assert blocks("bash")[0] == started[0]


def test_make_has_the_targets():
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert {"dev", "test"} <= set(re.findall(r"(?:^|`)make (\w+)", README, re.MULTILINE)) <= targets


def curls():
    """Method, path with query, headers and body of each curl in the README; its shell variables as they stand."""
    commands = re.findall(r"curl (?:\\\n|\\.|[^\\|)\n])+", "".join(blocks("bash")))
    for command in commands:
        words = iter(shlex.split(command.replace("\\\n", " ")))
        url, headers, body = "", [], None
        for word in words:
            match word:
                case "-H":
                    name, _, value = next(words).partition(": ")
                    headers.append((name.lower().encode(), value.encode()))
                case "-d":
                    body = json.loads(next(words))
                case _ if word.startswith("http"):
                    url = word
        parts = urlsplit(url)
        assert f"{parts.scheme}://{parts.netloc}" == "http://127.0.0.1:8000"
        yield "GET" if body is None else "POST", parts.path, headers, body


def test_the_calls_are_routes_of_the_gateway():
    called = [(method, path) for method, path, _, _ in curls()]
    assert called.count(("POST", "/v1/agents/researcher/runs")) == 2
    assert ("GET", "/v1/streams/$STREAM") in called
    for method, path in called:
        assert any(
            operation.method == method and compile_path(operation.path)[0].match(path) for operation in OPERATIONS
        ), (method, path)


def test_the_calls_that_start_runs_ask_for_a_stream_with_a_body_that_is_taken():
    bodies = []
    for method, path, headers, body in curls():
        if method == "POST":
            assert wants(Request({"type": "http", "headers": headers})) == "stream"
            if path.startswith("/v1/functions/"):
                function = load_folder(ROOT / "agents").functions[f"fn:{path.rsplit('/', 1)[-1]}"].function
                assert function.arguments(CallFunction.model_validate(body).input)
            else:
                assert StartRun.model_validate(body).said() == (None, body["input"])
            bodies.append(sorted(body))
    assert bodies == [["input"], ["input", "runId"], ["input"]]


def test_the_agent_is_one_that_can_be_loaded(tmp_path):
    (tmp_path / "dice.py").write_text(documented_agent())
    try:
        catalog = load_folder(tmp_path)
        assert catalog.problems == ()
        (tool,) = catalog.agents["dice"].agent.tools
    finally:
        for name in [name for name in sys.modules if name.partition(".")[0] == "runyard_agents"]:
            del sys.modules[name]
    assert (tool.name, tool.description) == ("roll", "Roll dice.")
    assert tool.arguments({"count": 3}) == {"sides": 6, "count": 3}
    assert all(part["description"] for part in tool.schema["properties"].values())
