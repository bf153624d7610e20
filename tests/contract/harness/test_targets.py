"""What a harness takes: objects, files and folders, the way authors have them."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.contract.harness.desk import Desk

from runyard import tool
from runyard.errors import AgentMismatch, StartError
from runyard.testing import harness, load

pytestmark = pytest.mark.anyio

AGENTS = Path(__file__).parents[3] / "agents"

SHOP = """
from runyard import agent, function, tool
from ._stock import STOCK

@tool
async def count(ctx_item: str) -> int:
    return STOCK[ctx_item]

@function
def restock(item: str, number: int) -> int:
    STOCK[item] += number
    return STOCK[item]

shop = agent(system="You sell.", tools=[count])
"""
STOCK = """
from runyard import lifespan
STOCK = {"pears": 3}
opened = []

@lifespan
async def till():
    opened.append("till")
    yield {"till": "open"}
    opened.append("closed")
"""
GUIDE = """
from runyard import RunContext, agent

def system(ctx: RunContext) -> str:
    return f"The till is {ctx.resources['till']}."

guide = agent(system=system)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "shop.py").write_text(SHOP)
    (tmp_path / "_stock.py").write_text(STOCK)
    (tmp_path / "guide.py").write_text(GUIDE)
    yield tmp_path
    for name in [name for name in sys.modules if name.partition(".")[0] == "runyard_agents"]:
        del sys.modules[name]


async def test_a_file_is_its_agent_with_the_lifespans_of_its_folder(folder: Path) -> None:
    async with harness(folder / "shop.py") as h:
        h.model.calls("count", ctx_item="pears").says("Three.")
        result = await h.run("How many pears?")
        assert load(folder / "shop.py").STOCK is load(folder / "_stock.py").STOCK
        assert load(folder / "_stock.py").opened == ["till"]
    assert (result.run.agent, result.calls[0].result) == ("shop", "3")
    assert load(folder / "_stock.py").opened == ["till", "closed"]


async def test_a_folder_has_several_agents_and_functions(folder: Path) -> None:
    async with harness(str(folder)) as h:
        h.model.says("Welcome.").says("We sell.")
        guided = await h.run("hi", agent="guide")
        await h.run("hi", agent="shop")
        assert h.model.requests[0].system == "The till is open."
        assert (await h.call("restock", {"item": "pears", "number": 2})).output == 5
        with pytest.raises(AgentMismatch):
            await h.run("hi", agent="shop", continues=guided)
        with pytest.raises(LookupError, match=r"say which agent runs, .*: there are guide, shop"):
            await h.run("hi")
        with pytest.raises(LookupError, match="no agent is named 'sale': there are guide, shop"):
            await h.run("hi", agent="sale")


async def test_resources_take_the_place_of_the_lifespans(folder: Path) -> None:
    async with harness(folder / "guide.py", resources={"till": "shut"}) as h:
        h.model.says("Come back later.")
        await h.run("hi")
    assert h.model.requests[0].system == "The till is shut."
    assert load(folder / "_stock.py").opened == []


async def test_what_a_test_replaces_in_a_module_is_replaced_for_the_agent(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(load(folder / "shop.py"), "STOCK", {"pears": 99})
    async with harness(folder / "shop.py") as h:
        h.model.calls("count", ctx_item="pears").says("Many.")
        assert (await h.run("How many?")).calls[0].result == "99"


async def test_a_folder_is_imported_anew_when_another_one_was_meanwhile(folder: Path, tmp_path: Path) -> None:
    first = load(folder / "shop.py")
    assert load(folder / "shop.py") is first
    other = tmp_path / "other"
    other.mkdir()
    (other / "shop.py").write_text(GUIDE)
    assert load(other / "shop.py").guide is not None
    assert load(folder / "shop.py") is not first


async def test_a_broken_file_is_told_with_its_traceback_and_the_others_are_not_held_up(folder: Path) -> None:
    (folder / "broken.py").write_text("limit = 1 / 0\n")
    for target in (folder / "broken.py", folder):
        with pytest.raises(StartError, match=r"(?s)broken\.py: ZeroDivisionError.*line 1"):
            harness(target)
    with pytest.raises(StartError, match=r"broken\.py"):
        load(folder / "broken.py")
    async with harness(folder / "shop.py") as h:
        h.model.says("We sell.")
        assert (await h.run("hi")).status == "completed"


def lonely() -> None: ...


def test_what_is_not_there(folder: Path) -> None:
    with pytest.raises(StartError, match=r"there is no file .*nowhere\.py"):
        harness(folder / "nowhere.py")
    with pytest.raises(TypeError, match="takes an agent, a function, or the path of a file or folder, not 3"):
        harness(3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"a tool runs in an agent: harness\(agent\(tools=\[lonely\]\)\)"):
        harness(tool(lonely))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="a letter first: not 'The Agent'"):
        harness(Desk().agent(), name="The Agent")


# The examples --------------------------------------------------------------------------------------------------------


async def test_the_researcher_searches_its_library() -> None:
    async with harness(AGENTS / "researcher.py") as h:
        h.model.says("I look.").calls("search_docs", query="idempotency keys", limit=2)
        h.model.says("Send a key with each payment (retries.md).")
        result = await h.run("How do I retry a payment?")
    (found,) = result.events("searched")
    assert found == {"query": "idempotency keys", "hits": 2}
    assert "retries.md" in str(h.model.requests[0].system)


async def test_an_example_is_imported_as_an_author_would() -> None:
    from agents.converter import converter

    async with harness(converter, name="converter") as h:
        h.model.calls("convert", amount=5, from_unit="miles", to_unit="km").says("8.05 km.")
        assert (await h.run("5 miles?")).calls[0].result == "5 miles = 8.04672 km"


async def test_the_loan_plan_is_called() -> None:
    async with harness(AGENTS / "loan_plan.py") as h:
        plan = await h.call("loan_plan", {"amount": 1200, "years": 1, "rate_percent": 0})
        refused = await h.call("loan_plan", {"amount": 1, "years": 1, "rate_percent": 0})
    assert plan.output["monthly"] == 100
    assert refused.error is not None
    assert refused.error["code"] == "NO_SUCH_LOAN"
