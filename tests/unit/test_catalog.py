"""Loading a folder of agent files."""

import ast
import sys
import textwrap
from collections import Counter

import orjson
import pytest

from runyard.errors import StartError
from runyard_workers.catalog import load_folder

AGENT = """
from runyard import agent, tool

@tool
def search(query: str) -> str:
    return query

it = agent(system="You help.", tools=[search])
"""


@pytest.fixture
def folder(tmp_path):
    yield tmp_path
    for name in [name for name in sys.modules if name.partition(".")[0] == "runyard_agents"]:
        del sys.modules[name]


def write(folder, **files):
    for name, source in files.items():
        (folder / f"{name}.py").write_text(textwrap.dedent(source))


def load(folder):
    catalog = load_folder(folder)
    assert catalog.problems == ()
    return catalog


def only_problem(folder):
    catalog = load_folder(folder)
    (problem,) = catalog.problems
    return catalog, problem


def test_a_file_is_an_agent_of_its_name(folder):
    write(folder, researcher=AGENT, units_2=AGENT)
    catalog = load(folder)
    assert list(catalog.agents) == ["researcher", "units_2"]
    loaded = catalog.agents["researcher"]
    assert loaded.name == "researcher"
    assert loaded.path == (folder / "researcher.py").resolve()
    assert loaded.agent.system == "You help."
    assert dict(loaded.manifest) == loaded.agent.manifest("researcher")
    assert len(loaded.version) == 12
    assert int(loaded.version, 16) >= 0
    with pytest.raises(TypeError):
        catalog.agents["other"] = loaded


def test_nothing_is_written_into_the_folder(folder):
    write(folder, _shared="X = 1", researcher=AGENT)
    load(folder)
    assert sorted(path.name for path in folder.iterdir()) == ["_shared.py", "researcher.py"]


@pytest.mark.parametrize(
    "statement",
    [
        "from runyard_agents import _prompts",
        "from . import _prompts",
        "import runyard_agents._prompts as _prompts",
        "from ._prompts import SYSTEM as _s; import runyard_agents._prompts as _prompts",
    ],
)
def test_files_import_each_other(folder, statement):
    write(
        folder,
        _prompts="SYSTEM = 'You help.'",
        researcher=f"from runyard import agent\n{statement}\nit = agent(system=_prompts.SYSTEM)",
    )
    assert load(folder).agents["researcher"].agent.system == "You help."


def test_a_package_of_helpers(folder):
    (folder / "_lib").mkdir()
    (folder / "_lib" / "__init__.py").write_text("from ._words import SYSTEM\n")
    (folder / "_lib" / "_words.py").write_text("SYSTEM = 'You help.'\n")
    write(folder, researcher="from runyard import agent\nfrom ._lib import SYSTEM\nit = agent(system=SYSTEM)")
    before = load(folder).agents["researcher"]
    assert before.agent.system == "You help."
    (folder / "_lib" / "_words.py").write_text("SYSTEM = 'You help.'  # the same\n")
    assert load(folder).agents["researcher"].version != before.version


def test_a_users_own_modules_do_not_collide(folder, monkeypatch):
    own = folder / "project"
    (own / "agents").mkdir(parents=True)
    (own / "agents" / "__init__.py").write_text("NAME = 'the package agents'\n")
    (own / "shared.py").write_text("NAME = 'the module shared'\n")
    monkeypatch.syspath_prepend(str(own))
    for name in ("agents", "shared"):
        monkeypatch.setitem(sys.modules, name, None)  # what the test imports by that name is gone after it
        del sys.modules[name]
    files = folder / "agents"
    files.mkdir()
    source = "import agents, json, shared\nfrom runyard import agent\nit = agent(system=agents.NAME + shared.NAME)"
    write(files, researcher=source, shared=AGENT, json=AGENT)
    catalog = load(files)
    assert catalog.agents["researcher"].agent.system == "the package agentsthe module shared"
    assert set(catalog.agents) == {"researcher", "shared", "json"}


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("def broken(:", "SyntaxError"),
        ("import no_such_module", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("from runyard import tool\n@tool\ndef probe(x): ...", "AuthoringError: tool 'probe', parameter 'x'"),
        ("from runyard import agent\nit = agent(max_steps=0)", "AuthoringError: agent(...): max_steps"),
        ("raise ValueError('one\\ntwo')", "ValueError: one"),
        ("raise KeyError()", "KeyError"),
        ("class Panic(BaseException): ...\nraise Panic('in Rust')", "Panic: in Rust"),
        ("x = 1", "found none; begin the file's name with '_' if it is a helper"),
        ("from runyard import agent\na = agent()\nb = agent()", "found 2"),
    ],
)
def test_a_file_that_fails_is_a_problem_and_the_others_go_on(folder, source, words):
    write(folder, broken=source, researcher=AGENT)
    catalog, problem = only_problem(folder)
    assert list(catalog.agents) == ["researcher"]
    assert problem.path == (folder / "broken.py").resolve()
    assert problem.summary.startswith("broken.py: ")
    assert words in problem.summary
    assert "\n" not in problem.summary


def test_a_traceback_begins_in_the_authors_file(folder):
    write(folder, broken="def fail():\n    1 / 0\n\nfail()", researcher=AGENT)
    _, problem = only_problem(folder)
    lines = problem.traceback_text.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert "broken.py" in lines[1]
    assert lines[-1] == "ZeroDivisionError: division by zero"
    assert "importlib" not in problem.traceback_text


def test_a_mistake_that_is_told_in_words_shows_the_authors_line_and_not_ours(folder):
    write(folder, broken="from runyard import tool\n@tool\ndef probe(x: object()): ...", researcher=AGENT)
    _, problem = only_problem(folder)
    assert "tool 'probe', parameter 'x'" in problem.summary
    assert "broken.py" in problem.traceback_text.splitlines()[1]
    assert "pydantic/" not in problem.traceback_text


@pytest.mark.parametrize(
    "statement", ["import _prices", "from {folder}._prices import X", "from helpers.tax import VAT"]
)
def test_an_import_that_lacks_its_dot_is_told_how_it_is_written(folder, statement):
    (folder / "helpers").mkdir()
    write(folder, _prices="X = 1", broken=statement.format(folder=folder.name), researcher=AGENT)
    _, problem = only_problem(folder)
    assert problem.summary.endswith("imported with a dot, like `from ._prices import PRICES`")


def test_ctrl_c_is_no_problem_of_the_file(folder):
    write(folder, slow="raise KeyboardInterrupt")
    with pytest.raises(KeyboardInterrupt):
        load_folder(folder)


@pytest.mark.parametrize("name", ["my-agent", "Researcher", "1st", "ünit", "x" * 65])
def test_a_file_name_that_is_no_agent_name(folder, name):
    write(folder, **{name: "raise AssertionError('not imported')", "researcher": AGENT})
    catalog, problem = only_problem(folder)
    assert list(catalog.agents) == ["researcher"]
    assert "rename the file" in problem.summary


def test_two_names_for_one_agent_are_one(folder):
    write(folder, researcher=AGENT + "\nalias = it\n")
    assert list(load(folder).agents) == ["researcher"]


def test_an_agent_of_another_file_may_be_imported(folder):
    write(
        folder,
        summarizer=AGENT,
        researcher="from runyard import agent\nfrom runyard_agents.summarizer import it\nmine = agent(system='I.')",
    )
    catalog = load(folder)
    assert catalog.agents["researcher"].agent.system == "I."
    assert catalog.agents["summarizer"].agent.system == "You help."


def test_an_agent_made_by_a_helper_belongs_to_the_file(folder):
    write(
        folder,
        _make="from runyard import agent\ndef make(words): return agent(system=words)",
        a="from ._make import make\nit = make('a')",
        b="from ._make import make\nit = make('b')",
    )
    assert {name: loaded.agent.system for name, loaded in load(folder).agents.items()} == {"a": "a", "b": "b"}


def test_dunder_files_and_other_files_are_not_looked_at(folder):
    write(folder, __init__="raise AssertionError", __main__="raise AssertionError", researcher=AGENT)
    (folder / ".#researcher.py").symlink_to("ada@host.1234")  # Emacs, while the file is edited
    (folder / "._researcher.py").write_bytes(b"\0")  # macOS, on a foreign disk
    (folder / "notes.txt").write_text("hello")
    (folder / "data").mkdir()
    assert list(load(folder).agents) == ["researcher"]


@pytest.mark.parametrize("make", ["missing", "file", "empty", "helpers"])
def test_a_folder_without_agents_names_the_setting(folder, make):
    place = folder / "agents"
    match make:
        case "file":
            place.write_text("")
        case "empty":
            place.mkdir()
        case "helpers":
            place.mkdir()
            write(place, _shared="X = 1")
    with pytest.raises(StartError, match="RUNYARD_AGENTS"):
        load_folder(place)


LIFESPAN = """
from runyard import lifespan

@lifespan
async def {name}():
    yield {{"{name}": 1}}
"""


def test_lifespans_come_from_every_file_once(folder):
    write(
        folder,
        _database=LIFESPAN.format(name="database"),
        _unused=LIFESPAN.format(name="unused"),
        researcher=AGENT + LIFESPAN.format(name="cache") + "from ._database import database\nsame = database\n",
    )
    assert [span.name for span in load(folder).lifespans] == [
        "runyard_agents._database.database",
        "runyard_agents._unused.unused",
        "runyard_agents.researcher.cache",
    ]


def test_a_helper_that_fails_is_a_problem(folder):
    write(folder, _broken="1 / 0", researcher=AGENT)
    catalog, problem = only_problem(folder)
    assert list(catalog.agents) == ["researcher"]
    assert problem.summary == "_broken.py: ZeroDivisionError: division by zero"


def version(folder):
    return load(folder).agents["researcher"].version


def test_the_version_is_made_of_what_the_agent_is(folder):
    files = {
        "_used": "from . import _deeper\nX = 1",
        "_deeper": "Y = 1",
        "_unused": "Z = 1",
        "other": AGENT,
        "researcher": AGENT + "\ndef later():\n    from runyard_agents._used import X\n",
    }
    write(folder, **files)
    before = version(folder)
    assert version(folder) == before
    for name in ("_unused", "other"):
        write(folder, **{name: files[name] + "\n# changed\n"})
        assert version(folder) == before
    for name in ("_used", "_deeper", "researcher"):
        write(folder, **{name: files[name] + "\n# changed\n"})
        assert version(folder) != before
        write(folder, **files)
    assert version(folder) == before


def test_the_version_does_not_depend_on_where_the_folder_is(folder):
    versions = []
    for place in ("one", "two"):
        (folder / place).mkdir()
        write(folder / place, _used="X = 1", researcher="from . import _used\n" + AGENT)
        versions.append(version(folder / place))
    assert versions[0] == versions[1]


def test_what_comes_from_outside_the_source_counts(folder):
    (folder / "prompt.txt").write_text("one")
    write(
        folder,
        researcher="""
        from pathlib import Path
        from runyard import agent
        it = agent(system=Path(__file__).with_name("prompt.txt").read_text())
        """,
    )
    before = version(folder)
    (folder / "prompt.txt").write_text("two")
    assert version(folder) != before


def test_loading_again_runs_the_source_of_now(folder):
    for number in range(3):  # the same length, within one second: what cached bytecode would not notice
        write(folder, researcher=f"from runyard import agent\nit = agent(system='v{number}')")
        assert load(folder).agents["researcher"].agent.system == f"v{number}"


def test_a_manifest_is_json(folder):
    write(folder, researcher=AGENT)
    manifest = dict(load(folder).agents["researcher"].manifest)
    assert orjson.loads(orjson.dumps(manifest)) == manifest


def test_models_defined_in_the_file_may_refer_to_themselves(folder):
    write(
        folder,
        researcher="""
        from __future__ import annotations
        from pydantic import BaseModel
        from runyard import RunContext, agent, tool

        class Node(BaseModel):
            children: list[Node] = []

        @tool
        def walk(ctx: RunContext, root: Node, depth: int | None = None) -> str:
            return ""

        it = agent(tools=[walk])
        """,
    )
    (walk,) = load(folder).agents["researcher"].agent.tools
    assert walk.context_parameter == "ctx"
    assert walk.arguments({"root": {"children": [{}]}})["root"].children[0].children == []


FUNCTION = """
from runyard import function

@function
def {name}() -> int:
    return 1
"""


def test_functions_come_from_every_file(folder):
    write(
        folder,
        _shared=FUNCTION.format(name="shared"),
        errands=FUNCTION.format(name="errand"),
        researcher=AGENT + FUNCTION.format(name="beside") + "from ._shared import shared\n",
    )
    catalog = load(folder)
    assert list(catalog.agents) == ["researcher"]
    assert {name: loaded.path.name for name, loaded in catalog.functions.items()} == {
        "fn:shared": "_shared.py",
        "fn:errand": "errands.py",
        "fn:beside": "researcher.py",
    }
    errand = catalog.functions["fn:errand"]
    assert dict(errand.manifest) == errand.function.manifest()
    assert set(catalog.loaded) == {*catalog.agents, *catalog.functions}


def test_a_function_belongs_to_the_file_that_makes_it(folder):
    write(
        folder,
        aaa="from runyard_agents.zzz import errand",
        zzz=FUNCTION.format(name="errand"),
    )
    catalog, problem = only_problem(folder)
    assert problem.path.name == "aaa.py", "it holds nothing of its own"
    assert catalog.functions["fn:errand"].path.name == "zzz.py"
    before = catalog.functions["fn:errand"].version
    write(folder, aaa=AGENT + "from runyard_agents.zzz import errand\n")
    assert load(folder).functions["fn:errand"].version == before
    write(folder, zzz=FUNCTION.format(name="errand") + "# changed\n")
    assert load(folder).functions["fn:errand"].version != before


def test_a_file_that_many_share_is_parsed_once(folder, monkeypatch):
    """Each function of a helper was looked up through every file that imports it."""
    parsed = Counter()
    parse = ast.parse

    def counting(source, *options, **more):
        parsed[source] += 1
        return parse(source, *options, **more)

    shared = "from runyard import function\n@function\ndef {name}() -> int: return 1\n"
    agents = {f"a{number}": AGENT + "from ._shared import one, two\n" for number in range(3)}
    write(folder, _shared=shared.format(name="one") + shared.format(name="two"), **agents)
    monkeypatch.setattr(ast, "parse", counting)
    assert set(load(folder).functions) == {"fn:one", "fn:two"}
    assert parsed[(folder / "_shared.py").read_bytes()] == 1


def test_two_functions_of_one_name_are_a_problem(folder):
    write(folder, errands=FUNCTION.format(name="same"), others=FUNCTION.format(name="same"))
    catalog, problem = only_problem(folder)
    assert problem.summary == "others.py: a function is named 'same', and one in errands.py is, too"
    assert catalog.functions["fn:same"].path.name == "errands.py"


def test_a_folder_may_hold_functions_alone(folder):
    write(folder, _errands=FUNCTION.format(name="errand"))
    assert (dict(load(folder).agents), list(load(folder).functions)) == ({}, ["fn:errand"])


def test_a_function_is_an_agents_tool_as_well(folder):
    write(folder, researcher=AGENT.replace("@tool", "@function").replace("agent, tool", "agent, function"))
    catalog = load(folder)
    assert catalog.agents["researcher"].manifest["tools"][0]["name"] == "search"
    assert list(catalog.functions) == ["fn:search"]
