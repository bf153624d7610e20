"""What scales the two roles: KEDA by the runs' rows, the gateways by processor time."""

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from tests.contract.store.backlog import fill
from tests.databases import postgres_database
from tests.deploy.manifests import Manifest, environment, find

from runyard.db.migrate import upgrade
from runyard.queue.wakeups import queue_name
from runyard.settings import Settings

ROWS = "SELECT count(*) FROM agent_runs WHERE status IN ('queued', 'running') AND queue = 'queue-0'"


def trigger(objects: list[Manifest]) -> dict[str, Any]:
    (found,) = find(objects, "ScaledObject", "runyard-worker")["spec"]["triggers"]
    return found


def query(objects: list[Manifest], queue: str) -> str:
    return trigger(objects)["metadata"]["query"].replace("'default'", f"'{queue}'")


@pytest.fixture(scope="module")
def database() -> Iterator[psycopg.Connection]:
    with postgres_database() as url:
        upgrade(url)
        fill(url, tenant_id="acme", user_id="ann")
        with psycopg.connect(url, autocommit=True) as link:
            yield link


def test_the_query_counts_the_runs_that_want_a_slot(
    rendered: dict[str, list[Manifest]], database: psycopg.Connection
) -> None:
    (expected,) = database.execute(ROWS).fetchone()
    assert expected > 0
    assert database.execute(query(rendered["prod"], "queue-0")).fetchone() == (expected,)


def test_the_query_reads_no_run_that_is_at_rest(
    rendered: dict[str, list[Manifest]], database: psycopg.Connection
) -> None:
    plan = database.execute(f"EXPLAIN {query(rendered['prod'], 'queue-0')}").fetchall()
    assert [line for (line,) in plan if "Seq Scan" in line] == []


def test_the_query_asks_for_the_queues_that_workers_serve(rendered: dict[str, list[Manifest]]) -> None:
    queues = environment(rendered["prod"], "worker")["RUNYARD_QUEUES"].split(",")
    listed = ", ".join(f"'{queue}'" for queue in queues)
    assert trigger(rendered["prod"])["metadata"]["query"].count(f"queue IN ({listed})") == 2


def test_a_worker_is_added_before_all_slots_are_taken(rendered: dict[str, list[Manifest]]) -> None:
    slots = int(environment(rendered["prod"], "worker")["RUNYARD_WORKER_SLOTS"])
    assert slots / 2 < int(trigger(rendered["prod"])["metadata"]["targetQueryValue"]) < slots


def test_broker_triggers_name_the_queue(rendered: dict[str, list[Manifest]]) -> None:
    prefix = Settings.model_fields["prefix"].default
    name = queue_name(prefix, "default")
    assert trigger(rendered["dev-ingress"])["metadata"]["queueName"] == name
    assert trigger(rendered["dev-keda-redis"])["metadata"]["listName"] == f"{prefix}:broker:{name}"


def test_broker_triggers_never_take_what_waits_for_what_is_needed(rendered: dict[str, list[Manifest]]) -> None:
    """With AverageValue ten waiting runs would shrink forty full workers to two."""
    assert trigger(rendered["dev-ingress"])["metricType"] == "Value"
    assert trigger(rendered["dev-keda-redis"])["metricType"] == "Value"


def test_whoever_scales_alone_says_how_many(rendered: dict[str, list[Manifest]]) -> None:
    for name, objects in rendered.items():
        assert "replicas" not in find(objects, "Deployment", "runyard-gateway")["spec"]
        scaled = any(item["kind"] == "ScaledObject" for item in objects)
        assert ("replicas" in find(objects, "Deployment", "runyard-worker")["spec"]) is not scaled, name


def test_gateways_grow_at_once_and_shrink_slowly(objects: list[Manifest]) -> None:
    scaler = find(objects, "HorizontalPodAutoscaler", "runyard-gateway")["spec"]
    assert scaler["minReplicas"] >= 2
    assert scaler["behavior"]["scaleUp"]["stabilizationWindowSeconds"] == 0
    assert scaler["behavior"]["scaleDown"]["policies"] == [{"type": "Pods", "value": 1, "periodSeconds": 60}]
    assert (
        "cpu"
        in find(objects, "Deployment", "runyard-gateway")["spec"]["template"]["spec"]["containers"][0]["resources"][
            "requests"
        ]
    )
