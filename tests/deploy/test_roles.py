"""The pods: images, ports and probes that are the product's, times that fit its own, and no right too many."""

import inspect
import re
from typing import Any

import pytest
from tests.deploy.manifests import Manifest, container, environment, find, pods
from tests.dockerfile import lineage, stages

from runyard.authoring.tools import tool
from runyard.db.migrate import REVISION_WAIT_S
from runyard.queue import consumption, wakeups
from runyard.settings import Settings
from runyard.traces import LAST_SPANS_S
from runyard_gateway.routes.probes import PROBES
from runyard_gateway.server import GRACE_S
from runyard_workers.beat import STUCK_ROUNDS
from runyard_workers.main import CLOSE_WAIT_S
from runyard_workers.runner import GIVE_BACK_S

DEFAULT_PORT = Settings.model_fields["port"].default
TOOL_TIMEOUT_S = inspect.signature(tool).parameters["timeout_s"].default

RUNYARD = ("gateway", "worker", "migrate")
STAGES = {"gateway": "gateway", "worker": "worker", "migrate": "gateway"}


def seconds(text: str) -> int:
    (number,) = re.fullmatch(r"(\d+)s", text).groups()
    return int(number)


def spec(objects: list[Manifest], role: str) -> dict[str, Any]:
    return find(objects, "Deployment", f"runyard-{role}")["spec"]


def pod(objects: list[Manifest], role: str) -> dict[str, Any]:
    return spec(objects, role)["template"]["spec"]


# Images, ports, probes -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("role", RUNYARD)
def test_an_image_is_a_stage_of_the_dockerfile_with_a_tag(objects: list[Manifest], role: str) -> None:
    repository, _, tag = container(objects, role)["image"].rpartition(":")
    assert repository.rpartition("/")[2] == f"runyard-{STAGES[role]}"
    assert STAGES[role] in stages()
    assert tag not in {"", "latest"}


def test_the_migration_runs_the_command(objects: list[Manifest]) -> None:
    assert container(objects, "migrate")["command"] == ["runyard", "migrate"]


def test_a_role_starts_as_its_image_does(objects: list[Manifest]) -> None:
    for role in ("gateway", "worker"):
        assert not {"command", "args"} & set(container(objects, role))


def test_the_port_is_the_gateways(objects: list[Manifest]) -> None:
    assert {"name": "http", "containerPort": DEFAULT_PORT} in container(objects, "gateway")["ports"]
    assert stages()["gateway"].arguments("EXPOSE") == [str(DEFAULT_PORT)]
    (port,) = find(objects, "Service", "runyard-gateway")["spec"]["ports"]
    assert port["targetPort"] == "http"
    assert "RUNYARD_PORT" not in environment(objects, "gateway")


def test_probes_ask_for_routes_of_the_gateway(objects: list[Manifest]) -> None:
    asked = {
        probe: container(objects, "gateway")[probe]["httpGet"]
        for probe in ("startupProbe", "livenessProbe", "readinessProbe")
    }
    assert {get["path"] for get in asked.values()} == {operation.path for operation in PROBES}
    assert {get["port"] for get in asked.values()} == {"http"}
    assert asked["readinessProbe"]["path"] == "/readyz"
    assert asked["livenessProbe"]["path"] == "/healthz"


def test_a_gateway_may_wait_for_the_migration_before_it_answers(objects: list[Manifest]) -> None:
    probe = container(objects, "gateway")["startupProbe"]
    assert probe["periodSeconds"] * probe["failureThreshold"] > REVISION_WAIT_S


def test_a_workers_probes_ask_for_what_it_shows_when_it_can_work(objects: list[Manifest]) -> None:
    """That it is shown no earlier, `tests/integration/test_worker_starts.py` holds."""
    part = container(objects, "worker")
    assert [name for name in part if name.endswith("Probe")] == ["livenessProbe", "startupProbe"]
    for probe in (part["livenessProbe"], part["startupProbe"]):
        assert probe["httpGet"] == {"path": "/metrics", "port": "metrics"}
    assert part["startupProbe"]["periodSeconds"] * part["startupProbe"]["failureThreshold"] > REVISION_WAIT_S


def test_a_worker_whose_loop_is_stuck_ends_itself_before_it_is_ended(objects: list[Manifest]) -> None:
    """It says why."""
    probe = container(objects, "worker")["livenessProbe"]
    assert STUCK_ROUNDS == 60  # what the manifest's comment says
    assert (probe["failureThreshold"] - 1) * probe["periodSeconds"] > STUCK_ROUNDS


# Times ---------------------------------------------------------------------------------------------------------------


def test_a_gateway_has_time_to_leave(objects: list[Manifest]) -> None:
    pre_stop = container(objects, "gateway")["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert pre_stop >= 5
    closing_s = GRACE_S + wakeups.CLOSE_WAIT_S + LAST_SPANS_S
    assert pod(objects, "gateway")["terminationGracePeriodSeconds"] >= pre_stop + closing_s


def test_a_worker_has_time_to_hand_its_runs_over(objects: list[Manifest]) -> None:
    drain_s = float(environment(objects, "worker")["RUNYARD_DRAIN_S"])
    closing_s = consumption.STOP_TIMEOUT_S + GIVE_BACK_S + CLOSE_WAIT_S + wakeups.CLOSE_WAIT_S + LAST_SPANS_S
    assert pod(objects, "worker")["terminationGracePeriodSeconds"] >= drain_s + TOOL_TIMEOUT_S + closing_s


@pytest.mark.parametrize("role", ["gateway", "worker"])
def test_a_rollout_takes_nobody_away_first(objects: list[Manifest], role: str) -> None:
    assert spec(objects, role)["strategy"]["rollingUpdate"]["maxUnavailable"] == 0


@pytest.mark.parametrize("role", ["gateway", "worker"])
def test_labels_select_the_pods_of_the_role(objects: list[Manifest], role: str) -> None:
    labels = spec(objects, role)["template"]["metadata"]["labels"]
    selectors = [
        spec(objects, role)["selector"]["matchLabels"],
        find(objects, "PodDisruptionBudget", f"runyard-{role}")["spec"]["selector"]["matchLabels"],
        find(objects, "NetworkPolicy", f"runyard-{role}")["spec"]["podSelector"]["matchLabels"],
        *(rule["labelSelector"]["matchLabels"] for rule in pod(objects, role)["topologySpreadConstraints"]),
    ]
    if role == "gateway":
        selectors.append(find(objects, "Service", "runyard-gateway")["spec"]["selector"])
    others = [item["metadata"]["labels"] for name, item in pods(objects) if name != f"runyard-{role}"]
    for selector in selectors:
        assert selector.items() <= labels.items()
        assert not any(selector.items() <= other.items() for other in others)


# Rights --------------------------------------------------------------------------------------------------------------


def test_every_pod_is_a_restricted_one(rendered: dict[str, list[Manifest]]) -> None:
    """The profile `restricted` of Kubernetes' Pod Security Standards, and a root file system that is only read."""
    for objects in rendered.values():
        for name, template in pods(objects):
            context = template["spec"]["securityContext"]
            assert context["runAsNonRoot"] is True, name
            assert context["runAsUser"] > 0
            assert context["seccompProfile"] == {"type": "RuntimeDefault"}
            assert template["spec"]["automountServiceAccountToken"] is False
            for part in template["spec"]["containers"]:
                assert part["securityContext"] == {
                    "allowPrivilegeEscalation": False,
                    "readOnlyRootFilesystem": True,
                    "capabilities": {"drop": ["ALL"]},
                }
                assert part["resources"]["requests"]["memory"] == part["resources"]["limits"]["memory"]


def test_namespaces_enforce_it(objects: list[Manifest]) -> None:
    (namespace,) = [item for item in objects if item["kind"] == "Namespace"]
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    name = namespace["metadata"]["name"]
    assert {item["metadata"]["namespace"] for item in objects if item is not namespace} == {name}


@pytest.mark.parametrize("role", RUNYARD)
def test_a_role_runs_as_the_images_user(objects: list[Manifest], role: str) -> None:
    users = [user for stage in lineage(STAGES[role]) for user in stage.arguments("USER")]
    kind = "Job" if role == "migrate" else "Deployment"
    context = find(objects, kind, f"runyard-{role}")["spec"]["template"]["spec"]["securityContext"]
    assert context["runAsUser"] == int(users[-1])


def test_no_service_sets_a_setting(rendered: dict[str, list[Manifest]]) -> None:
    """Kubernetes tells each pod the Services of its namespace: one called `runyard` as RUNYARD_PORT=tcp://..."""
    for objects in rendered.values():
        assert [name for name, template in pods(objects) if template["spec"]["enableServiceLinks"]] == []


def test_nothing_is_reached_but_what_is_named(rendered: dict[str, list[Manifest]]) -> None:
    for objects in rendered.values():
        denied = find(objects, "NetworkPolicy", "default-deny")["spec"]
        assert denied == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
        assert "ingress" not in find(objects, "NetworkPolicy", "runyard-worker")["spec"]
