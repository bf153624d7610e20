"""Programs that call for users: whose a run is, what its tools are told, what is refused."""

import json
from typing import Any

import pytest
from tests.clients.api import Api
from tests.contract.http.keys import add_key
from tests.integration.fixtures import on_sqlite
from tests.integration.stack import Stack
from tests.standin import calls, hold, says

pytestmark = pytest.mark.anyio

BOTH = ("acme", "initech")


def service(stack: Stack, tenant: str = "acme") -> Api:
    """By a token with the role; one with a key is the same from then on."""
    return stack.gateway.user(tenant=tenant, roles=("service",))


def acting(user: str, **more: Any) -> dict[str, Any]:
    return {"as": {"userId": user, **more}}


def told_to_tool(messages: list[dict[str, Any]]) -> dict[str, Any]:
    """What the witness's last tool call was told."""
    results = [row["content"][0] for row in messages if row["role"] == "user" and isinstance(row["content"], list)]
    told: dict[str, Any] = json.loads(results[-1]["content"])
    return told


async def runs_of(api: Api, **query: str) -> list[dict[str, Any]]:
    response = await api.get("/v1/runs", limit=100, **query)
    assert response.status_code == 200, response.text
    items: list[dict[str, Any]] = response.json()["items"]
    return items


async def test_a_run_is_its_users_and_its_tools_are_told_so(stack: Stack, unique: str) -> None:
    """A17, with a key; and "Server runs": every row is the user's."""
    stack.standin.answers(calls("testify", {}), says("done"))
    api = stack.gateway.bearer(add_key(stack, unique, *BOTH))
    context = {"plan": "gold", "limits": [1, None], "n": {"a": "\N{BANANA}"}}
    result = await api.run("witness", **acting(unique, tenantId="initech"), context=context)
    assert result["text"] == "done"
    ann = stack.gateway.user(unique, tenant="initech")
    run = (await ann.get(f"/v1/runs/{result['runId']}")).json()
    assert (run["userId"], run["tenantId"], run["status"], run["context"]) == (unique, "initech", "completed", context)
    assert told_to_tool(await ann.messages(run["id"])) == {
        "runId": run["id"],
        "agent": "witness",
        "userId": unique,
        "tenantId": "initech",
        "roles": [],
        "context": context,
    }
    assert await runs_of(ann) == [run]


@on_sqlite
async def test_a_context_stays_until_a_service_sends_another(stack: Stack, unique: str) -> None:
    """A18."""
    stack.standin.answers(*[calls("testify", {}), says("done")] * 3)
    ann, api = stack.gateway.user(unique, tenant="acme"), service(stack)
    first = await api.run("witness", **acting(unique), context={"v": 1})
    run_id = first["runId"]
    await ann.run("witness", runId=run_id)
    assert told_to_tool(await ann.messages(run_id))["context"] == {"v": 1}
    assert (await ann.get(f"/v1/runs/{run_id}")).json()["context"] == {"v": 1}
    await api.run("witness", runId=run_id, **acting(unique), context={"v": 2})
    assert told_to_tool(await ann.messages(run_id))["context"] == {"v": 2}
    assert (await ann.get(f"/v1/runs/{run_id}")).json()["context"] == {"v": 2}


@on_sqlite
async def test_an_idle_run_may_have_a_context(stack: Stack, unique: str) -> None:
    stack.standin.answers(calls("testify", {}), says("done"))
    api = service(stack)
    created = await api.post("/v1/runs", {"agent": "witness", **acting(unique), "context": {"v": 1}})
    assert created.status_code == 201, created.text
    run = created.json()
    assert (run["userId"], run["context"]) == (unique, {"v": 1})
    await stack.gateway.user(unique, tenant="acme").run("witness", runId=run["id"])
    assert told_to_tool(await api.messages(run["id"]))["context"] == {"v": 1}


@on_sqlite
async def test_a_context_of_a_client_is_ignored(stack: Stack, unique: str) -> None:
    """A19; `__agentContext` is a field that no call has. Admins are clients, too."""
    stack.standin.answers(*[calls("testify", {}), says("done")] * 2)
    for roles in ((), ("admin",)):
        api = stack.gateway.user(f"{unique}{roles}", roles=roles)
        result = await api.run("witness", context={"forged": True})
        assert told_to_tool(await api.messages(result["runId"]))["context"] is None
        assert (await api.get(f"/v1/runs/{result['runId']}")).json()["context"] is None
    created = (await stack.gateway.user().post("/v1/runs", {"agent": "witness", "context": {"forged": True}})).json()
    assert created["context"] is None
    body = {"input": "x", "__agentContext": {"forged": True}}
    refused = await stack.gateway.user(unique).post("/v1/agents/witness/runs", body)
    assert (refused.status_code, refused.json()["error"]["fields"]) == (400, ["__agentContext"])


@on_sqlite
@pytest.mark.parametrize(
    ("agent", "body", "refusal"),
    [
        ("talker", {}, (403, "AGENT_REQUIRES_USER", None)),
        ("talker", {"runId": "{run}"}, (403, "AGENT_REQUIRES_USER", None)),
        ("talker", {"context": {}}, (403, "AGENT_REQUIRES_USER", None)),
        ("nobody", acting("{user}"), (404, "AGENT_NOT_FOUND", None)),
        ("treasurer", acting("{user}"), (403, "FORBIDDEN", None)),
        ("talker", acting("{user}", tenantId="globex"), (403, "AGENT_RUN_FORBIDDEN", None)),
        ("talker", acting("{user}", tenantId="globex", admin=True), (403, "AGENT_RUN_FORBIDDEN", None)),
        ("talker", acting(""), (400, "INVALID_ARGS", "as.userId")),
        ("talker", acting(" \t"), (400, "INVALID_ARGS", "as.userId")),
        ("talker", acting("a" * 257), (400, "INVALID_ARGS", "as.userId")),
        ("talker", acting("a\0b"), (400, "INVALID_ARGS", "as.userId")),  # not somebody else's name once it is clean
        ("talker", acting("{user}", tenantId=""), (400, "INVALID_ARGS", "as.tenantId")),
        ("talker", acting("{user}", admin="yes"), (400, "INVALID_ARGS", "as.admin")),
        ("talker", acting("{user}", roles=["admin"]), (400, "INVALID_ARGS", "as.roles")),
        ("talker", {"as": {"tenantId": "acme"}}, (400, "INVALID_ARGS", "as.userId")),
        ("talker", {"as": "{user}"}, (400, "INVALID_ARGS", "as")),
        ("talker", acting("{user}") | {"context": ["a"]}, (400, "INVALID_ARGS", "context")),
        ("talker", acting("{user}") | {"context": {"a": "x" * 65_536}}, (400, "INVALID_ARGS", "context")),
        ("talker", acting("{user}") | {"context": {}, "ifBusy": "steer"}, (400, "INVALID_ARGS", "context")),
        ("talker", acting("{user}") | {"runId": "run_none"}, (404, "RUN_NOT_FOUND", None)),
        ("talker", acting("{user}-2") | {"runId": "{run}"}, (404, "RUN_NOT_FOUND", None)),
    ],
    ids=str,
)
async def test_a_refused_call_of_a_service_creates_nothing(
    stack: Stack, unique: str, agent: str, body: dict[str, Any], refusal: tuple[int, str, str | None]
) -> None:
    api, ann = service(stack), stack.gateway.user(unique, tenant="acme")
    run = (await ann.post("/v1/runs", {"agent": "talker"})).json()
    before = len(await runs_of(api))
    filled = json.loads(json.dumps(body).replace("{user}", unique).replace("{run}", run["id"]))
    refused = await api.post(f"/v1/agents/{agent}/runs", {"input": "x", **filled})
    error = refused.json()["error"]
    (field,) = error.get("fields", [None])
    assert (refused.status_code, error["code"], field) == refusal
    assert len(await runs_of(api)) == before
    assert (await ann.get(f"/v1/runs/{run['id']}")).json() == run


@on_sqlite
@pytest.mark.parametrize("path", ["/v1/agents/talker/runs", "/v1/runs", "/v1/runs/{run}/input"])
@pytest.mark.parametrize("roles", [(), ("admin",)])
async def test_nobody_else_calls_for_others(stack: Stack, unique: str, path: str, roles: tuple[str, ...]) -> None:
    api = stack.gateway.user(unique, tenant="acme", roles=roles)
    run = (await api.post("/v1/runs", {"agent": "talker"})).json()
    said = {"agent": "talker"} if path == "/v1/runs" else {"input": "x"}
    for user in ("somebody", unique):
        refused = await api.post(path.format(run=run["id"]), {**said, **acting(user)})
        assert (refused.status_code, refused.json()["error"]["code"]) == (403, "AGENT_RUN_FORBIDDEN")
    assert await runs_of(api, userId=unique) == [run]
    assert await runs_of(stack.gateway.user("somebody", tenant="acme")) == []


@on_sqlite
async def test_a_service_of_several_tenants_says_which_one(stack: Stack, unique: str) -> None:
    api = stack.gateway.bearer(add_key(stack, unique, *BOTH))
    for refused, field in (
        (await api.post("/v1/agents/talker/runs", {"input": "x", **acting(unique)}), "as.tenantId"),
        (await api.get("/v1/runs"), "tenantId"),
    ):
        assert (refused.status_code, refused.json()["error"]["fields"]) == (400, [field])
    started = await api.start("unserved", **acting(unique, tenantId="initech"))
    assert [run["id"] for run in await runs_of(api, tenantId="initech", userId=unique)] == [started["runId"]]
    assert await runs_of(api, tenantId="acme", userId=unique) == []
    assert await runs_of(api, tenantId="globex") == []


@on_sqlite
async def test_an_admin_whom_a_service_calls_for_may_do_what_admins_may(stack: Stack, unique: str) -> None:
    stack.standin.answers(says("mine"), *[calls("testify", {}), says("done")], says("treasure"))
    api, ann = service(stack), stack.gateway.user(unique, tenant="acme")
    run = await ann.run("witness")
    await api.run("witness", runId=run["runId"], **acting("root", admin=True))
    told = told_to_tool(await ann.messages(run["runId"]))
    assert (told["userId"], told["roles"]) == (unique, ["admin"])
    assert (await api.run("treasurer", **acting("root", admin=True)))["text"] == "treasure"
    assert "treasurer" in [agent["name"] for agent in (await api.get("/v1/agents")).json()["items"]]


@on_sqlite
async def test_a_service_goes_on_with_a_run_for_its_owner(stack: Stack, unique: str) -> None:
    stack.standin.answers(says("mine"), *[calls("testify", {}), says("done")] * 2)
    api, ann = service(stack), stack.gateway.user(unique, tenant="acme")
    run = await ann.run("witness")
    path, waiting = f"/v1/runs/{run['runId']}/input", {"Prefer": "wait=30"}
    for more in ({}, acting(unique)):
        response = await api.post(path, {"input": "go on", "context": {"v": 1}, **more}, headers=waiting)
        assert response.json()["text"] == "done"
        told = told_to_tool(await ann.messages(run["runId"]))
        assert (told["userId"], told["roles"], told["context"]) == (unique, [], {"v": 1})
    refused = await api.post(path, {"input": "x", **acting("somebody")})
    assert (refused.status_code, refused.json()["error"]["code"]) == (404, "RUN_NOT_FOUND")


@on_sqlite
async def test_what_replaces_a_turn_brings_its_context(stack: Stack, unique: str) -> None:
    stack.standin.answers(says(hold(unique), "x"), calls("testify", {}), says("done"))
    api = service(stack)
    started = await api.start("witness", **acting(unique), context={"v": 1})
    await stack.standin.gate(unique).reached()
    result = await api.run("witness", runId=started["runId"], **acting(unique), context={"v": 2}, ifBusy="cancel")
    assert result["text"] == "done"
    assert told_to_tool(await api.messages(started["runId"]))["context"] == {"v": 2}


async def test_admins_see_and_continue_the_runs_of_their_tenant(stack: Stack, unique: str) -> None:
    """Rows stay the owner's; a tenant's users are in one list."""
    stack.standin.answers(says("mine"), calls("testify", {}), says("done"))
    tenant = f"tenant-{unique}"
    ann, bob = stack.gateway.user("ann", tenant=tenant), stack.gateway.user("bob", tenant=tenant)
    admin = stack.gateway.user("root", tenant=tenant, roles=("admin",))
    run = await ann.run("witness")
    others = await bob.start("unserved")
    assert {item["id"]: item["userId"] for item in await runs_of(admin)} == {
        run["runId"]: "ann",
        others["runId"]: "bob",
    }
    assert [item["id"] for item in await runs_of(admin, userId="ann")] == [run["runId"]]
    result = await admin.run("witness", "look", runId=run["runId"])
    assert result["runId"] == run["runId"]
    told = told_to_tool(await ann.messages(run["runId"]))
    assert (told["userId"], told["tenantId"], told["roles"]) == ("ann", tenant, ["admin"])
    assert (await ann.get(f"/v1/runs/{run['runId']}")).json()["userId"] == "ann"
    rows = stack.execute("SELECT user_id FROM agent_runs WHERE tenant_id = :tenant ORDER BY user_id", tenant=tenant)
    assert [row.user_id for row in rows] == ["ann", "bob"]
    cancelled = await admin.post(f"/v1/runs/{others['runId']}/cancel")
    assert cancelled.json()["status"] == "cancelled"


@on_sqlite
async def test_keys_of_the_deployment_need_no_row(stack: Stack, unique: str) -> None:
    key = "ry_" + "5a" * 32
    async with stack.starting_gateway(RUNYARD_SERVICE_KEYS=f"bot:acme:{key}") as gateway:
        started = await gateway.bearer(key).start("unserved", **acting(unique))
        assert (await stack.gateway.user(unique, tenant="acme").get(f"/v1/runs/{started['runId']}")).status_code == 200
        assert (await gateway.bearer("ry_" + "5b" * 32).get("/v1/runs")).status_code == 401
        assert key not in gateway.process.log.read_text()
    assert (await stack.gateway.bearer(key).get("/v1/runs")).status_code == 401
