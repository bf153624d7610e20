"""Metrics as Prometheus reads them from real processes, each against what happened and what the rows say; their logs.

Metrics that a worker's death, a broker or a database that is away count are read where these things happen: in
`tests/fault`, and in `tests/contract/http/test_failures.py`.
"""

import asyncio
import signal
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest
from tests.clients.api import Api
from tests.clients.metrics import Samples, scraped, shows, value
from tests.clients.tokens import SECRET, token
from tests.contract.http.keys import add_key
from tests.integration.fixtures import on_sqlite
from tests.integration.processes import Process, eventually
from tests.integration.stack import API_KEY, MODEL, Gateway, Stack
from tests.ports import free_port
from tests.standin import calls, hold, refuses, says, thinks

from runyard.db.engine import sync_engine
from runyard.queue.links import redis_queue_key

pytestmark = [pytest.mark.anyio, on_sqlite]

SLOTS = 2
KEPT_BYTES = 20_000
TALKATIVE = {"RUNYARD_LOG_LEVEL": "debug"}


@dataclass(frozen=True, kw_only=True)
class Watched:
    """A gateway, and a worker that alone serves the agent `relay`, which keeps little of a stream."""

    gateway: Gateway
    gateway_port: int
    worker: Process
    worker_port: int

    def told(self) -> Samples:
        return scraped(self.gateway_port)

    def seen(self) -> Samples:
        return scraped(self.worker_port)


class Counted:
    """What a process counts from now on."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._before = scraped(port)

    async def rise(self, name: str, by: float, **labels: str) -> None:
        await shows(self._port, name, value(self._before, name, **labels) + by, **labels)

    def risen(self, name: str, **labels: str) -> float:
        return value(scraped(self._port), name, **labels) - value(self._before, name, **labels)


@pytest.fixture(scope="module")
async def watched(sqlite_stack: Stack) -> AsyncIterator[Watched]:
    gateway_port, worker_port = free_port(), free_port()
    relay = {"RUNYARD_QUEUES": "relay", "RUNYARD_WORKER_SLOTS": str(SLOTS), "RUNYARD_STREAM_MAX_BYTES": str(KEPT_BYTES)}
    async with (
        sqlite_stack.starting_gateway(RUNYARD_METRICS_PORT=str(gateway_port), **TALKATIVE) as gateway,
        sqlite_stack.starting_worker(RUNYARD_METRICS_PORT=str(worker_port), **relay, **TALKATIVE) as worker,
    ):
        yield Watched(gateway=gateway, gateway_port=gateway_port, worker=worker, worker_port=worker_port)


@pytest.fixture
def api(watched: Watched, unique: str) -> Api:
    return watched.gateway.user(tenant=unique)


async def test_a_call_is_counted_on_its_whole_way(stack: Stack, watched: Watched, api: Api, unique: str) -> None:
    stack.standin.answers(says("Let me see. ").calls("charge", {"order": unique}), says("Done."))
    gateway, worker = Counted(watched.gateway_port), Counted(watched.worker_port)
    async with api.streaming("relay", "act") as reading:
        await reading.opened()
        await reading.rest()
    await worker.rise("runyard_invocations_settled_total", 1, agent="relay", status="completed", code="")
    (row,) = (await api.get("/v1/runs", limit=1)).json()["items"]
    for kind in ("input_tokens", "output_tokens"):
        assert worker.risen("runyard_tokens_total", model=MODEL, kind=kind) == row["usage"][kind]
    assert worker.risen("runyard_cost_usd_total", model=MODEL) == pytest.approx(row["cost"]["amount"])
    assert worker.risen("runyard_step_seconds_count", agent="relay", model=MODEL) == row["steps"] == 2
    assert worker.risen("runyard_first_token_seconds_count", agent="relay") == 1
    assert worker.risen("runyard_tool_seconds_count", agent="relay") == 1
    assert worker.risen("runyard_tool_errors_total", agent="relay") == 0
    await worker.rise("runyard_frames_total", reading.events[-1].seq or 0)
    assert worker.risen("runyard_frame_bytes_total") > 0
    assert gateway.risen("runyard_calls_accepted_total", agent="relay") == 1
    for samples in (watched.told(), watched.seen()):
        assert unique not in str(samples)
        assert row["id"] not in str(samples)


async def test_streams_are_counted_while_they_are_open(stack: Stack, watched: Watched, api: Api, unique: str) -> None:
    stack.standin.answers(says("half ", hold(unique), "and half"))
    gateway = Counted(watched.gateway_port)
    await shows(watched.gateway_port, "runyard_open_streams", 0)
    async with api.streaming("relay") as reading:
        await reading.until_text("half ")
        await shows(watched.gateway_port, "runyard_open_streams", 1)
        async with api.resuming(reading.stream_id, reading.last_event_id) as resumed:
            await resumed.opened()
            await shows(watched.gateway_port, "runyard_open_streams", 2)
            assert gateway.risen("runyard_stream_resumes_total") == 1
            stack.standin.gate(unique).release()
            await resumed.rest()
        await reading.rest()
    await shows(watched.gateway_port, "runyard_open_streams", 0)


async def test_errors_are_counted_by_their_codes(stack: Stack, watched: Watched, api: Api) -> None:
    stack.standin.answers(says(*[f"{number} " for number in range(300)]))
    gateway = Counted(watched.gateway_port)
    started = await api.start("relay")
    await api.settled(started["invocationId"])
    assert (await api.get(f"/v1/streams/{started['streamId']}", since="1")).status_code == 410
    assert gateway.risen("runyard_http_failures_total", code="STREAM_GONE") == 1
    assert (await api.get("/v1/runs/run_none")).status_code == 404
    assert gateway.risen("runyard_http_failures_total", code="RUN_NOT_FOUND") == 1


async def test_tools_that_fail_are_counted(stack: Stack, watched: Watched, api: Api) -> None:
    stack.standin.answers(calls("explode", {"text": "boom"}), says("Sorry."))
    worker = Counted(watched.worker_port)
    await api.run("relay")
    assert worker.risen("runyard_tool_errors_total", agent="relay") == 1
    assert worker.risen("runyard_tool_seconds_count", agent="relay") == 1


async def test_a_model_that_fails_is_counted_and_so_is_the_next_try(stack: Stack, watched: Watched, api: Api) -> None:
    stack.standin.answers(refuses(529, headers={"retry-after": "0"}), says("Well."), contains="busy")
    stack.standin.answers(refuses(400), contains="refused")
    worker = Counted(watched.worker_port)
    assert (await api.run("relay", "busy"))["status"] == "completed"
    assert worker.risen("runyard_model_errors_total", model=MODEL, code="PROVIDER_ERROR") == 1
    assert worker.risen("runyard_model_retries_total", model=MODEL) == 1
    assert (await api.run("relay", "refused"))["status"] == "failed"
    settled = {"agent": "relay", "status": "failed", "code": "PROVIDER_ERROR"}
    await worker.rise("runyard_invocations_settled_total", 1, **settled)
    assert worker.risen("runyard_model_errors_total", model=MODEL, code="PROVIDER_ERROR") == 2
    assert worker.risen("runyard_model_retries_total", model=MODEL) == 1


async def test_a_cancel_is_measured_to_its_end(stack: Stack, watched: Watched, api: Api, unique: str) -> None:
    stack.standin.answers(says("half ", hold(unique)))
    worker = Counted(watched.worker_port)
    async with api.streaming("relay") as reading:
        await reading.until_text("half ")
        run_id = reading.response.headers["x-run-id"]
        assert (await api.post(f"/v1/runs/{run_id}/cancel")).status_code == 202
        await reading.rest()
    await worker.rise("runyard_cancel_seconds_count", 1)
    await worker.rise("runyard_invocations_settled_total", 1, agent="relay", status="cancelled", code="")


async def test_a_link_is_in_use_while_its_transaction_lasts(stack: Stack, watched: Watched, api: Api) -> None:
    for port in (watched.gateway_port, watched.worker_port):
        await shows(port, "runyard_database_links_in_use", 0)
        assert value(scraped(port), "runyard_database_links") > 1
    engine = sync_engine(stack.backing.database_url)
    async with asyncio.TaskGroup() as tasks:
        with engine.begin():  # nobody else can write
            starting = tasks.create_task(api.start("unserved"))
            await shows(watched.gateway_port, "runyard_database_links_in_use", 1)
        started = await starting
    engine.dispose()
    await shows(watched.gateway_port, "runyard_database_links_in_use", 0)
    await api.post(f"/v1/runs/{started['runId']}/cancel")


async def test_a_thread_is_busy_while_its_tool_runs(stack: Stack, watched: Watched, api: Api, unique: str) -> None:
    stack.standin.answers(calls("hold_thread", {"gate": unique}), says("Done."))
    started = await api.start("relay")
    await stack.gate_reached(unique)
    await shows(watched.worker_port, "runyard_tool_threads_busy", 1)
    stack.open_gate(unique)
    await api.settled(started["invocationId"])
    await shows(watched.worker_port, "runyard_tool_threads_busy", 0)


async def test_the_depth_is_that_of_the_rows(stack: Stack, watched: Watched, api: Api, unique: str) -> None:
    gates = [f"{unique}-{number}" for number in range(SLOTS)]
    for gate in gates:
        stack.standin.answers(calls("hold", {"gate": gate}), says("Done."), contains=gate)
    stack.standin.answers(says("Done."), contains="waits")
    port = watched.gateway_port
    held = [await api.start("relay", gate) for gate in gates]
    for gate in gates:
        await stack.gate_reached(gate)
    await shows(watched.worker_port, "runyard_slots_taken", SLOTS)
    assert value(watched.seen(), "runyard_slots") == SLOTS
    waiting = await api.start("relay", "waits")
    await shows(port, "runyard_queue_runs", SLOTS, queue="relay", status="running")
    await shows(port, "runyard_queue_runs", 1, queue="relay", status="queued")
    await shows(port, "runyard_queue_queued", 1, queue="relay", priority="interactive")
    await shows(port, "runyard_queue_queued", 0, queue="relay", priority="background")
    key = redis_queue_key(stack.backing.prefix, "relay")

    def messages_are_told() -> bool:
        """That of the run that waits; and of those that their worker claimed before it fetched their message."""
        told = value(watched.told(), "runyard_queue_messages", queue="relay", state="ready")
        return told == stack.redis.llen(key) > 0

    await eventually(messages_are_told, "number of messages")
    await shows(port, "runyard_queue_workers", 1, queue="relay")
    await shows(port, "runyard_queue_slots", SLOTS, queue="relay")
    await shows(port, "runyard_queue_draining", 0, queue="relay")
    oldest = {"queue": "relay", "priority": "interactive"}
    for name in ("runyard_queue_oldest_seconds", "runyard_queue_claimable_oldest_seconds"):
        await eventually(lambda name=name: value(watched.told(), name, **oldest) > 0, name)  # type: ignore[misc]
    await shows(port, "runyard_depth_known", 1)
    for gate in gates:
        stack.open_gate(gate)
    for run in (*held, waiting):
        await api.settled(run["invocationId"])
    await shows(watched.worker_port, "runyard_slots_taken", 0)

    queued = [await api.start("unserved") for _ in range(2)]
    ((rows,),) = stack.execute("SELECT count(*) FROM agent_runs WHERE status = 'queued' AND queue = 'unserved'")
    await shows(port, "runyard_queue_runs", rows, queue="unserved", status="queued")
    await shows(port, "runyard_queue_unserved", rows, queue="unserved", agent="unserved")
    for run in queued:
        await api.post(f"/v1/runs/{run['runId']}/cancel")


async def test_no_log_holds_what_anybody_wrote(stack: Stack, watched: Watched, unique: str) -> None:
    """Prompts, answers, thoughts, arguments, results, what callers attach, what is refused, tokens and keys."""
    mark = f"mark-{unique}"
    stack.standin.answers(
        thinks(mark).says(mark).calls("charge", {"order": mark}).calls("explode", {"text": mark}),
        calls("charge", {"order": mark, "amount": mark}),
        says("half ", hold(unique), mark),
        says(mark),
        contains=f"{mark} works",
    )
    stack.standin.answers(refuses(529, message=mark, headers={"retry-after": "0"}), contains=f"{mark} fails")
    stack.standin.answers(refuses(400, message=mark), contains=f"{mark} fails")
    stack.standin.answers(calls("wait_wrongly", {mark: mark}), says(mark), by="turn", contains=f"{mark} goes on")
    user = token(f"user-{unique}", tenant=unique)
    api, service = watched.gateway.bearer(user), watched.gateway.bearer(key := add_key(stack, unique, unique))
    described = {"title": mark, "metadata": {"m": mark}}
    async with api.streaming("relay", f"{mark} works", **described) as reading:
        await reading.until(lambda event: event.data == "half ")
        run_id = reading.response.headers["x-run-id"]
        assert (await api.post(f"/v1/runs/{run_id}/input", {"input": f"{mark} goes on"})).status_code == 202
        stack.standin.gate(unique).release()
        await reading.rest()
    assert (await api.run("relay", f"{mark} fails"))["status"] == "failed"
    as_user = {"as": {"userId": f"user-{unique}"}, "context": {"c": mark}, "ifBusy": "reject"}
    assert (await service.run("relay", f"{mark} goes on", **as_user))["status"] == "completed"
    refused = [
        await api.call("POST", "/v1/agents/relay/runs", content=f'{{"input": {mark}'.encode()),
        await api.post("/v1/agents/relay/runs", {"input": {"text": mark}}),
        await api.get("/v1/runs", cursor=mark, **{"metadata.m": mark}),
        await watched.gateway.bearer(f"{mark}.{mark}.{mark}").get("/v1/runs"),
        await api.post(f"/v1/runs/{run_id}/messages", [{"role": "assistant", "content": mark}]),
        await api.call("PATCH", f"/v1/runs/{run_id}", json={"title": [mark]}),
        await api.post("/v1/functions/refuse", {"input": {"status": 400, "saying": mark, "more": mark}}),
    ]
    assert {response.status_code for response in refused} <= {400, 401, 403}
    logged = {process.log.name: process.log.read_text() for process in stack.processes}
    assert run_id in logged[watched.gateway.process.log.name]
    for it in (mark, user, key, API_KEY, SECRET):
        assert [name for name, text in logged.items() if it in text] == [], it


async def test_every_change_of_a_run_is_one_line_that_names_it(stack: Stack, watched: Watched, api: Api) -> None:
    stack.standin.answers(says("Well."))
    response = await api.post("/v1/agents/relay/runs", {"input": "go"}, headers={"Prefer": "wait=30"})
    result = response.json()

    def lines_of_the_run() -> list[dict[str, Any]]:
        logged = watched.gateway.process.events() + watched.worker.events()
        return [line for line in logged if line.get("run_id") == result["runId"]]

    await eventually(lambda: "run settled" in [line["event"] for line in lines_of_the_run()], "line of its end")
    lines = lines_of_the_run()
    assert [line["event"] for line in lines] == ["run queued", "run claimed", "run settled"]
    assert {line["invocation_id"] for line in lines} == {result["invocationId"]}
    assert lines[0]["request_id"] == response.headers["x-request-id"]
    [worker] = watched.worker.events("worker registered")
    assert [(line.get("generation"), line.get("worker_id")) for line in lines[1:]] == [(1, worker["worker_id"])] * 2


async def test_a_worker_that_leaves_tells_what_it_gave_back(
    stack: Stack, watched: Watched, api: Api, unique: str
) -> None:
    """One run stands at a boundary, and goes; another is in a tool that must not be cut, and holds the worker."""
    staying, going = f"{unique}-staying", f"{unique}-going"
    for gate in (staying, going):
        stack.standin.answers(calls("hold", {"gate": gate}), says("Done."), contains=gate)
    worker = Counted(watched.worker_port)
    runs = [await api.start("relay", gate) for gate in (staying, going)]
    for gate in (staying, going):
        await stack.gate_reached(gate)
    watched.worker.send(signal.SIGTERM)
    await shows(watched.gateway_port, "runyard_queue_draining", 1, queue="relay")
    stack.open_gate(going)
    await worker.rise("runyard_handovers_total", 1)
    stack.open_gate(staying)
    assert await watched.worker.exited() == 0
    for run in runs:
        await api.post(f"/v1/runs/{run['runId']}/cancel")


async def test_a_port_that_is_taken_stops_the_start(stack: Stack, watched: Watched) -> None:
    taken = str(watched.gateway_port)
    for module in ("runyard_gateway", "runyard_workers"):
        with stack.process(module, RUNYARD_METRICS_PORT=taken) as second:
            assert await second.exited() == 2
            last = second.log.read_text().splitlines()[-1]
            assert last == f"error: port {taken} on 127.0.0.1 is in use (RUNYARD_METRICS_PORT)"
