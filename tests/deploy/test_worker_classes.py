"""A second class of workers, made as docs/scaling.md says: a copy of the workers' Deployment in an overlay."""

import shutil

import pytest
import yaml
from tests.deploy.manifests import K8S, ROOT, Manifest, build, environment, find


@pytest.fixture(scope="module")
def with_a_class(tmp_path_factory: pytest.TempPathFactory) -> list[Manifest]:
    """A copy of the overlay prod, with workers of the queue `gpu`."""
    root = tmp_path_factory.mktemp("copy")
    for name in ("k8s", "deploy"):
        shutil.copytree(ROOT / name, root / name)
    folder = root / "k8s" / "overlays" / "prod"
    kustomization = yaml.safe_load((folder / "kustomization.yaml").read_text())
    kustomization["resources"].append("gpu.yaml")
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
    copied = list(yaml.safe_load_all((K8S / "base" / "worker.yaml").read_text()))
    deployment = find(copied, "Deployment", "runyard-worker")
    deployment["metadata"]["name"] = "runyard-worker-gpu"
    (worker,) = deployment["spec"]["template"]["spec"]["containers"]
    worker["env"].append({"name": "RUNYARD_QUEUES", "value": "gpu"})
    (folder / "gpu.yaml").write_text(yaml.safe_dump(deployment))
    return build(folder)


def selects(labels: dict[str, str], selector: Manifest) -> bool:
    return selector.get("matchLabels", {}).items() <= labels.items()


def test_the_copy_selects_its_own_pods(with_a_class: list[Manifest]) -> None:
    """Otherwise the cluster refuses it."""
    spec = find(with_a_class, "Deployment", "runyard-worker-gpu")["spec"]
    assert selects(spec["template"]["metadata"]["labels"], spec["selector"])


def test_it_has_the_settings_and_images_of_the_others_and_its_queue(with_a_class: list[Manifest]) -> None:
    others, own = environment(with_a_class, "worker"), environment(with_a_class, "worker-gpu")
    assert own == others | {"RUNYARD_QUEUES": "gpu"}
    pods = [
        find(with_a_class, "Deployment", name)["spec"]["template"]["spec"]
        for name in ("runyard-worker", "runyard-worker-gpu")
    ]
    assert pods[0]["containers"][0]["image"] == pods[1]["containers"][0]["image"]
    assert find(with_a_class, "ServiceAccount", pods[1]["serviceAccountName"])


def test_policies_and_one_budget_are_for_it_too(with_a_class: list[Manifest]) -> None:
    own, others = (
        find(with_a_class, "Deployment", name)["spec"]["template"]["metadata"]["labels"]
        for name in ("runyard-worker-gpu", "runyard-worker")
    )
    assert own == others  # whatever selects one of them selects the other
    budgets = [item for item in with_a_class if item["kind"] == "PodDisruptionBudget"]
    assert [budget["metadata"]["name"] for budget in budgets if selects(own, budget["spec"]["selector"])] == [
        "runyard-worker"
    ]
