"""The one file of metrics against its users: the table in the docs, the code that counts, dashboard and alerts."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from prometheus_client import Histogram
from prometheus_client.metrics import MetricWrapperBase

from runyard import metrics

ROOT = Path(__file__).parents[2]
MONITORING = ROOT / "deploy/monitoring"
LABELS = {"agent", "code", "kind", "model", "queue", "state", "status", "priority"}
NAME = re.compile(r"\brunyard_\w+")

CONSTANTS = {name: it for name, it in vars(metrics).items() if isinstance(it, MetricWrapperBase)}


def exported(metric: MetricWrapperBase) -> str:
    """The name that queries use; a histogram's without its suffixes."""
    return metric._name + ("_total" if metric._type == "counter" else "")


def declared() -> Iterator[tuple[str, tuple[str, ...], str]]:
    for metric in CONSTANTS.values():
        yield exported(metric), tuple(metric._labelnames), metric._documentation
    for name, (meaning, labels) in metrics.DEPTH.items():
        yield name, labels, meaning


def queried(text: str) -> set[str]:
    histograms = {exported(it) for it in CONSTANTS.values() if isinstance(it, Histogram)}
    return {
        name.removesuffix("_bucket") if name.removesuffix("_bucket") in histograms else name
        for name in NAME.findall(text)
    }


def test_the_docs_have_the_same_table() -> None:
    rows = [line for line in (ROOT / "docs/metrics.md").read_text().splitlines() if line.startswith("| `runyard_")]
    assert rows == [
        f"| `{name}` | {', '.join(f'`{label}`' for label in labels)} | {meaning} |"
        for name, labels, meaning in declared()
    ]


def test_labels_are_bounded_by_what_is_deployed() -> None:
    for name, labels, _ in declared():
        assert set(labels) <= LABELS, name


def test_every_metric_is_read_where_runs_make_it_move() -> None:
    """By its whole name: what a test counts itself is no proof."""
    tests = "".join(
        path.read_text()
        for suite in ("contract", "integration", "fault")
        for path in (ROOT / "tests" / suite).rglob("*.py")
    )
    assert [name for name, _, _ in declared() if not re.search(rf"\b{name}(_count)?\b", tests)] == []


@pytest.mark.parametrize("constant", CONSTANTS)
def test_every_metric_is_counted_somewhere(constant: str) -> None:
    sources = [
        path.read_text()
        for part in ("shared/runyard", "gateway/runyard_gateway", "workers/runyard_workers")
        for path in (ROOT / part).rglob("*.py")
        if path.name != "metrics.py"
    ]
    assert any(re.search(rf"\b{constant}\.(labels|inc|dec|set|observe|set_function)\b", text) for text in sources)


def test_the_dashboard_shows_every_metric_and_no_other() -> None:
    dashboard = json.loads((MONITORING / "dashboard.json").read_text())
    shown = {name for panel in dashboard["panels"] for it in panel["targets"] for name in queried(it["expr"])}
    a_worker_has_for_ever = {"runyard_slots", "runyard_depth_known"}
    assert shown | a_worker_has_for_ever == {name for name, _, _ in declared()}


def misnamed(expression: str) -> set[str]:
    """Labels that an expression groups by or selects by, and that none of its metrics, or not that one, has."""
    labels = {name: set(labels) for name, labels, _ in declared()}
    names = {name: name.removesuffix("_bucket") for name in NAME.findall(expression)}
    known = set().union(*(labels.get(whole, set()) for whole in names.values())) | {"le", "instance"}
    wrong = {label for group in re.findall(r"\bby \(([^)]*)\)", expression) for label in group.split(", ")} - known
    for name, selected in re.findall(r"\b(runyard_\w+)\{([^}]*)\}", expression):
        wrong |= set(re.findall(r"(\w+)=~?\"", selected)) - labels.get(names[name], set())
    return wrong


@pytest.mark.parametrize(
    ("expression", "wrong"),
    [
        ("max by (queue, status) (runyard_queue_runs)", set()),
        ("max by (queue, agent) (runyard_queue_runs)", {"agent"}),
        ('sum(runyard_queue_runs{state="queued"})', {"state"}),
        ("sum by (le, agent) (rate(runyard_tool_seconds_bucket[5m]))", set()),
    ],
)
def test_a_label_that_a_metric_does_not_have_is_found(expression: str, wrong: set[str]) -> None:
    assert misnamed(expression) == wrong


def test_dashboard_and_alerts_ask_for_labels_that_exist() -> None:
    dashboard = json.loads((MONITORING / "dashboard.json").read_text())
    targets = [target for panel in dashboard["panels"] for target in panel["targets"]]
    groups = yaml.safe_load((MONITORING / "alerts.yaml").read_text())["groups"]
    asked = [target["expr"] for target in targets] + [rule["expr"] for group in groups for rule in group["rules"]]
    assert len(asked) > 40
    assert {expression: wrong for expression in asked if (wrong := misnamed(expression))} == {}
    for target in targets:
        shown = set(re.findall(r"{{(\w+)}}", target["legendFormat"]))
        grouped = {label for group in re.findall(r"\bby \(([^)]*)\)", target["expr"]) for label in group.split(", ")}
        assert shown <= grouped, target


def test_alerts_ask_for_metrics_that_exist() -> None:
    asked = queried(
        "".join(re.findall(r"expr: (?:\|-\n)?((?:.*\n)(?: {10}.*\n)*)", (MONITORING / "alerts.yaml").read_text()))
    )
    assert len(asked) >= 8
    assert asked <= {name for name, _, _ in declared()}


def test_every_alert_is_in_the_runbook_and_in_its_tests() -> None:
    alerts = re.findall(r"alert: (\w+)", (MONITORING / "alerts.yaml").read_text())
    _, _, runbook = (ROOT / "docs/operations.md").read_text().partition("\n## Runbook\n")
    entries = re.findall(r"^### (\w+)\n\n(Page|Ticket)\.", runbook, re.MULTILINE)
    severities = re.findall(r"severity: (\w+)", (MONITORING / "alerts.yaml").read_text())
    assert entries == list(zip(alerts, map(str.capitalize, severities), strict=True))
    fires = (MONITORING / "alerts_test.yaml").read_text()
    assert all(re.search(rf"{alert}\n\s+exp_alerts:\n", fires) for alert in alerts)
