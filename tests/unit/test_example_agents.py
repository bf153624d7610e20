"""The agents that ship in `agents/`: their tools called directly, and the demo model driving each through two steps."""

import ast
import inspect
import sys
from itertools import pairwise, permutations
from pathlib import Path
from types import SimpleNamespace

import pytest
import structlog
from tests.fakes.contexts import RecordingSink

from runyard import Refused, RunContext
from runyard.authoring.cancellation import Cancellation
from runyard.authoring.errors import InvalidToolInput
from runyard.authoring.lifespan import open_resources
from runyard.authoring.rooms import Rooms
from runyard.authoring.stream import Stream
from runyard.blocks import text_of, tool_result, tool_uses
from runyard.ids import new_invocation_id, new_run_id
from runyard_workers.catalog import load_folder
from runyard_workers.providers.demo import DemoProvider
from runyard_workers.providers.model import ModelRequest, Turn
from runyard_workers.results import describe_exception, error_result, to_result

AGENTS = Path(__file__).parents[2] / "agents"
SOURCES = sorted(AGENTS.rglob("*.py"))
TEXTS = sorted((AGENTS / "_library" / "texts").glob("*.md"))

pytestmark = pytest.mark.anyio


class Recorder:
    """A sink that keeps what the tools stream."""

    def __init__(self):
        self.frames = []

    def output(self, text):
        self.frames.append(text)

    def event(self, name, data):
        self.frames.append((name, data))


@pytest.fixture(scope="module")
def catalog():
    loaded = load_folder(AGENTS)
    assert loaded.problems == ()
    yield loaded
    for name in [name for name in sys.modules if name.partition(".")[0] == "runyard_agents"]:
        del sys.modules[name]


@pytest.fixture
async def desk(catalog):
    """`call(tool, **arguments)` as a worker would call it, with what the tools wrote in `frames`."""
    sink = Recorder()
    async with open_resources(catalog.lifespans) as resources:
        context = RunContext(
            run_id=new_run_id(),
            session_id=None,
            invocation_id=new_invocation_id(),
            agent="test",
            user_id="dev",
            tenant_id="default",
            roles=frozenset(),
            metadata={},
            context=None,
            call_id="toolu_1",
            idempotency_key="key",
            cancelled=Cancellation(),
            stream=Stream(sink),
            rooms=Rooms(RecordingSink()),
            resources=resources,
            log=structlog.get_logger(),
        )
        tools = {tool.name: tool for loaded in catalog.agents.values() for tool in loaded.agent.tools}
        tools |= {loaded.function.name: loaded.function for loaded in catalog.functions.values()}

        async def call(name, **given):
            tool = tools[name]
            arguments = tool.arguments(given)
            if tool.context_parameter is not None:
                arguments[tool.context_parameter] = context
            returned = tool.handler(**arguments)
            return await returned if inspect.isawaitable(returned) else returned

        yield SimpleNamespace(call=call, context=context, frames=sink.frames, agents=catalog.agents)


def test_the_folder_holds_two_agents_whose_tools_only_read(catalog):
    assert list(catalog.agents) == ["converter", "researcher"]
    assert [span.name for span in catalog.lifespans] == ["runyard_agents.researcher.library"]
    assert list(catalog.functions) == ["fn:loan_plan"]
    for loaded in catalog.agents.values():
        for tool in loaded.manifest["tools"]:
            assert tool["description"]
            assert tool["idempotent"]
            assert all(part.get("description") for part in tool["inputSchema"]["properties"].values()), tool["name"]


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.relative_to(AGENTS).as_posix())
def test_nothing_is_imported_but_the_standard_library_and_runyard(source):
    imported = set()
    for node in ast.walk(ast.parse(source.read_bytes())):
        match node:
            case ast.Import(names=names):
                imported |= {alias.name.partition(".")[0] for alias in names}
            case ast.ImportFrom(level=0, module=str(module)):
                imported.add(module.partition(".")[0])
    assert imported <= sys.stdlib_module_names | {"runyard"}


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.relative_to(AGENTS).as_posix())
def test_no_text_is_run_as_code(source):
    names = {node.id for node in ast.walk(ast.parse(source.read_bytes())) if isinstance(node, ast.Name)}
    assert names.isdisjoint({"eval", "exec", "compile", "__import__"})


# The researcher ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.name)
def test_a_text_has_a_title_a_summary_and_sections(path):
    lines = path.read_text().splitlines()
    assert lines[0].startswith("# ")
    assert lines[2]
    assert sum(line.startswith("## ") for line in lines) >= 3
    assert sum(line.startswith("# ") for line in lines) == 1
    assert max(map(len, lines)) <= 120


@pytest.mark.parametrize(
    ("question", "path", "section"),
    [
        ("How do I retry a payment without charging twice?", "idempotency.md", "Why it is needed"),
        ("why jitter?", "retries.md", "Backoff and jitter"),
        ("zombie worker writes after its lease expired", "leases.md", "The zombie"),
        ("how many slots do I need for 200 requests per second", "capacity.md", "Little's law"),
        ("Which alerts should wake somebody?", "alerts.md", "Alert on symptoms"),
        ("changing the database schema", "deployments.md", "Changing a schema"),
        ("two consumers got the same message", "queues.md", "Delivery is at least once"),
        ("dead letters", "queues.md", "Dead letters"),
    ],
)
async def test_a_question_finds_the_section_that_answers_it(desk, question, path, section):
    best, *_ = await desk.call("search_docs", query=question)
    assert (best["path"], best["section"]) == (path, section)
    assert set(best) == {"title", "section", "path", "text"}


async def test_the_forms_of_a_word_find_the_same(desk):
    found = [await desk.call("search_docs", query=word) for word in ("retries", "retrying", "Retried", "RETRY")]
    assert found[0]
    assert all(one == other for one, other in pairwise(found))


async def test_a_search_tells_the_reader_what_it_found(desk):
    found = await desk.call("search_docs", query="timeouts", limit=2)
    assert len(found) == 2
    assert desk.frames == [("searched", {"query": "timeouts", "hits": 2})]


@pytest.mark.parametrize("query", ["What can you do?", "quantum chromodynamics", "", "?!"])
async def test_a_search_without_a_hit_says_what_there_is(desk, query):
    assert "Idempotency" in await desk.call("search_docs", query=query)


@pytest.mark.parametrize("limit", [0, -1, 21])
async def test_a_limit_that_cannot_be_is_refused(desk, limit):
    with pytest.raises(ValueError, match="limit must be from 1 to 20"):
        await desk.call("search_docs", query="timeouts", limit=limit)


async def test_a_document_is_read_as_a_whole(desk):
    text = await desk.call("read_doc", path="retries.md")
    assert text == (AGENTS / "_library" / "texts" / "retries.md").read_text().strip()
    assert desk.frames == ["Reading Retries\n"]


@pytest.mark.parametrize(
    ("path", "hint"),
    [("retrys.md", "did you mean retries.md?"), ("../../researcher.py", "there are alerts.md,"), ("", "there are")],
)
async def test_a_document_that_is_not_there_is_answered_with_those_that_are(desk, path, hint):
    with pytest.raises(LookupError, match="there is no document") as caught:
        await desk.call("read_doc", path=path)
    assert hint in str(caught.value)


async def test_the_list_and_the_instructions_name_every_document(desk):
    listed = await desk.call("list_docs")
    assert [item["path"] for item in listed] == [path.name for path in TEXTS]
    assert all(item["title"] and item["summary"] for item in listed)
    prompt = desk.agents["researcher"].agent.system(desk.context)
    assert all(f"{item['title']} ({item['path']})" in prompt for item in listed)


# The converter -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expression", "result"),
    [
        ("12 * (3 + 4)", "84"),
        ("2^3^2", "512"),
        ("-2^2", "-4"),
        ("2**-1", "0.5"),
        ("0.1 + 0.2", "0.3"),
        ("7 / 2", "3.5"),
        ("2^64", "18446744073709551616"),
        ("1e3 + .5", "1000.5"),
        ("100 × 3 ÷ 4 − 5", "70"),
        ("15% of 80", "12"),
        ("80 + 50%", "80.5"),
        ("sqrt(2)^2", "2"),
        ("round(2.567, 1)", "2.6"),
        ("mod(17, 5)", "2"),
        ("max(1, 3, 2) + min(4, 2)", "5"),
        ("log2(8) + log10(1000)", "6"),
        ("sin(30 deg)", "0.5"),
        ("cos(pi)", "-1"),
        ("2 pi", "6.28318530718"),
        ("2.5 h * 60 km/h", "150 km"),
        ("5 ft + 3 in", "5.25 ft"),
        ("3 km / 12 min", "4.16666666667 m/s"),
        ("10 m / 2 s", "5 m/s"),
        ("5 A * 230 V", "1150 W"),
        ("10 kg * 9.81 m/s^2", "98.1 N"),
        ("sqrt(16 m^2)", "4 m"),
        ("3 m2 + 1 m²", "4 m^2"),
        ("60 miles per hour * 2 hours", "120 miles"),
        ("max(3 m, 2 ft)", "3 m"),
        ("1 km - 1000 m", "0 km"),
    ],
)
async def test_expressions(desk, expression, result):
    assert await desk.call("calculate", expression=expression) == f"{expression} = {result}"


async def test_a_result_is_told_in_the_unit_that_is_asked_for(desk):
    assert await desk.call("calculate", expression="300 K", result_in="°C") == "300 K = 26.85 °C"
    assert await desk.call("calculate", expression="1 GB / (100 Mbit/s)", result_in="s") == "1 GB / (100 Mbit/s) = 80 s"


@pytest.mark.parametrize(
    ("expression", "hint"),
    [
        ("", "a number or a unit is expected at the end"),
        ("2 +", "a number or a unit is expected at the end"),
        ("(2 + 3", r'a "\)" is missing at the end'),
        ("2 + 3)", r'there is a "\)" without its "\("'),
        ("1,000 * 3", "write 1000, not 1,000"),
        ("17 % 5", r"mod\(a, b\) for a remainder"),
        ("5 ft 3 in", 'an operator is missing between "ft" and "3"'),
        ("5 km in miles", "use `result_in` for it"),
        ("1 / (2 - 2)", "division by zero"),
        ("0^-1", "zero has no negative power"),
        ("sqrt(-1)", "no real number"),
        ("ln(0)", "ln has no value at 0"),
        ("exp(1000)", "exp is too large"),
        ("9^9^9", "the result is too large"),
        ("1e308 * 10", "the result is too large"),
        ("1 km + 1 m^2", "length and area cannot be added"),
        ("max(3 m, 2 s)", "length and time cannot be compared"),
        ("2^(3 m)", "an exponent must be a plain number, not length"),
        ("5 km^0.5", "has no whole units"),
        ("20 °C + 5 °C", "calculate in K"),
        ("5 mille", "did you mean mile"),
        ("5 MM", "may mean Mm or mm"),
        ("foo(3)", "there are abs, ceil, cos"),
        ("7!", 'cannot read "!"'),
        ("__import__('os')", "cannot read"),
        ("(" * 60 + "1" + ")" * 60, "nested deeper than 50 levels"),
        ("1+" * 300 + "1", "longer than 500 characters"),
    ],
)
async def test_what_cannot_be_computed_says_how_to_ask_instead(desk, expression, hint):
    with pytest.raises(ValueError, match=hint):
        await desk.call("calculate", expression=expression)


@pytest.mark.parametrize(
    ("amount", "origin", "goal", "result"),
    [
        (5, "miles", "km", 8.04672),
        (1, "nautical mile", "m", 1852),
        (1, "acre", "m^2", 4046.8564224),
        (3, "gallons", "litres", 11.356235352),
        (1, "imperial pint", "ml", 568.26125),
        (1, "lb", "g", 453.59237),
        (1, "troy ounce", "g", 31.1034768),
        (1, "week", "hours", 168),
        (100, "km/h", "m/s", 27.7777777778),
        (10, "square metres", "square feet", 107.639104167),
        (72, "°F", "°C", 22.2222222222),
        (-40, "Celsius", "fahrenheit", -40),
        (0, "K", "degrees Celsius", -273.15),
        (491.67, "R", "C", 0),
        (3000, "rpm", "Hz", 50),
        (1, "atm", "psi", 14.6959487755),
        (760, "torr", "atm", 1),
        (1, "kWh", "MJ", 3.6),
        (1, "hp", "W", 745.699871582),
        (1, "TB", "GiB", 931.322574615),
        (100, "Mbps", "MB/s", 12.5),
        (2000, "mAh", "coulombs", 7200),
        (180, "degrees", "rad", 3.14159265359),
        (30, "mpg", "L/100km", 7.84048611111),
        (1, "KM", "Metres", 1000),
        (5, "\N{GREEK SMALL LETTER MU}m", "\N{MICRO SIGN}m", 5),
    ],
)
async def test_conversions(desk, amount, origin, goal, result):
    told = await desk.call("convert", amount=amount, from_unit=origin, to_unit=goal)
    assert told.endswith(f" {goal}")
    assert float(told.removesuffix(f" {goal}").rpartition("= ")[2]) == pytest.approx(result, rel=1e-11, abs=1e-9)


@pytest.mark.parametrize(
    ("origin", "goal", "hint"),
    [
        ("km", "kg", 'length cannot be converted into "kg", which is mass'),
        ("furlongs per fortnight", "m/s", 'there is no unit "furlongs"'),
        ("litter", "m^3", "did you mean lit"),
        ("mb", "GB", "may mean MB or Mb"),
        ("square", "m", '"square" must be followed by a unit'),
        ("m", "12", '"12" names no unit'),
        ("m", "0 km", "division by zero"),
    ],
)
async def test_what_cannot_be_converted_says_why(desk, origin, goal, hint):
    with pytest.raises(ValueError, match=hint):
        await desk.call("convert", amount=1, from_unit=origin, to_unit=goal)


async def test_every_listed_unit_converts_into_the_others_of_its_kind_and_back(desk):
    kinds = await desk.call("list_units")
    assert len(kinds) == 20
    for kind, listed in kinds.items():
        assert await desk.call("list_units", kind=kind) == {kind: listed}
        names = [name.partition(" (")[0] for name in listed]
        assert names
        for one, other in permutations(names, 2):
            there = await desk.call("convert", amount=3, from_unit=one, to_unit=other)
            amount = float(there.removesuffix(f" {other}").rpartition("= ")[2])
            back = await desk.call("convert", amount=amount, from_unit=other, to_unit=one)
            assert float(back.removesuffix(f" {one}").rpartition("= ")[2]) == pytest.approx(3, rel=1e-9), (one, other)


async def test_the_kinds_are_part_of_the_schema(desk):
    *_, tool = desk.agents["converter"].manifest["tools"]
    kinds = next(part["enum"] for part in tool["inputSchema"]["properties"]["kind"]["anyOf"] if "enum" in part)
    assert kinds == list(await desk.call("list_units"))
    with pytest.raises(InvalidToolInput, match="kind: must be 'length'"):
        await desk.call("list_units", kind="money")


# The loan plan -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("amount", "years", "rate", "costs"),
    [
        # By the formula of an annuity in floating point; it rounds no payment to the cent.
        (200_000, 30, 6, {"monthly": 1199.10, "interest": 231_676.38}),
        (250_000, 10, 3.9, {"monthly": 2519.26, "interest": 52_311.68}),
        (1200, 1, 0, {"monthly": 100.0, "interest": 0.0}),
    ],
)
async def test_a_loan_is_paid_back_to_the_cent(desk, amount, years, rate, costs):
    plan = await desk.call("loan_plan", amount=amount, years=years, rate_percent=rate)
    assert plan["monthly"] == costs["monthly"]
    assert abs(plan["interest"] - costs["interest"]) < 12 * years * 0.01
    assert round(plan["total"] - plan["interest"], 2) == amount
    lines = "".join(desk.frames).splitlines()
    assert len(lines) == years
    assert lines[-1] == f"After year {years}: 0.00 left to pay"


@pytest.mark.parametrize(
    ("given", "parameter"),
    [
        ({"amount": 0}, "amount"),
        ({"amount": 1e300}, "amount"),
        ({"years": 51}, "years"),
        ({"rate_percent": -1}, "rate_percent"),
    ],
)
async def test_a_loan_that_nobody_gives_is_refused(desk, given, parameter):
    with pytest.raises(Refused) as refused:
        await desk.call("loan_plan", **({"amount": 1000, "years": 2, "rate_percent": 5} | given))
    assert (refused.value.code, refused.value.fields) == ("NO_SUCH_LOAN", {"parameter": parameter})


# The demo model ----------------------------------------------------------------------------------------------------


async def ask_demo(agent, messages):
    tools = [{"name": tool.name, "description": tool.description, "input_schema": tool.schema} for tool in agent.tools]
    request = ModelRequest(model="demo", system=None, messages=messages, tools=tools, max_tokens=1000)
    *_, turn = [event async for event in DemoProvider(delay_ms=0).stream(request)]
    assert isinstance(turn, Turn)
    return turn


@pytest.mark.parametrize(
    ("name", "text", "called", "answer"),
    [
        ("researcher", "How do I retry a payment without charging twice?", ["search_docs"], "Why it is needed"),
        ("researcher", "Search the documents for idempotency keys", ["search_docs"], "Natural idempotency"),
        ("researcher", "What is backpressure and how do I apply it?", ["search_docs"], "Load shedding"),
        ("researcher", "Read retries.md", ["read_doc"], "# Retries"),
        ("researcher", "List the documents", ["list_docs"], "**Backpressure** path: backpressure.md"),
        ("researcher", "Search for leases and read leases.md", ["search_docs", "read_doc"], "# Leases and fencing"),
        ("researcher", "What can you do?", ["search_docs"], "The library is about"),
        ("converter", "Convert 5 miles to km", ["convert"], "5 miles = 8.04672 km"),
        ("converter", "How many litres are 3 gallons?", ["convert"], "3 gallons = 11.356235352 litres"),
        ("converter", "What is 12 * (3 + 4)?", ["calculate"], "12 * (3 + 4) = 84"),
        ("converter", "Convert 100 km/h to m/s and calculate 15 * 37", ["convert", "calculate"], "15 * 37 = 555"),
        ("converter", "Which units of temperature do you know?", ["list_units"], "celsius (°C)"),
        ("converter", "Convert 5 km to kg", ["convert"], "length cannot be converted"),
        ("converter", "What can you do?", ["list_units"], "**length**"),
    ],
)
async def test_the_demo_model_calls_the_tool_and_tells_its_result(desk, name, text, called, answer):
    agent = desk.agents[name].agent
    messages = [{"role": "user", "content": text}]
    asking = await ask_demo(agent, messages)
    calls = tool_uses(asking.content)
    assert asking.stop_reason == "tool_use"
    assert [call["name"] for call in calls] == called
    results = []
    for call in calls:
        try:
            result = to_result(await desk.call(call["name"], **call["input"]), tool=call["name"])
        except ValueError as error:
            result = error_result(describe_exception(error))
        results.append(tool_result(call["id"], result.content, is_error=result.is_error))
    messages += [{"role": "assistant", "content": asking.content}, {"role": "user", "content": results}]
    answering = await ask_demo(agent, messages)
    assert answering.stop_reason == "end_turn"
    assert answer in text_of(answering.content)
