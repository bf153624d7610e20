"""Metrics as Prometheus reads them from real processes, against what happened and what the rows say."""

import signal

import pytest
from tests.clients.metrics import scraped, shows, value
from tests.integration.fixtures import on_sqlite
from tests.integration.stack import Stack
from tests.ports import free_port
from tests.standin import says

pytestmark = pytest.mark.anyio


@on_sqlite
async def test_a_call_is_counted_on_its_whole_way(stack: Stack, unique: str) -> None:
    stack.standin.answers(says("Let me see. ").calls("charge", {"order": unique}), says("Done."))
    gateway_port, worker_port = free_port(), free_port()
    async with (
        stack.starting_gateway(RUNYARD_METRICS_PORT=str(gateway_port)) as gateway,
        stack.starting_worker(
            RUNYARD_METRICS_PORT=str(worker_port), RUNYARD_QUEUES="relay", RUNYARD_WORKER_SLOTS="3"
        ) as worker,
    ):
        api = gateway.user(tenant=unique)
        async with api.streaming("relay", "act") as reading:
            await reading.opened()
            await reading.rest()
        assert (await api.get("/v1/runs/run_none")).status_code == 404
        await shows(worker_port, "runyard_invocations_settled_total", 1, agent="relay", status="completed", code="")
        seen = scraped(worker_port)
        (row,) = (await api.get("/v1/runs", limit=1)).json()["items"]
        model = (await api.messages(row["id"]))[-1]["model"]
        for kind in ("input_tokens", "output_tokens"):
            assert value(seen, "runyard_tokens_total", model=model, kind=kind) == row["usage"][kind]
        assert value(seen, "runyard_cost_usd_total", model=model) == pytest.approx(row["cost"]["amount"])
        assert value(seen, "runyard_step_seconds_count", agent="relay", model=model) == row["steps"] == 2
        assert value(seen, "runyard_first_token_seconds_count", agent="relay") == 1
        assert value(seen, "runyard_tool_seconds_count", agent="relay") == 1
        assert value(seen, "runyard_tool_errors_total", agent="relay") == 0
        assert value(seen, "runyard_frames_total") == reading.events[-1].seq
        assert value(seen, "runyard_frame_bytes_total") > 0
        assert (value(seen, "runyard_slots"), value(seen, "runyard_slots_taken")) == (3, 0)
        told = scraped(gateway_port)
        assert value(told, "runyard_calls_accepted_total", agent="relay") == 1
        assert value(told, "runyard_http_failures_total", code="RUN_NOT_FOUND") == 1
        assert value(told, "runyard_open_streams") == 0
        assert value(told, "runyard_depth_known") == 1
        await shows(gateway_port, "runyard_queue_slots", 3, queue="relay")
        queued = [await api.start("unserved") for _ in range(2)]
        ((waiting,),) = stack.execute("SELECT count(*) FROM agent_runs WHERE status = 'queued' AND queue = 'unserved'")
        await shows(gateway_port, "runyard_queue_runs", waiting, queue="unserved", status="queued")
        await shows(gateway_port, "runyard_queue_unserved", waiting, queue="unserved", agent="unserved")
        for run in queued:
            await api.post(f"/v1/runs/{run['runId']}/cancel")
        for samples in (seen, told):
            assert unique not in str(samples)
            assert row["id"] not in str(samples)
        worker.send(signal.SIGTERM)
        assert await worker.exited() == 0


@on_sqlite
async def test_a_port_that_is_taken_stops_the_start(stack: Stack) -> None:
    taken = str(free_port())
    async with stack.starting_gateway(RUNYARD_METRICS_PORT=taken):
        for module in ("runyard_gateway", "runyard_workers"):
            with stack.process(module, RUNYARD_METRICS_PORT=taken) as second:
                assert await second.exited() == 2
                last = second.log.read_text().splitlines()[-1]
                assert last == f"error: port {taken} on 127.0.0.1 is in use (RUNYARD_METRICS_PORT)"
