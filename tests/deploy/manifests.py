"""The manifests that `k8s/` renders to, as data."""

import base64
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from scripts.manifests import Missing, tool

ROOT = Path(__file__).parents[2]
K8S = ROOT / "k8s"
OVERLAYS = ("dev", "prod")
WORKLOADS = ("Deployment", "StatefulSet", "Job")

VARIANTS = {
    "dev-redis-broker": {"overlay": "dev", "components": ["redis-broker"]},
    "dev-ingress": {"overlay": "dev", "components": ["ingress", "keda-rabbitmq"]},
    "dev-keda-redis": {"overlay": "dev", "components": ["keda-redis"]},
    "dev-tracing": {"overlay": "dev", "components": ["tracing"]},
}
"""What the overlays do not use, on top of one of them. Between them and the overlays every component is built."""

Manifest = dict[str, Any]


def command(name: str) -> Path:
    try:
        return tool(name)
    except Missing as missing:
        pytest.fail(str(missing), pytrace=False)


def build(folder: Path) -> list[Manifest]:
    """What `kubectl apply -k` would apply."""
    done = subprocess.run([command("kubectl"), "kustomize", folder], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""  # what is deprecated is told there
    return list(yaml.safe_load_all(done.stdout))


def write_variant(folder: Path, *, overlay: str, components: list[str]) -> None:
    def named(path: Path) -> str:
        return os.path.relpath(path, folder.resolve())

    kustomization = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "namespace": yaml.safe_load((K8S / "overlays" / overlay / "kustomization.yaml").read_text())["namespace"],
        "resources": [named(K8S / "overlays" / overlay)],
        "components": [named(K8S / "components" / name) for name in components],
    }
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))


def find(objects: list[Manifest], kind: str, name: str) -> Manifest:
    (found,) = [item for item in objects if item["kind"] == kind and item["metadata"]["name"] == name]
    return found


def pods(objects: list[Manifest]) -> Iterator[tuple[str, Manifest]]:
    """The name and the pod template of each workload."""
    for item in objects:
        if item["kind"] in WORKLOADS:
            yield item["metadata"]["name"], item["spec"]["template"]


def container(objects: list[Manifest], name: str) -> Manifest:
    """The one container of the workload `runyard-<name>`."""
    kind = "Job" if name == "migrate" else "Deployment"
    (found,) = find(objects, kind, f"runyard-{name}")["spec"]["template"]["spec"]["containers"]
    return found


def environment(objects: list[Manifest], name: str) -> dict[str, str]:
    """The variables of a role's container, as its process would see them.

    A value from a Secret that is not among the objects is written `<secret>/<key>`; optional ones are left out then.
    """
    found = container(objects, name)
    variables: dict[str, str] = {}
    for source in found.get("envFrom", []):
        variables |= find(objects, "ConfigMap", source["configMapRef"]["name"])["data"]
    for entry in found["env"]:
        if "value" in entry:
            variables[entry["name"]] = entry["value"]
            continue
        reference = entry["valueFrom"]["secretKeyRef"]
        value = _secret(objects, reference["name"], reference["key"])
        if value is None and reference.get("optional"):
            continue
        variables[entry["name"]] = value or f"{reference['name']}/{reference['key']}"
    return variables


def asked_of_secrets(objects: list[Manifest]) -> dict[str, set[str]]:
    """The keys that Runyard's own containers read, by Secret."""
    asked: dict[str, set[str]] = {}
    for name in ("gateway", "worker", "migrate"):
        for entry in container(objects, name)["env"]:
            if reference := entry.get("valueFrom", {}).get("secretKeyRef"):
                asked.setdefault(reference["name"], set()).add(reference["key"])
    return asked


def _secret(objects: list[Manifest], name: str, key: str) -> str | None:
    for item in objects:
        if item["kind"] == "Secret" and item["metadata"]["name"] == name:
            return base64.b64decode(item["data"][key]).decode() if key in item["data"] else None
    return None
