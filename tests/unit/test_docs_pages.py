"""What every page has: links and anchors that lead somewhere, commands, routes, settings and metrics that there are,
and a test that holds each of its blocks.
"""

import importlib.util
import re
import tomllib
from collections import Counter
from urllib.parse import urlsplit

import pytest
from starlette.routing import compile_path
from tests import shell
from tests.readme import ROOT, all_blocks, blocks, without_blocks
from tests.unit.test_metrics import declared
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from runyard.cli.command import app
from runyard.settings import Settings
from runyard_gateway.protocols import pylon
from runyard_gateway.routes import OPERATIONS

PAGES = [
    "README.md",
    "ARCHITECTURE.md",
    *(str(page.relative_to(ROOT)) for page in sorted((ROOT / "docs").rglob("*.md"))),
]
TEXTS = {page: (ROOT / page).read_text() for page in PAGES}

_LINK = re.compile(r"\[[^\]]+\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
_ROUTE = re.compile(r"\b(GET|POST|PATCH|DELETE) (/(?:v1|api)/[^\s`'\"]+)")
_SETTING = re.compile(r"\bRUNYARD_[A-Z_]+[A-Z]\b")


def anchors(page: str) -> set[str]:
    """As GitHub makes them of headings: https://docs.github.com/en/get-started/writing-on-github (section links)."""
    headings = _HEADING.findall(without_blocks(page))
    return {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_to_files_and_their_headings(page: str) -> None:
    folder = (ROOT / page).parent
    for link in _LINK.findall(TEXTS[page]):
        name, _, anchor = link.partition("#")
        if "://" in link:
            continue
        target = (folder / name).resolve() if name else ROOT / page
        assert target.exists(), link
        assert not anchor or anchor in anchors(str(target.relative_to(ROOT))), link


def test_the_index_names_each_page_once() -> None:
    linked = Counter(link for link in _LINK.findall(TEXTS["docs/README.md"]) if not link.startswith(".."))
    pages = {path.name for path in (ROOT / "docs").glob("*.md")} - {"README.md"} | {"adr/"}
    assert linked == dict.fromkeys(pages, 1)


# Commands ------------------------------------------------------------------------------------------------------------

TARGETS = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
EXTRAS = tomllib.loads((ROOT / "shared/pyproject.toml").read_text())["project"]["optional-dependencies"]
OTHERS = {"curl", "docker", "kind", "kubectl", "echo", "export", "grep", "python3"}
"""Of which other tests hold what can be: of deploying `tests/deploy`, of calls the route, below."""


def check(words: tuple[str, ...]) -> None:
    """A program's arguments are some that it takes; nothing is run."""
    match words:
        case ("runyard" | ".venv/bin/runyard", *arguments):
            takes(get_command(app), "runyard", arguments)
        case ("make", target):
            assert target in TARGETS
        case ("python", "-m", module, *_):
            assert importlib.util.find_spec(module) is not None
        case ("pip", "install", *packages):
            for extra in re.findall(r"runyard\[(\w+)\]", " ".join(packages)):
                assert extra in EXTRAS
        case (program, *_):
            assert program in OTHERS
            if "--" in words:
                check(words[words.index("--") + 1 :])


def takes(command: TyperCommand | TyperGroup, name: str, arguments: list[str]) -> None:
    """Raises what the command would end with, if it has no such argument or option."""
    context = command.make_context(name, [*arguments])
    below = [*context._protected_args, *context.args]
    if below and isinstance(command, TyperGroup):
        subname, subcommand, rest = command.resolve_command(context, below)
        assert subname is not None
        assert isinstance(subcommand, TyperCommand | TyperGroup)
        takes(subcommand, subname, rest)


def commands(page: str) -> list[shell.Command]:
    return [command for block in blocks("bash", page) + blocks("sh", page) for command in shell.commands(block)]


@pytest.mark.parametrize("page", [page for page in PAGES if commands(page)])
def test_commands_are_those_that_there_are(page: str) -> None:
    for command in commands(page):
        check(command.words)


@pytest.mark.parametrize("page", PAGES)
def test_commands_that_the_text_names_are_there(page: str) -> None:
    known = get_command(app)
    assert isinstance(known, TyperGroup)
    assert set(re.findall(r"`runyard ([a-z]+)", without_blocks(page))) <= set(known.commands)


def test_a_command_that_there_is_not_fails() -> None:
    for words in (("runyard", "rum"), ("runyard", "queues", "--deep"), ("runyard", "keys", "revoke")):
        with pytest.raises(Exception, match=r"No such command|No such option|Missing parameter"):
            check(words)
    with pytest.raises(AssertionError):
        check(("kubectl", "exec", "--", "make", "nothing"))


# Routes, settings, metrics -------------------------------------------------------------------------------------------

ROUTES = [(each.method, compile_path(each.path)[0]) for each in (*OPERATIONS, *pylon.OPERATIONS)]
OF_OTHERS = ("/v1/responses/",)
"""docs/comparison.md names what other systems have."""


@pytest.mark.parametrize("page", PAGES)
def test_routes_are_those_that_there_are(page: str) -> None:
    for method, route in _ROUTE.findall(TEXTS[page]):
        path = urlsplit(route.rstrip(".,;:)")).path
        if not path.startswith(OF_OTHERS):
            assert any(method == each and pattern.match(path) for each, pattern in ROUTES), f"{method} {path}"


OF_COMMANDS = {"RUNYARD_URL", "RUNYARD_TOKEN"}
NEEDED = {f"RUNYARD_{name}_URL": url for name, url in (("DATABASE", "sqlite:///a.db"), ("REDIS", "redis://a"))}
NEEDED["RUNYARD_BROKER_URL"] = "redis://a"


@pytest.mark.parametrize("page", PAGES)
def test_settings_are_those_that_there_are(page: str) -> None:
    known = {f"RUNYARD_{name.upper()}" for name in Settings.model_fields} | OF_COMMANDS
    assert set(_SETTING.findall(TEXTS[page])) <= known


PACKAGES = {"runyard_gateway", "runyard_workers", "runyard_agents"}
COOKIES = {"runyard_seat"}


@pytest.mark.parametrize("page", PAGES)
def test_metrics_are_those_that_there_are(page: str) -> None:
    known = {name for name, _, _ in declared()} | PACKAGES | COOKIES
    for name, more in re.findall(r"\b(runyard_[a-z_]+)(\*?)", TEXTS[page]):
        assert any(it.startswith(name) for it in known) if more else name in known, name


@pytest.mark.parametrize("page", [page for page in PAGES if any(command.variables for command in commands(page))])
def test_settings_of_blocks_can_be_read(page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for command in commands(page):
        with monkeypatch.context() as environment:
            for name, value in {**NEEDED, **command.variables}.items():
                environment.setenv(name, value)
            Settings.load()


# Blocks --------------------------------------------------------------------------------------------------------------

HERE = "unit/test_docs_pages.py"
BLOCKS = "unit/test_docs_blocks.py"
DEV = "integration/test_roles_apart.py"
HELD: dict[tuple[str, str], tuple[str, ...]] = {
    ("README.md", "bash"): (DEV, "unit/test_docs.py"),
    ("README.md", "python"): (DEV, "unit/test_docs.py", "unit/test_docs_testing.py"),
    ("README.md", "text"): (BLOCKS,),
    ("ARCHITECTURE.md", ""): (),  # the drawing of the processes
    ("docs/agents.md", "python"): ("unit/test_docs_agents.py",),
    ("docs/agents.md", "text"): ("unit/test_docs_agents.py",),
    ("docs/brokers.md", "bash"): (HERE,),
    ("docs/cli.md", "bash"): (DEV,),
    ("docs/client.md", "python"): (DEV,),
    ("docs/connections.md", "ini"): (BLOCKS,),
    ("docs/deploy.md", "bash"): ("deploy/test_guide.py",),
    ("docs/deploy.md", "dockerfile"): ("deploy/test_guide.py",),
    ("docs/deploy.md", "yaml"): ("deploy/test_guide.py",),
    ("docs/errors.md", "json"): (BLOCKS,),
    ("docs/fsck.md", "bash"): (HERE,),
    ("docs/functions.md", "json"): (BLOCKS,),
    ("docs/functions.md", "python"): (BLOCKS,),
    ("docs/http.md", "bash"): (DEV,),
    ("docs/operations.md", "bash"): ("deploy/test_operations.py",),
    ("docs/reliability.md", "bash"): (HERE,),
    ("docs/reliability.md", "text"): (BLOCKS,),
    ("docs/run-states.md", "mermaid"): ("unit/test_runs.py",),
    ("docs/scaling.md", ""): (BLOCKS,),
    ("docs/scaling.md", "json"): (BLOCKS,),
    ("docs/scaling.md", "python"): (BLOCKS,),
    ("docs/scaling.md", "sh"): (HERE, BLOCKS),
    ("docs/security.md", ""): (BLOCKS,),
    ("docs/security.md", "bash"): (BLOCKS,),
    ("docs/security.md", "json"): (BLOCKS,),
    ("docs/streaming.md", ""): (BLOCKS,),
    ("docs/streaming.md", "js"): ("browser/test_event_source.py",),
    ("docs/streaming.md", "python"): (BLOCKS,),
    ("docs/testing.md", "bash"): (HERE,),
    ("docs/testing.md", "python"): ("unit/test_docs_testing.py",),
    ("docs/traces.md", "bash"): (BLOCKS,),
    ("docs/upgrade.md", "bash"): (HERE,),
    ("docs/upgrade.md", "sql"): ("contract/store/test_migrations.py",),
}
"""Pages, by the language of their blocks: the tests that hold them. A block that is new in one is held by its test, or
stands here with another.
"""


def test_each_block_is_held_by_a_test() -> None:
    assert {(page, language) for page in PAGES for language, _ in all_blocks(page)} == set(HELD)
    for (page, _), tests in HELD.items():
        for test in tests:
            words = "tests.readme" if page == "README.md" else page.removeprefix("docs/")
            assert words in (ROOT / "tests" / test).read_text(), f"{test} says nothing of {page}"
