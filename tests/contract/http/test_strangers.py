"""Every route, walked by those whose the run is not: to them it does not exist.

The walk is made from the table of operations. A route with an id that nobody told it about, or a body with one, fails.
"""

import json
import re
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx2
import pytest
import sqlalchemy as sa
from tests.clients.api import Api
from tests.clients.tokens import SECRET, signed
from tests.integration.fixtures import on_sqlite
from tests.integration.stack import Stack

from runyard.db.tables import agent_calls, agent_inputs, agent_invocations, agent_messages, agent_runs, idempotency_keys
from runyard_gateway import paging, requests
from runyard_gateway.operations import ForeignOperation, Operation
from runyard_gateway.protocols import pylon
from runyard_gateway.routes import OPERATIONS

pytestmark = pytest.mark.anyio

Ids = Mapping[str, str]

KINDS = {
    "runs": "run",
    "invocations": "invocation",
    "streams": "stream",
    "input": "input",
    "agents": "agent",
    "functions": "function",
    "rooms": "room",
}
"""What an id in a path is of, by the segment before it."""

NOBODYS: Ids = {
    "run": "run_none",
    "invocation": "inv_none",
    "stream": "st_none",
    "input": "in_none",
    "agent": "nobody",
    "function": "nothing",
    "room": "nowhere",
}
AGENT, FUNCTION = "unserved", "nowhere"
HIDDEN = {"agent": "treasurer", "function": "payroll", "room": "vault"}
MISSING = {"agent": "nobody", "function": "nothing", "room": "nowhere"}
SHARED = frozenset(HIDDEN)
"""What is nobody's own."""

BODIES: dict[tuple[str, str], dict[str, Any]] = {
    ("POST", "/v1/agents/{agent}/runs"): {"input": "x"},
    ("POST", "/v1/runs"): {"agent": AGENT},
    ("PATCH", "/v1/runs/{id}"): {"title": "mine"},
    ("POST", "/v1/runs/{id}/messages"): {"messages": [{"role": "user", "content": "x"}]},
    ("POST", "/v1/runs/{id}/input"): {"input": "x"},
}
BODY_IDS = {
    *(("StartRun", "runId"), ("StartRun", "sessionId"), ("CreateRun", "sessionId"), ("CancelRun", "invocationId")),
    *(("ActAs", "userId"), ("ActAs", "tenantId")),
}
"""Each has its test below, or in `test_services.py`."""

QUERY_IDS = {"sessionId", "userId", "tenantId", "cursor"}
"""What a query names of somebody's. `agent`, `metadata` and `status` choose among runs that the caller may see."""
OTHER_PARAMETERS = {"agent", "status", "metadata.{key}", "limit", "order", "force", "since", "ticket"}


def kind_of(operation: Operation, parameter: str) -> str:
    before = operation.path.partition(f"/{{{parameter}}}")[0].rsplit("/", 1)[-1]
    assert before in KINDS, f"teach the walk what {operation.path} names by {{{parameter}}}"
    return KINDS[before]


def parameters(operation: Operation) -> list[str]:
    return re.findall(r"{(\w+)}", operation.path)


def owned(operation: Operation) -> list[str]:
    """Its parameters that name something of a user's."""
    return [name for name in parameters(operation) if kind_of(operation, name) not in SHARED]


@dataclass(frozen=True, kw_only=True)
class Case:
    """One request: `foreign` parameters name the victim's things, the others the caller's own."""

    operation: Operation
    foreign: frozenset[str]

    def __str__(self) -> str:
        return f"{self.operation.method} {self.operation.path} {'+'.join(sorted(self.foreign))}".strip()

    def path(self, theirs: Ids, mine: Ids) -> str:
        values = {
            name: (theirs if name in self.foreign else mine)[kind_of(self.operation, name)]
            for name in parameters(self.operation)
        }
        return self.operation.path.format(**values)

    @property
    def body(self) -> dict[str, Any] | None:
        return BODIES.get((self.operation.method, self.operation.path))


def cases() -> Iterator[Case]:
    """All ids the victim's; and each but the first alone, below a parent of the caller's own."""
    for operation in OPERATIONS:
        names = owned(operation)
        if names:
            yield Case(operation=operation, foreign=frozenset(names))
        for name in names[1:]:
            yield Case(operation=operation, foreign=frozenset({name}))


every_operation = pytest.mark.parametrize("operation", OPERATIONS, ids=lambda it: f"{it.method} {it.path}")
CASES = list(cases())
every_case = pytest.mark.parametrize("case", CASES, ids=str)


@dataclass(frozen=True, kw_only=True)
class Victim:
    """A user with a run that waits in a queue which nobody serves, and input that steers it: all that one can have."""

    tenant: str
    name: str
    session: str
    api: Api
    ids: Ids

    @classmethod
    async def at(cls, stack: Stack, name: str) -> "Victim":
        api = stack.gateway.user(name, tenant="acme")
        started = await api.start(AGENT, "secret", title="hidden", sessionId=f"session-{name}")
        steering = await api.start(AGENT, "secret too", runId=started["runId"])
        ids = {
            "run": started["runId"],
            "invocation": started["invocationId"],
            "stream": started["streamId"],
            "input": steering["inputId"],
            "agent": AGENT,
            "function": FUNCTION,
            "room": "vault",
        }
        return cls(tenant="acme", name=name, session=f"session-{name}", api=api, ids=ids)

    def rows(self, stack: Stack) -> dict[str, list[str]]:
        """All that is stored of it."""
        run = self.ids["run"]
        statements = {agent_runs.name: sa.select(agent_runs).where(agent_runs.c.id == run)} | {
            table.name: sa.select(table).where(table.c.run_id == run)
            for table in (agent_invocations, agent_inputs, agent_messages, agent_calls)
        }
        with stack.database.begin() as connection:
            return {
                name: sorted(json.dumps(dict(row._mapping), sort_keys=True) for row in connection.execute(statement))
                for name, statement in statements.items()
            }


@pytest.fixture
async def victim(stack: Stack, unique: str) -> Victim:
    return await Victim.at(stack, unique)


def number_of_rows(stack: Stack) -> list[int]:
    """Of what calls write: a run that is queued is a row."""
    tables = (agent_runs, agent_invocations, agent_inputs, idempotency_keys)
    with stack.database.begin() as connection:
        return [connection.execute(sa.select(sa.func.count()).select_from(table)).scalar_one() for table in tables]


@dataclass(frozen=True, kw_only=True)
class Stranger:
    """A caller who is known, and whose the victim's run is not. `acting`: whom a service's calls on agents are for."""

    name: str
    api: Api
    acting: dict[str, Any]

    async def own(self) -> Ids:
        """The same things as the victim's, of their own."""
        started = await self.api.start(AGENT, "mine", **self.acting)
        return {
            "run": started["runId"],
            "invocation": started["invocationId"],
            "stream": started["streamId"],
            "input": "in_mine",
            "agent": AGENT,
            "function": FUNCTION,
        }


def strangers(stack: Stack, victim: Victim) -> list[Stranger]:
    def users(name: str, api: Api) -> Stranger:
        return Stranger(name=name, api=api, acting={})

    return [
        users("another user", stack.gateway.user(tenant=victim.tenant)),
        users("the same name in another tenant", stack.gateway.user(victim.name, tenant="initech")),
        users("the same name in the default tenant", stack.gateway.user(victim.name)),
        users("another tenant's admin", stack.gateway.user(tenant="initech", roles=("admin",))),
        Stranger(
            name="another tenant's service",
            api=stack.gateway.user(tenant="initech", roles=("service",)),
            acting={"as": {"userId": victim.name}},
        ),
    ]


def nobodies(stack: Stack, victim: Victim) -> dict[str, Api]:
    """Callers who cannot be told who they are."""
    claims = {"sub": victim.name, "tenant": victim.tenant}
    given = {
        "expired": signed(claims | {"exp": int(time.time()) - 3600}),
        "of another secret": signed(claims, secret=SECRET[::-1]),
        "unsigned": signed(claims, algorithm="none"),
        "garbage": "garbage",
        "a key that is none": "ry_" + "1" * 64,
    }
    callers = {name: stack.gateway.bearer(bearer) for name, bearer in given.items()}
    return callers | {"nobody": stack.gateway.anonymous()}


@asynccontextmanager
async def answer(caller: Api, case: Case, path: str) -> AsyncIterator[httpx2.Response]:
    """Its head; the body only of an answer that ends by itself."""
    headers = {"Idempotency-Key": "walk"} if case.operation.method == "POST" else {}
    async with caller.reading(case.operation.method, path, headers=headers, json=case.body) as reading:
        if not reading.response.headers.get("content-type", "").startswith("text/event-stream"):
            await reading.response.aread()
        yield reading.response


def told(response: httpx2.Response, ids: Ids) -> tuple[int, dict[str, str], str]:
    """All that an answer tells but for the ids that the caller sent, and the request's own."""
    text = response.text
    for kind, value in ids.items():
        text = text.replace(value, f"<{kind}>")
    headers = {name: value for name, value in response.headers.items() if name not in {"date", "content-length"}}
    text = text.replace(headers.pop("x-request-id"), "<request>")
    return response.status_code, headers, text


@every_case
async def test_what_is_not_yours_does_not_exist(stack: Stack, victim: Victim, case: Case) -> None:
    before = victim.rows(stack)
    for stranger in strangers(stack, victim):
        mine = await stranger.own()
        stored = number_of_rows(stack)
        async with answer(stranger.api, case, case.path(victim.ids, mine)) as there:
            assert there.status_code == 404, stranger.name
            found = told(there, victim.ids)
        async with answer(stranger.api, case, case.path(NOBODYS, mine)) as nowhere:
            assert found == told(nowhere, NOBODYS), stranger.name
        assert number_of_rows(stack) == stored
    assert victim.rows(stack) == before


@pytest.mark.parametrize("case", [case for case in CASES if len(case.foreign) == len(owned(case.operation))], ids=str)
@pytest.mark.parametrize("role", ["owner", "admin", "service"])
async def test_what_is_yours_is_there(stack: Stack, victim: Victim, case: Case, role: str) -> None:
    """So the walk's requests are good ones. A tenant's admins and services may do what its users may."""
    caller = victim.api if role == "owner" else stack.gateway.user(tenant=victim.tenant, roles=(role,))
    async with answer(caller, case, case.path(victim.ids, victim.ids)) as response:
        # Found, at least: much may not be done to a run that waits for its turn.
        assert response.status_code in {200, 201, 202, 204, 409}


@on_sqlite
@every_operation
async def test_who_cannot_be_told_gets_nothing(stack: Stack, victim: Victim, operation: Operation) -> None:
    before, stored = victim.rows(stack), number_of_rows(stack)
    case = Case(operation=operation, foreign=frozenset(parameters(operation)))
    for name, nobody in nobodies(stack, victim).items():
        for ids in (victim.ids, NOBODYS):
            async with answer(nobody, case, case.path(ids, ids)) as response:
                assert response.status_code == 401, name
                assert response.json()["error"]["code"] == "UNAUTHENTICATED"
                assert not any(value in response.text for value in ids.values())
    assert (victim.rows(stack), number_of_rows(stack)) == (before, stored)


@pytest.mark.parametrize("operation", pylon.OPERATIONS, ids=lambda it: f"{it.method} {it.path}")
async def test_what_is_not_yours_does_not_exist_in_pylons_contract_either(
    stack: Stack, victim: Victim, operation: ForeignOperation
) -> None:
    """Whoever asks: another user, or who cannot be told who they are."""
    before, stored = victim.rows(stack), number_of_rows(stack)
    callers = [stranger.api for stranger in strangers(stack, victim)] + [*nobodies(stack, victim).values()]
    for caller in callers:
        for more in ({"input": "x"}, {"cancel": True}):
            found = []
            for ids in (victim.ids, NOBODYS):
                path = operation.path.format(id=ids["stream"], name=AGENT)
                body = {"runId": ids["run"], **more} if operation.method == "POST" else None
                response = await caller.call(operation.method, path, json=body)
                assert response.json()["error"]["code"] in PYLONS_CODES
                assert not any(ids[kind] in response.text for kind in ("run", "stream", "invocation"))
                found.append(told(response, ids))
            assert found[0] == found[1]
    assert (victim.rows(stack), number_of_rows(stack)) == (before, stored)


PYLONS_CODES = {"RUN_NOT_FOUND", "STREAM_NOT_FOUND", "AUTH_REQUIRED", "INVALID_JWT", "INVALID_API_KEY"}


async def test_a_run_in_the_body_is_looked_up_like_one_in_the_path(stack: Stack, victim: Victim) -> None:
    before = victim.rows(stack)
    for stranger in strangers(stack, victim):
        found = []
        for run_id in (victim.ids["run"], NOBODYS["run"]):
            for more in ({}, {"ifBusy": "steer"}, {"ifBusy": "cancel"}):
                body = {"input": "x", "runId": run_id, "title": "mine", **more, **stranger.acting}
                response = await stranger.api.post(f"/v1/agents/{AGENT}/runs", body)
                found.append(told(response, {"run": run_id}))
        assert found[0][0] == 404, stranger.name
        assert all(one == found[0] for one in found), stranger.name
        assert await runs_of(stranger.api, userId=victim.name) == []
    assert victim.rows(stack) == before


async def test_an_invocation_in_the_body_is_one_of_the_callers_run(stack: Stack, victim: Victim) -> None:
    before = victim.rows(stack)
    for stranger in strangers(stack, victim):
        mine = await stranger.own()
        for run_id in (mine["run"], victim.ids["run"]):
            found = []
            for named in (victim.ids["invocation"], NOBODYS["invocation"]):
                response = await stranger.api.post(f"/v1/runs/{run_id}/cancel", {"invocationId": named})
                found.append(told(response, {"invocation": named}))
            assert found[0][0] == 404, stranger.name
            assert found[0] == found[1], stranger.name
        assert (await stranger.api.get(f"/v1/runs/{mine['run']}")).json()["status"] == "queued"
    assert victim.rows(stack) == before


async def test_a_session_in_the_body_is_the_callers_own(stack: Stack, victim: Victim) -> None:
    before = victim.rows(stack)
    for stranger in strangers(stack, victim):
        own = {"sessionId": victim.session, **stranger.acting}
        response = await stranger.api.post("/v1/runs", {"agent": AGENT, **own})
        assert response.status_code in {200, 201}, stranger.name
        assert response.json()["id"] != victim.ids["run"], stranger.name
        started = await stranger.api.start(AGENT, "x", ifBusy="steer", **own)
        assert started["runId"] == response.json()["id"], stranger.name
    assert victim.rows(stack) == before


@pytest.mark.parametrize(
    "operation",
    [it for it in OPERATIONS if QUERY_IDS & {parameter.name for parameter in it.parameters}],
    ids=lambda it: f"{it.method} {it.path}",
)
async def test_what_a_query_names_is_looked_up_like_what_is_nobodys(
    stack: Stack, victim: Victim, operation: Operation
) -> None:
    """Of what is the caller's own: their run, a room that they may join. Users of one name are in many tenants."""
    await victim.api.start(AGENT)
    before = victim.rows(stack)
    named = {
        "sessionId": (victim.session, "nobodys"),
        "tenantId": (victim.tenant, "nowhere"),
        "cursor": (await victims_cursor(operation, victim), "c3VjaGxpa2U"),
        "userId": (victim.name, "nobody"),
    }
    case = Case(operation=operation, foreign=frozenset())
    for stranger in strangers(stack, victim):
        path = case.path({}, {**await stranger.own(), "room": "lobby"})
        for parameter in QUERY_IDS & {parameter.name for parameter in operation.parameters}:
            found = []
            if (stranger.name, parameter) == ("another user", "tenantId"):
                continue  # it is theirs, too
            for value in named[parameter]:
                async with answer(stranger.api, case, f"{path}?{parameter}={value}") as response:
                    status, headers, text = told(response, {})
                    assert all(it not in text for it in victim.ids.values() if it not in {AGENT, FUNCTION, "vault"})
                    found.append((status, headers, text.replace(value, "<value>")))
            assert found[0] == found[1] or parameter == "userId", (stranger.name, parameter)
    assert victim.rows(stack) == before


async def victims_cursor(operation: Operation, victim: Victim) -> str:
    """One that the list of what is the victim's would take."""
    run = victim.ids["run"]
    match operation.path.rsplit("/", 1)[-1]:
        case "runs":
            cursor: str = (await victim.api.get("/v1/runs", limit=1)).json()["nextCursor"]
            return cursor
        case "messages":
            return paging.seal(("messages", run, "asc"), 0)
        case "invocations":
            return paging.seal(("invocations", run), 2**53, victim.ids["invocation"])
        case _:
            return ""


def test_every_id_in_a_query_is_walked() -> None:
    taken = {parameter.name for it in OPERATIONS for parameter in it.parameters if parameter.place == "query"}
    assert taken == QUERY_IDS | OTHER_PARAMETERS


async def test_no_list_shows_what_is_not_yours(stack: Stack, victim: Victim) -> None:
    filters: list[dict[str, str]] = [
        {},
        {"agent": AGENT},
        {"sessionId": victim.session},
        {"userId": victim.name},
        {"tenantId": victim.tenant},
        {"tenantId": victim.tenant, "userId": victim.name},
    ]
    for asked in filters:
        for stranger in strangers(stack, victim):
            seen = [run["id"] for run in await runs_of(stranger.api, **asked)]
            assert victim.ids["run"] not in seen, (stranger.name, asked)
        for caller in (victim.api, stack.gateway.user(tenant=victim.tenant, roles=("admin",))):
            assert victim.ids["run"] in [run["id"] for run in await runs_of(caller, **asked)], asked


@pytest.mark.parametrize(
    "operation", [it for it in OPERATIONS if parameters(it) and not owned(it)], ids=lambda it: f"{it.method} {it.path}"
)
async def test_what_is_for_admins_does_not_exist_for_others(stack: Stack, operation: Operation) -> None:
    user = stack.gateway.user(roles=("editor",))
    case = Case(operation=operation, foreign=frozenset(parameters(operation)))
    found = []
    for ids in (HIDDEN, MISSING):
        async with answer(user, case, case.path(ids, ids)) as response:
            assert response.status_code == 404
            found.append(told(response, ids))
    assert found[0] == found[1]
    assert await runs_of(user) == []


async def test_an_agent_for_admins_cannot_be_named_in_a_body(stack: Stack) -> None:
    user = stack.gateway.user()
    hidden, missing = [await user.post("/v1/runs", {"agent": name}) for name in ("treasurer", "nobody")]
    assert hidden.status_code == 404
    assert told(hidden, {"agent": "treasurer"}) == told(missing, {"agent": "nobody"})


def test_every_id_in_a_body_is_walked() -> None:
    bodies = [
        model for model in vars(requests).values() if isinstance(model, type) and issubclass(model, requests._Body)
    ]
    found = {
        (model.__name__, field.alias or name)
        for model in bodies
        for name, field in model.model_fields.items()
        if name.endswith("_id")
    }
    assert found == BODY_IDS


async def runs_of(caller: Api, **query: str) -> list[dict[str, Any]]:
    response = await caller.get("/v1/runs", limit=100, **query)
    assert response.status_code == 200, response.text
    items: list[dict[str, Any]] = response.json()["items"]
    return items
