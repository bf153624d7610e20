"""What is scraped is what pods show; the alerts fire when they should, and the same ones in Kubernetes."""

import json
import subprocess
from pathlib import Path

import pytest
import yaml
from scripts.alerts import ALERTS, FOLDER, PROMTOOL, RULE, prometheus_rule
from scripts.services.service import Unusable
from tests.deploy.manifests import K8S, Manifest, container, environment, find
from tests.deploy.test_environment import IMAGES, load

ROLES = ("gateway", "worker")
both = pytest.mark.parametrize("role", ROLES)


@pytest.fixture(scope="module")
def promtool() -> Path:
    """Without one the tests fail."""
    try:
        return PROMTOOL.find()
    except Unusable as error:
        pytest.fail(str(error), pytrace=False)


@pytest.mark.parametrize(
    "arguments", [("check", "rules", "alerts.yaml"), ("test", "rules", "alerts_test.yaml")], ids=["check", "test"]
)
def test_promtool_has_nothing_to_say(promtool: Path, arguments: tuple[str, ...]) -> None:
    done = subprocess.run([promtool, *arguments], cwd=FOLDER, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "SUCCESS" in done.stdout


def test_kubernetes_has_the_same_alerts(rendered: dict[str, list[Manifest]]) -> None:
    assert RULE.read_text() == prometheus_rule(), "`python -m scripts.alerts` writes it anew"
    rule = find(rendered["prod"], "PrometheusRule", "runyard")
    assert rule["spec"] == yaml.safe_load(ALERTS.read_text())


def test_the_dashboard_is_where_grafana_looks(rendered: dict[str, list[Manifest]]) -> None:
    (found,) = [
        item
        for item in rendered["prod"]
        if item["kind"] == "ConfigMap" and item["metadata"].get("labels", {}).get("grafana_dashboard") == "1"
    ]
    assert json.loads(found["data"]["dashboard.json"]) == json.loads((FOLDER / "dashboard.json").read_text())


@both
def test_a_pod_shows_its_metrics_at_the_port_that_it_names(objects: list[Manifest], role: str) -> None:
    ports = {port["name"]: port["containerPort"] for port in container(objects, role)["ports"]}
    assert str(ports["metrics"]) == environment(objects, role)["RUNYARD_METRICS_PORT"]


@both
def test_it_shows_them_on_all_addresses_of_the_pod(
    objects: list[Manifest], role: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = load(monkeypatch, {**IMAGES[role], **environment(objects, role)})
    assert (settings.host, settings.metrics_port) == ("0.0.0.0", 9090)


@both
def test_what_is_scraped_is_each_role_at_that_port(rendered: dict[str, list[Manifest]], role: str) -> None:
    objects = rendered["prod"]
    monitor = find(objects, "PodMonitor", "runyard")["spec"]
    (endpoint,) = monitor["podMetricsEndpoints"]
    assert (endpoint["port"], endpoint["path"]) == ("metrics", "/metrics")
    policy = find(objects, "NetworkPolicy", "runyard-metrics")["spec"]
    assert policy["podSelector"] == monitor["selector"]
    (rule,) = policy["ingress"]
    assert rule["ports"] == [{"protocol": "TCP", "port": "metrics"}]
    assert rule["from"] == [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}]
    labels = find(objects, "Deployment", f"runyard-{role}")["spec"]["template"]["metadata"]["labels"]
    assert monitor["selector"]["matchLabels"].items() <= labels.items()
    (expression,) = monitor["selector"]["matchExpressions"]
    assert labels[expression["key"]] in expression["values"]


def test_nobody_reads_metrics_who_is_not_let_in(rendered: dict[str, list[Manifest]]) -> None:
    """They ask for no token."""
    for objects in rendered.values():
        for policy in (item for item in objects if item["kind"] == "NetworkPolicy"):
            for rule in policy["spec"].get("ingress", []):
                ports = [port["port"] for port in rule["ports"]]
                assert "metrics" not in ports or policy["metadata"]["name"] == "runyard-metrics"


@both
def test_spans_may_leave_to_the_collector(rendered: dict[str, list[Manifest]], role: str) -> None:
    objects = rendered["dev-tracing"]
    endpoint = environment(objects, role)["OTEL_EXPORTER_OTLP_ENDPOINT"]
    (rule,) = find(objects, "NetworkPolicy", "runyard-traces")["spec"]["egress"]
    (allowed,) = rule["to"]
    namespace = allowed["namespaceSelector"]["matchLabels"]["kubernetes.io/metadata.name"]
    (port,) = rule["ports"]
    assert endpoint == f"http://collector.{namespace}:{port['port']}"
    assert "OTEL_EXPORTER_OTLP_ENDPOINT" not in environment(rendered["prod"], role)


def test_the_components_say_what_to_change() -> None:
    for name in ("monitoring", "tracing"):
        assert "your overlay" in (K8S / "components" / name / "kustomization.yaml").read_text()
