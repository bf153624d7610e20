"""`agent(...)`: what is checked when the file is imported, and the manifest."""

import functools

import orjson
import pytest

from runyard import RunContext, agent, tool
from runyard.authoring.errors import AuthoringError


@tool
def search(query: str, limit: int = 5) -> list[str]:
    """Search the library."""
    return [query] * limit


@tool(name="refund", timeout_s=3, exclusive=True, idempotent=True)
async def pay_back(ctx: RunContext, order: str) -> str:
    return order


def plain(query: str) -> str:
    return query


def test_the_defaults():
    made = agent()
    assert (made.system, made.tools, made.model, made.fallbacks) == (None, (), None, ())
    assert (made.max_steps, made.max_tokens, made.timeout_s) == (64, 4096, 600)
    assert (made.auth, made.queue, dict(made.provider_options), made.stream_thinking) == ("user", "default", {}, True)


def test_the_manifest_has_what_gateways_need_and_never_the_prompt():
    made = agent(system="a secret prompt", tools=[search, pay_back], model="claude-sonnet-5-5", auth="admin")
    manifest = made.manifest("researcher")
    assert manifest == {
        "name": "researcher",
        "auth": "admin",
        "queue": "default",
        "priority": "interactive",
        "maxRunning": None,
        "model": "claude-sonnet-5-5",
        "maxSteps": 64,
        "maxTokens": 4096,
        "timeoutS": 600,
        "rooms": [],
        "tools": [
            {
                "name": "search",
                "description": "Search the library.",
                "inputSchema": search.schema,
                "idempotent": False,
                "exclusive": False,
                "timeoutS": 120,
            },
            {
                "name": "refund",
                "description": "",
                "inputSchema": {"type": "object", "properties": {"order": {"type": "string"}}, "required": ["order"]},
                "idempotent": True,
                "exclusive": True,
                "timeoutS": 3,
            },
        ],
    }
    assert b"secret" not in orjson.dumps(manifest)
    manifest["tools"][0]["inputSchema"].clear()
    assert made.manifest("researcher")["tools"][0]["inputSchema"]["type"] == "object"


def test_what_was_passed_may_change_later_without_effect():
    tools = [search]
    options = {"thinking": {"type": "enabled"}}
    made = agent(tools=tools, provider_options=options)
    tools.append(pay_back)
    options["thinking"]["type"] = "disabled"
    options["extra"] = {}
    assert made.tools == (search,)
    assert made.provider_options == {"thinking": {"type": "enabled"}}
    with pytest.raises(AttributeError):
        made.model = "other"
    with pytest.raises(TypeError):
        made.provider_options["extra"] = 1


def test_the_prompt_may_be_a_function():
    async def prompt(ctx: RunContext) -> str:
        return f"You serve {ctx.tenant_id}."

    assert agent(system=prompt).system is prompt


def test_fallbacks_are_other_models():
    made = agent(model="claude-sonnet-5-5", fallbacks=["openai:gpt-5.5", "claude-haiku-4-5"])
    assert made.fallbacks == ("openai:gpt-5.5", "claude-haiku-4-5")
    with pytest.raises(AuthoringError, match="'demo:' twice, or the model itself"):
        agent(model="demo:", fallbacks=["claude-haiku-4-5", "demo:"])


@pytest.mark.parametrize("thing", [plain, len, "search", 5, functools.partial(plain, "a")], ids=repr)
def test_tools_are_decorated(thing):
    with pytest.raises(AuthoringError) as raised:
        agent(tools=[search, thing])
    if thing is plain:
        assert "'plain' is a plain function; decorate it with @tool" in str(raised.value)


@pytest.mark.parametrize("tools", [search, "search", {search}, None], ids=["tool", "str", "set", "none"])
def test_tools_are_a_list(tools):
    with pytest.raises(AuthoringError, match="tools must be a list"):
        agent(tools=tools)


def test_two_tools_of_one_name():
    with pytest.raises(AuthoringError, match="two tools are named 'search'"):
        agent(tools=[search, pay_back, tool(name="search")(plain)])


@pytest.mark.parametrize(
    ("option", "value"),
    [
        *((name, value) for name in ("max_steps", "max_tokens") for value in (0, -1, 1.5, True, "5", None)),
        *(("timeout_s", value) for value in (0, -1, float("inf"), float("nan"), True, "5")),
        *(("auth", value) for value in ("public", None, "")),
        *(("queue", value) for value in ("", "two words", "ä", 5, "bulk.XQ", "eu.bulk", "1st")),
        *(("priority", value) for value in ("urgent", "", "Background", None, 1, ["background"])),
        *(("max_running", value) for value in (0, -1, 1.5, True, "5")),
        *(("model", value) for value in ("", " ", 5)),
        *(("fallbacks", value) for value in ("demo:", [""], [5], None, ["demo:", "demo:"])),
        *(("system", value) for value in (5, ["text"], lambda: "text", object)),
        *(("stream_thinking", value) for value in ("no", 1, None)),
        *(("provider_options", value) for value in ({"a": object()}, {"a": float("nan")}, [1])),
    ],
)
def test_what_cannot_be_is_told_at_import(option, value):
    with pytest.raises(AuthoringError, match=option):
        agent(**{option: value})
