"""Lists, page by page: each row once, in order, and no cursor or limit that is not theirs."""

import base64
import json
import secrets
import zlib
from typing import Any

import pytest
from tests.clients.api import Api
from tests.integration.fixtures import on_sqlite
from tests.integration.stack import Stack
from tests.standin import By, says

pytestmark = pytest.mark.anyio

RUNS = 25
SAME_MOMENT = 1_700_000_000_123


async def pages(api: Api, path: str, **query: Any) -> list[list[dict[str, Any]]]:
    """All pages of a list."""
    found: list[list[dict[str, Any]]] = []
    cursor: dict[str, Any] = {}
    while True:
        response = await api.get(path, **query, **cursor)
        assert response.status_code == 200, response.text
        page = response.json()
        assert set(page) == {"items", "nextCursor"}
        found.append(page["items"])
        if page["nextCursor"] is None:
            return found
        cursor = {"cursor": page["nextCursor"]}


async def many_runs(stack: Stack, api: Api) -> list[str]:
    """Runs that nobody executes, all of one moment."""
    ids = [(await api.start("unserved", f"number {number}"))["runId"] for number in range(RUNS)]
    for run_id in ids:
        stack.execute("UPDATE agent_runs SET last_activity_at = :at WHERE id = :id", at=SAME_MOMENT, id=run_id)
    return ids


async def test_runs_of_one_moment_are_each_listed_once(stack: Stack) -> None:
    api = stack.gateway.user()
    ids = await many_runs(stack, api)
    found = await pages(api, "/v1/runs", limit=10)
    assert [len(page) for page in found] == [10, 10, 5]
    assert [run["id"] for page in found for run in page] == sorted(ids, reverse=True)
    assert [len(page) for page in await pages(api, "/v1/runs")] == [20, 5]
    assert [len(page) for page in await pages(api, "/v1/runs", limit=5)] == [5] * 5
    assert [len(page) for page in await pages(api, "/v1/runs", limit=25)] == [25]


async def test_a_run_that_moves_to_the_front_is_not_lost(stack: Stack) -> None:
    api = stack.gateway.user()
    ids = sorted(await many_runs(stack, api), reverse=True)
    first = (await api.get("/v1/runs", limit=10)).json()
    stack.execute("UPDATE agent_runs SET last_activity_at = :at WHERE id = :id", at=SAME_MOMENT + 1, id=ids[3])
    rest = (await api.get("/v1/runs", limit=20, cursor=first["nextCursor"])).json()
    assert [run["id"] for run in rest["items"]] == ids[10:]
    assert (await api.get("/v1/runs", limit=1)).json()["items"][0]["id"] == ids[3]


@on_sqlite
async def test_filters_are_kept_from_page_to_page(stack: Stack, unique: str) -> None:
    stack.standin.answers(says("x"), by=By.TURN)
    api = stack.gateway.user()
    about = {"customer": "c_1", "tries": 3, "two\nlines, 'é' & $.x[0]": "odd"}
    queued = [(await api.start("unserved", metadata=about))["runId"] for _ in range(3)]
    done = [(await api.run("talker"))["runId"] for _ in range(3)]
    named = await api.run("talker", sessionId=unique)
    expected = {
        ("agent", "unserved"): queued,
        ("agent", "talker"): [*done, named["runId"]],
        ("agent", "nobody"): [],
        ("status", "queued"): queued,
        ("status", "completed"): [*done, named["runId"]],
        ("status", "failed"): [],
        ("sessionId", unique): [named["runId"]],
        ("metadata.customer", "c_1"): queued,
        ("metadata.tries", "3"): queued,
        ("metadata.customer", "c_2"): [],
        ("metadata.none", "null"): [],
        ("metadata.two\nlines, 'é' & $.x[0]", "odd"): queued,
    }
    for (name, value), ids in expected.items():
        found = await pages(api, "/v1/runs", limit=1, **{name: value})
        assert [run["id"] for page in found for run in page] == ids[::-1]


@on_sqlite
async def test_what_cannot_be_asked_of_metadata(stack: Stack) -> None:
    api = stack.gateway.user()
    await api.start("unserved", metadata={"a": "1"})
    assert len((await api.get("/v1/runs", **{"metadata.a": "1", "metadata.b": "2"})).json()["items"]) == 0
    for query in ("metadata.=x", "metadata.%22=x", "metadata.a%5C=x", f"metadata.{'k' * 257}=x"):
        refused(await api.call("GET", f"/v1/runs?{query}"), "metadata.")
    refused(await api.call("GET", "/v1/runs?metadata.a=1&metadata.a=2"), "metadata.a")
    refused(await api.call("GET", "/v1/runs?metadata=x"), "metadata")
    refused(await api.call("GET", "/v1/agents?metadata.a=1"), "metadata.a")
    many = "&".join(f"metadata.k{number}=x" for number in range(11))
    refused(await api.call("GET", f"/v1/runs?{many}"), "metadata.")
    first = (await api.get("/v1/runs", limit=1, **{"metadata.a": "1"})).json()
    assert first["nextCursor"] is None
    await api.start("unserved", metadata={"a": "1"})
    cursor = (await api.get("/v1/runs", limit=1, **{"metadata.a": "1"})).json()["nextCursor"]
    refused(await api.get("/v1/runs", limit=1, cursor=cursor), "cursor")
    refused(await api.get("/v1/runs", limit=1, cursor=cursor, **{"metadata.a": "2"}), "cursor")


@on_sqlite
async def test_messages_are_paged_in_both_directions(stack: Stack) -> None:
    stack.standin.answers(*[says(f"answer {number}") for number in range(6)])
    api = stack.gateway.user()
    run_id = (await api.run("talker", "question 0"))["runId"]
    for number in range(1, 6):
        await api.run("talker", f"question {number}", runId=run_id)
    stack.execute("UPDATE agent_messages SET created_at = :at WHERE run_id = :id", at=SAME_MOMENT, id=run_id)
    path = f"/v1/runs/{run_id}/messages"
    whole = await api.messages(run_id)
    assert [row["seq"] for row in whole] == list(range(1, 13))
    for limit in (1, 5, 12, 500):
        up = [row for page in await pages(api, path, limit=limit) for row in page]
        down = [row for page in await pages(api, path, limit=limit, order="desc") for row in page]
        assert up == whole
        assert down == whole[::-1]
    assert [row for page in await pages(api, path, order="asc") for row in page] == whole


@on_sqlite
async def test_a_transcript_that_grows_between_two_pages(stack: Stack) -> None:
    stack.standin.answers(*[says("x")] * 3)
    api = stack.gateway.user()
    run_id = (await api.run("talker"))["runId"]
    await api.run("talker", runId=run_id)
    path = f"/v1/runs/{run_id}/messages"
    up = (await api.get(path, limit=3)).json()
    down = (await api.get(path, limit=3, order="desc")).json()
    await api.run("talker", runId=run_id)
    rest_up = (await api.get(path, limit=10, cursor=up["nextCursor"])).json()["items"]
    rest_down = (await api.get(path, limit=10, cursor=down["nextCursor"], order="desc")).json()["items"]
    assert [row["seq"] for row in rest_up] == [4, 5, 6]
    assert [row["seq"] for row in rest_down] == [1]


@on_sqlite
async def test_invocations_are_listed_newest_first(stack: Stack) -> None:
    stack.standin.answers(*[says("x")] * 5)
    api = stack.gateway.user()
    results = [await api.run("talker")]
    results += [await api.run("talker", runId=results[0]["runId"]) for _ in range(4)]
    run_id = results[0]["runId"]
    stack.execute("UPDATE agent_invocations SET created_at = :at WHERE run_id = :id", at=SAME_MOMENT, id=run_id)
    found = await pages(api, f"/v1/runs/{run_id}/invocations", limit=2)
    ids = [invocation["invocationId"] for page in found for invocation in page]
    assert ids == sorted((result["invocationId"] for result in results), reverse=True)


BAD_LIMITS = ["0", "-1", "abc", "", "1.5", "1e2", " 5", "+5", "\N{ARABIC-INDIC DIGIT THREE}", "9" * 30, "9" * 5000]
BAD_LIMITS += [f"{1:010}{0:0{digits}}" for digits in (1, 8)]


@on_sqlite
@pytest.mark.parametrize("limit", [*BAD_LIMITS, "101"])
async def test_limits_of_runs_out_of_range(stack: Stack, limit: str) -> None:
    refused(await stack.gateway.user().get("/v1/runs", limit=limit), "limit")


@on_sqlite
async def test_limits_and_orders_of_messages_out_of_range(stack: Stack) -> None:
    api = stack.gateway.user()
    run_id = (await api.start("unserved"))["runId"]
    for limit in (*BAD_LIMITS, "501"):
        refused(await api.get(f"/v1/runs/{run_id}/messages", limit=limit), "limit")
    assert (await api.get(f"/v1/runs/{run_id}/messages", limit=500)).status_code == 200
    for order in ("up", "DESC", ""):
        refused(await api.get(f"/v1/runs/{run_id}/messages", order=order), "order")


@on_sqlite
async def test_cursors_of_others_and_changed_ones_are_refused(stack: Stack) -> None:
    api, other = stack.gateway.user(), stack.gateway.user()
    for caller in (api, other):
        for _ in range(3):
            await caller.start("unserved")
    cursor = (await api.get("/v1/runs", limit=1)).json()["nextCursor"]
    assert (await api.get("/v1/runs", limit=1, cursor=cursor)).status_code == 200
    theirs = (await other.get("/v1/runs", limit=1)).json()["nextCursor"]
    refused(await api.get("/v1/runs", limit=1, cursor=theirs), "cursor")
    refused(await api.get("/v1/runs", limit=1, cursor=cursor, status="queued"), "cursor")
    for broken in (*changed(cursor), "", "x", "=", "\0", "\N{BANANA}", base64.b64encode(b"[1]").decode(), "A" * 5000):
        refused(await api.get("/v1/runs", limit=1, cursor=broken), "cursor")


FORGED = [
    b"1",
    b"{}",
    b"nothing",
    b"[true]",
    b"[1.5]",
    b"[1e400]",
    b"[9223372036854775808]",
    b'[1,"\\u0000"]',
    b'["\\ud800"]',
]


@pytest.mark.parametrize("body", FORGED)
async def test_no_cursor_reaches_the_database_with_what_it_does_not_take(stack: Stack, body: bytes) -> None:
    """Cursors are sealed against accidents, not against whoever makes one."""
    api = stack.gateway.user("ann", tenant="forgers")
    run_id = (await api.start("unserved"))["runId"]
    listing = ["runs", "forgers", "ann", None, None, None]
    longer = body.replace(b"]", b',"x"]')
    for position in (body, longer):
        refused(await api.get("/v1/runs", cursor=sealed(listing, position)), "cursor")
        for name in (["messages", run_id, "asc"], ["invocations", run_id]):
            refused(await api.get(f"/v1/runs/{run_id}/{name[0]}", cursor=sealed(name, position)), "cursor")
    assert (await api.get("/v1/runs", cursor=sealed(listing, b'[1,"x"]'))).status_code == 200


def sealed(listing: list[str | None], position: bytes) -> str:
    """As the gateway makes them, of anything."""
    checksum = zlib.crc32(json.dumps(listing, separators=(",", ":")).encode() + position).to_bytes(4, "big")
    return base64.urlsafe_b64encode(checksum + position).decode().rstrip("=")


@on_sqlite
async def test_a_cursor_belongs_to_its_run_and_its_order(stack: Stack) -> None:
    stack.standin.answers(*[says("x")] * 2)
    api = stack.gateway.user()
    paths = [f"/v1/runs/{(await api.run('talker'))['runId']}/messages" for _ in range(2)]
    cursor = (await api.get(paths[0], limit=1)).json()["nextCursor"]
    assert (await api.get(paths[0], limit=1, cursor=cursor)).status_code == 200
    refused(await api.get(paths[1], limit=1, cursor=cursor), "cursor")
    refused(await api.get(paths[0], limit=1, cursor=cursor, order="desc"), "cursor")
    refused(await api.get("/v1/runs", limit=1, cursor=cursor), "cursor")


def changed(cursor: str) -> list[str]:
    """The cursor with one character changed, at every place; and cut, and longer."""
    other = {character: "A" if character != "A" else "B" for character in cursor}
    # The last character may hold bits that no byte has: not all changes of it are changes of what it says.
    one_off = [cursor[:at] + other[cursor[at]] + cursor[at + 1 :] for at in range(len(cursor) - 1)]
    return [*one_off, cursor[:-2], cursor + secrets.token_hex(2)]


def refused(response: Any, field: str) -> None:
    assert response.status_code == 400, response.text
    error = response.json()["error"]
    assert error["code"] == "INVALID_ARGS"
    if field.endswith("."):
        assert error["fields"]
        assert all(name.startswith(field) for name in error["fields"])
    else:
        assert error["fields"] == [field]
    assert field in error["message"]
