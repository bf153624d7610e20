"""Each object is one that an API server would take, and one that keeps to the rules for safe ones."""

import json
import subprocess
from pathlib import Path

import pytest
import yaml
from tests.deploy.custom_resources import TRIGGERS, HTTPRoute
from tests.deploy.manifests import K8S, OVERLAYS, VARIANTS, Manifest, command

OLDEST = "1.30"
"""Named by docs/deploy.md: `preStop.sleep`."""

KEDA = ("ScaledObject", "TriggerAuthentication")
OPERATOR = ("PodMonitor", "PrometheusRule")
CUSTOM = {"HTTPRoute", *KEDA, *OPERATOR}


@pytest.fixture(scope="module")
def files(rendered: dict[str, list[Manifest]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a file for each overlay and variant: Kubernetes' own kinds, each object once."""
    folder, seen = tmp_path_factory.mktemp("rendered"), set()
    for name, objects in rendered.items():
        known = {json.dumps(item, sort_keys=True): item for item in objects if item["kind"] not in CUSTOM}
        (folder / f"{name}.yaml").write_text(yaml.safe_dump_all(known[text] for text in known if text not in seen))
        seen |= set(known)
    return folder


def custom(rendered: dict[str, list[Manifest]], kind: str) -> list[Manifest]:
    return [item for objects in rendered.values() for item in objects if item["kind"] == kind]


def test_every_component_is_built() -> None:
    used = [name for parts in VARIANTS.values() for name in parts["components"]]
    for overlay in OVERLAYS:
        kustomization = yaml.safe_load((K8S / "overlays" / overlay / "kustomization.yaml").read_text())
        used += [Path(component).name for component in kustomization["components"]]
    assert sorted(used) == sorted(path.name for path in (K8S / "components").iterdir())


@pytest.mark.parametrize("version", [OLDEST, "1.37"])
def test_kubernetes_knows_every_field(files: Path, version: str) -> None:
    validate = [command("kubernetes-validate"), "--strict", "--quiet", "--kubernetes-version", f"{version}.0"]
    done = subprocess.run(
        [*validate, *sorted(files.glob("*.yaml"))],
        check=False,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_checkov_has_nothing_to_say(files: Path) -> None:
    done = subprocess.run(
        [command("checkov"), "--config-file", K8S / "checkov.yaml", "--output", "json", "--directory", files],
        check=False,
        capture_output=True,
        text=True,
    )
    report = json.loads(done.stdout)
    failed = [
        (check["check_id"], check["check_name"], check["resource"]) for check in report["results"]["failed_checks"]
    ]
    assert failed == []
    assert report["summary"]["parsing_errors"] == 0
    assert report["summary"]["passed"] > 500


def test_every_exception_of_checkov_has_its_reason() -> None:
    lines = (K8S / "checkov.yaml").read_text().splitlines()
    exceptions = [number for number, line in enumerate(lines) if line.strip().startswith("- CKV")]
    assert exceptions
    assert [lines[number] for number in exceptions if not lines[number - 1].strip().startswith("# ")] == []


def test_every_exception_of_an_object_has_its_reason(rendered: dict[str, list[Manifest]]) -> None:
    reasons = [
        reason
        for objects in rendered.values()
        for item in objects
        for name, reason in item["metadata"].get("annotations", {}).items()
        if name.startswith("checkov.io/")
    ]
    assert reasons
    assert [reason for reason in reasons if len(reason.partition("=")[2]) < 20] == []


def test_a_route_is_one_of_the_gateway_api(rendered: dict[str, list[Manifest]]) -> None:
    (route,) = custom(rendered, "HTTPRoute")
    understood = HTTPRoute.model_validate(route)
    assert {rule.timeouts.request for rule in understood.spec.rules} == {"0s"}  # a stream lasts as long as its run


@pytest.mark.parametrize("models", [("keda.v1alpha1", *KEDA), ("prometheus_operator.v1", *OPERATOR)])
def test_an_operator_knows_every_field(rendered: dict[str, list[Manifest]], models: tuple[str, ...]) -> None:
    module, *kinds = models
    objects = [item for kind in kinds for item in custom(rendered, kind)]
    assert {item["kind"] for item in objects} == set(kinds)
    done = subprocess.run(
        [command("python"), Path(__file__).with_name("operator_models.py"), module],
        input=json.dumps(objects),
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == objects


def test_a_trigger_has_the_metadata_of_its_kind(rendered: dict[str, list[Manifest]]) -> None:
    triggers = [trigger for item in custom(rendered, "ScaledObject") for trigger in item["spec"]["triggers"]]
    for trigger in triggers:
        TRIGGERS[trigger["type"]].model_validate(trigger["metadata"])
    assert {trigger["type"] for trigger in triggers} == set(TRIGGERS)
