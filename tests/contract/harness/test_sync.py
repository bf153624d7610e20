"""The harness in tests that are not async, by `with` and by pytest's fixture, and without pytest."""

import asyncio
import importlib
import subprocess
import sys
from collections.abc import Callable

import pytest
from tests.contract.harness.desk import Desk

from runyard import RunContext, agent, function, tool
from runyard.testing import ScriptError, SyncHarness
from runyard.testing import harness as open_harness

pytest_plugins = ["pytester"]

Harnesses = Callable[..., SyncHarness]


def test_the_same_without_await() -> None:
    desk = Desk()
    with open_harness(desk.agent()) as h:
        h.model.says("I pay.").calls("refund", order="1").says("Paid.")
        h.after(tool="refund").crash()
        result = h.run("Refund it", user_id="ada")
        h.model.says("Bye.")
        h.hand_over()
        again = h.run("Thanks", continues=result)
    assert (result.text, result.calls[0].is_error, len(desk.paid)) == ("Paid.", True, 1)
    assert again.run.user_id == "ada"


def test_a_run_goes_on_while_the_test_waits() -> None:
    @tool
    async def wait(ctx: RunContext) -> str:
        await ctx.cancelled.wait()
        return "stopped"

    with open_harness(agent(tools=[wait])) as h:
        h.model.says("I wait.").calls("wait")
        run = h.start("go")
        assert run.until("tool_start").data["name"] == "wait"
        run.steer("hurry")
        run.cancel()
        result = run.result()
        assert list(run.frames()) == result.frames
    assert (result.status, run.run_id) == ("cancelled", result.run_id)


def test_a_tool_in_a_thread_lets_its_worker_die() -> None:
    acted: list[str] = []

    @tool(idempotent=True)
    def act() -> str:
        acted.append("begun")
        if len(acted) == 1:
            h.crash()
        return "done"

    with open_harness(agent(tools=[act])) as h:
        h.crash()
        h.model.calls("act").says("Done.")
        assert h.run("go").calls[0].result == "done"
    assert acted == ["begun", "begun"]


def test_the_fixture_opens_and_closes(harness: Harnesses) -> None:
    h, other = harness(Desk().agent()), harness(Desk().agent())
    h.model.says("one")
    other.model.says("two")
    assert [h.run("go").text, other.run("go").text] == ["one", "two"]


def test_a_function_by_the_fixture(harness: Harnesses) -> None:
    @function
    def double(number: int) -> int:
        return 2 * number

    assert harness(double).call(double, {"number": 4}).output == 8


def test_inside_of_an_event_loop_it_says_what_to_write() -> None:
    async def test() -> None:
        with open_harness(Desk().agent()):
            raise AssertionError("it was opened")

    with pytest.raises(TypeError, match=r"`async with harness\(\.\.\.\)`"):
        asyncio.run(test())


def test_before_it_is_open_it_says_how_to_open_it() -> None:
    with pytest.raises(AttributeError, match=r"model: open it first, `with harness\(\.\.\.\) as h`"):
        _ = open_harness(Desk().agent()).model


def test_a_block_that_fails_tells_what_the_agent_did() -> None:
    def failing_test() -> None:
        with open_harness(Desk().agent()) as h:
            h.model.calls("refund", order="7").says("Paid.")
            result = h.run("Refund 7")
            assert result.text == "Refunded."

    with pytest.raises(AssertionError) as caught:
        failing_test()
    told = "\n".join(caught.value.__notes__)
    assert "agent inv_" in told
    assert '  assistant calls refund {"order":"7"}\n  user      result \'order 7 is paid back\'\n' in told


TESTS = """
from runyard import agent
from runyard.testing import harness as open_harness

def test_that_fails(harness):
    h = harness(agent())
    h.model.says("never asked for")
    h.model.says("either")
    assert h.run("go").text == "something else"

def test_that_forgets(harness):
    harness(agent()).model.says("never asked for")

async def test_async(harness):
    harness(agent())

def test_nothing_is_opened(harness):
    pass
"""


def test_the_fixture_tells_of_failures_once(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(TESTS)
    pytester.makeconftest("import pytest\n@pytest.fixture\ndef anyio_backend(): return 'asyncio'\n")
    ran = pytester.runpytest_inprocess("-p", "no:cacheprovider", "-m", "not none", "-q")
    ran.assert_outcomes(passed=2, failed=2, errors=1)
    ran.stdout.fnmatch_lines(["*What the agent did*", "agent inv_*: completed", "  assistant 'never asked for'"])
    ran.stdout.fnmatch_lines(
        ["*ERROR at teardown of test_that_forgets*", "*0 of 1 turns of the script were asked for*"]
    )
    ran.stdout.no_fnmatch_line("*ERROR at teardown of test_that_fails*")


SCRIPT = """
import sys
from runyard import agent, tool
from runyard.testing import harness

@tool
def look(what: str) -> str:
    return what.upper()

with harness(agent(tools=[look])) as h:
    h.model.calls(look, what="a").says("done")
    print(h.run("go").calls[0].result)
print(sorted({"pytest", "anthropic", "dramatiq", "starlette", "alembic"} & set(sys.modules)))
"""


def test_it_works_without_pytest_and_imports_no_part_that_it_does_not_need() -> None:
    ran = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True, timeout=60)
    assert ran.stdout.splitlines()[-2:] == ["A", "[]"]


def test_the_plugin_costs_whoever_has_it_nothing() -> None:
    program = (
        "import sys, runyard_workers.testing.plugin; print({'runyard', 'pydantic', 'sqlalchemy'} & {*sys.modules})"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert ran.stdout == "set()\n"


def test_without_the_workers_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name == "runyard.testing" or name.startswith("runyard_workers")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "runyard_workers", None)
    with pytest.raises(ImportError, match=r"pip install 'runyard\[testing\]'"):
        importlib.import_module("runyard.testing")


def test_a_script_error_is_a_failed_assertion() -> None:
    assert issubclass(ScriptError, AssertionError)
