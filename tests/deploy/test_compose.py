"""`compose.yaml`: every role from the Dockerfile's stages, each part awaited by what needs it."""

import re

import pytest
from tests.deploy.compose import SERVICES, WRITTEN, services
from tests.deploy.manifests import ROOT, Manifest, find
from tests.deploy.test_roles import DEFAULT_PORT, seconds
from tests.dockerfile import stages

ROLES = ("gateway", "worker", "migrate")


@pytest.mark.parametrize("role", ROLES)
def test_a_role_is_built_from_its_stage(role: str) -> None:
    service = SERVICES[role]
    target = "worker" if role == "worker" else "gateway"
    assert service["build"] == {"context": ".", "target": target}
    assert target in stages()
    assert service["image"] == f"runyard-{target}"


@pytest.mark.parametrize("role", ROLES)
def test_a_role_is_confined(role: str) -> None:
    service = SERVICES[role]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["tmpfs"] == ["/tmp"]


@pytest.mark.parametrize("name", SERVICES)
def test_what_is_waited_for_can_tell(name: str) -> None:
    for awaited, how in SERVICES[name].get("depends_on", {}).items():
        if how["condition"] == "service_healthy":
            assert SERVICES[awaited]["healthcheck"]["test"][0] == "CMD"
        else:
            assert (how["condition"], awaited) == ("service_completed_successfully", "migrate")


@pytest.mark.parametrize("role", ROLES)
def test_urls_name_services_that_run(role: str) -> None:
    hosts = [
        re.sub(r"^\w+://(?:[^@/]*@)?([\w-]+).*$", r"\1", value)
        for name, value in SERVICES[role]["environment"].items()
        if name.endswith("_URL")
    ]
    assert hosts
    assert set(hosts) <= set(SERVICES)


def test_only_the_gateway_is_reached_from_outside_and_on_loopback() -> None:
    assert [name for name, service in SERVICES.items() if "ports" in service] == ["gateway"]
    assert SERVICES["gateway"]["ports"] == [f"127.0.0.1:${{RUNYARD_PORT:-{DEFAULT_PORT}}}:{DEFAULT_PORT}"]
    assert f"127.0.0.1:{DEFAULT_PORT}/readyz" in SERVICES["gateway"]["healthcheck"]["test"][-1]


@pytest.mark.parametrize("role", ["gateway", "worker"])
def test_metrics_are_where_the_guide_says(role: str) -> None:
    port = SERVICES[role]["environment"]["RUNYARD_METRICS_PORT"]
    assert f"Metrics are at port {port} of both roles" in (ROOT / "docs/deploy.md").read_text()


def test_a_worker_is_healthy_when_it_can_work(rendered) -> None:
    """So `docker compose up --wait` returns when calls have a worker. That it shows its metrics no earlier,
    `tests/integration/test_worker_starts.py` holds.
    """
    worker, check = SERVICES["worker"], SERVICES["worker"]["healthcheck"]
    assert f"127.0.0.1:{worker['environment']['RUNYARD_METRICS_PORT']}/metrics" in check["test"][-1]
    (container,) = find(rendered["prod"], "Deployment", "runyard-worker")["spec"]["template"]["spec"]["containers"]
    probe = container["startupProbe"]
    assert seconds(check["start_period"]) == probe["periodSeconds"] * probe["failureThreshold"]


def test_volumes_are_declared() -> None:
    used = {volume.partition(":")[0] for service in SERVICES.values() for volume in _named(service)}
    assert used == set(WRITTEN["volumes"])


def test_a_worker_has_the_time_that_it_has_in_kubernetes(rendered) -> None:
    pod = find(rendered["prod"], "Deployment", "runyard-worker")["spec"]["template"]["spec"]
    assert seconds(SERVICES["worker"]["stop_grace_period"]) == pod["terminationGracePeriodSeconds"]


def test_what_tools_leave_behind_is_reaped(objects: list[Manifest]) -> None:
    assert SERVICES["worker"]["init"] is True
    assert find(objects, "Deployment", "runyard-worker")["spec"]["template"]["spec"]["shareProcessNamespace"] is True


def test_the_agents_are_mounted_where_the_image_looks() -> None:
    (volume,) = SERVICES["worker"]["volumes"]
    assert f"RUNYARD_AGENTS={volume['target']}" in stages()["worker"].arguments("ENV")
    assert volume["source"] == "${RUNYARD_AGENTS:-./agents}"
    (volume,) = services(RUNYARD_JWT_SECRET="s" * 32, RUNYARD_AGENTS="agents")["worker"]["volumes"]
    assert (volume["type"], volume["source"]) == (
        "bind",
        str(ROOT / "agents"),
    )  # .env.example's, and no volume so called


def _named(service: dict) -> list[str]:
    return [volume for volume in service.get("volumes", []) if isinstance(volume, str)]
