"""`docs/deploy.md` says what the manifests, the Dockerfile and the command are."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from tests.deploy.compose import SERVICES
from tests.deploy.manifests import K8S, ROOT, Manifest, asked_of_secrets, build, container, environment, find
from tests.deploy.test_schemas import OLDEST
from tests.dockerfile import lineage, stages
from typer.main import get_command

from runyard.cli.command import app

GUIDE = (ROOT / "docs" / "deploy.md").read_text()
KUBECTL = {"apply", "wait", "port-forward", "exec", "create", "rollout", "delete", "get", "logs"}


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL)


def commands(program: str) -> list[list[str]]:
    """The words of each line of the guide that begins with the program."""
    lines = "".join(blocks("bash")).replace("\\\n", " ").splitlines()
    return [shlex.split(line.removesuffix("&")) for line in lines if line.startswith(f"{program} ")]


def table(heading: str) -> list[list[str]]:
    """The cells of the first table below a heading, without its head."""
    _, _, text = GUIDE.partition(f"\n{heading}\n")
    rows = re.search(r"(?:^\|.*\n)+", text, re.MULTILINE).group().splitlines()[2:]
    return [[cell.strip() for cell in row.strip("|").split(" | ")] for row in rows]


def test_ones_own_image_is_five_lines_from_the_workers(tmp_path: Path) -> None:
    (text,) = blocks("dockerfile")
    base, copy, *_, user = text.splitlines()
    assert len(text.splitlines()) == 5
    assert base.startswith("FROM runyard-worker:")
    assert f"RUNYARD_AGENTS={copy.split()[-1]}" in stages()["worker"].arguments("ENV")
    assert user.removeprefix("USER ") == [user for stage in lineage("worker") for user in stage.arguments("USER")][-1]
    assert "--python /opt/runyard " in text
    (tmp_path / "Dockerfile").write_text(text)
    done = subprocess.run(
        [Path(sys.executable).with_name("hadolint"), tmp_path / "Dockerfile"],
        check=False,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout) == (0, "")


def test_images_are_built_from_stages_and_named_as_they_are_used(rendered: dict[str, list[Manifest]]) -> None:
    builds = [words for words in commands("docker") if words[1] == "build"]
    assert {words[words.index("--target") + 1] for words in builds} == {"gateway", "worker", "worker-examples"}
    assert {words[words.index("--target") + 1] for words in builds} <= set(stages())
    dev = {container(rendered["dev"], role)["image"] for role in ("gateway", "worker", "migrate")}
    assert dev <= {words[words.index("-t") + 1] for words in builds}
    (loaded,) = commands("kind")
    assert dev == set(loaded[3:])


def test_kubectl_is_told_what_is_there(rendered: dict[str, list[Manifest]]) -> None:
    names = {(item["kind"].lower(), item["metadata"]["name"]) for objects in rendered.values() for item in objects}
    told = commands("kubectl")
    assert len(told) > 10
    for words in told:
        assert KUBECTL & set(words), words
        for at, word in enumerate(words):
            if word == "-k":
                assert (ROOT / words[at + 1] / "kustomization.yaml").exists(), words
            if word == "-n":
                assert ("namespace", words[at + 1]) in names, words
            if match := re.fullmatch(r"(deployment|job|service)/([\w-]+)", word):
                assert match.groups() in names, words


def test_the_migration_alone_can_be_applied(rendered: dict[str, list[Manifest]]) -> None:
    (selector,) = {words[words.index("-l") + 1] for words in commands("kubectl") if "-l" in words}
    label, _, value = selector.partition("=")
    chosen = {item["kind"] for item in rendered["prod"] if item["metadata"].get("labels", {}).get(label) == value}
    assert chosen == {"ServiceAccount", "Job", "NetworkPolicy"}


def test_runyard_has_the_commands() -> None:
    called = set(re.findall(r"(?:--|gateway) runyard ([a-z]+)", "".join(blocks("bash"))))
    assert {"token", "fsck"} <= called <= set(get_command(app).commands)


def test_components_are_those_that_there_are() -> None:
    named = re.findall(r"`([\w-]+)`", "".join(row[0] for row in table("## Production")))
    assert sorted(named) == sorted(path.name for path in (K8S / "components").iterdir())


def test_the_keys_of_the_secret_are_those_that_are_asked_for(rendered: dict[str, list[Manifest]]) -> None:
    objects = rendered["prod"]
    rows = {row[0].strip("`"): row[1] for row in table("### Secrets")}
    assert set(rows) == asked_of_secrets(objects)["runyard"]
    for role in ("gateway", "worker", "migrate"):
        for entry in container(objects, role)["env"]:
            if reference := entry.get("valueFrom"):
                assert f"`{entry['name']}`" in rows[reference["secretKeyRef"]["key"]]
    (create,) = [words for words in commands("kubectl") if "generic" in words]
    given = {word.removeprefix("--from-literal=").partition("=")[0] for word in create if "=" in word}
    assert given <= set(rows)
    assert {"database-url", "redis-url", "broker-url"} <= given


@pytest.mark.parametrize(("role", "column"), [("gateway", 1), ("worker", 2)])
def test_the_times_to_leave_are_those_of_the_manifests(
    rendered: dict[str, list[Manifest]], role: str, column: int
) -> None:
    rows = {row[0]: row for row in table("## When a pod leaves")}
    pod = find(rendered["prod"], "Deployment", f"runyard-{role}")["spec"]["template"]["spec"]
    assert rows["killed after"][column].strip(" |") == f"{pod['terminationGracePeriodSeconds']} s"


def test_numbers_in_the_text_are_those_of_the_manifests(rendered: dict[str, list[Manifest]]) -> None:
    scaled = find(rendered["prod"], "ScaledObject", "runyard-worker")["spec"]
    gateways = find(rendered["prod"], "HorizontalPodAutoscaler", "runyard-gateway")["spec"]
    text = " ".join(GUIDE.split())
    assert f"Kubernetes {OLDEST} or newer" in text
    assert (
        f"`RUNYARD_WORKER_SLOTS` runs at once, {environment(rendered['prod'], 'worker')['RUNYARD_WORKER_SLOTS']} here"
        in text
    )
    assert f"each {scaled['triggers'][0]['metadata']['targetQueryValue']} runs" in text
    assert f"{scaled['minReplicaCount']} at least and {scaled['maxReplicaCount']} at most" in text
    assert f"from {gateways['minReplicas']} to {gateways['maxReplicas']};" in text
    startup = container(rendered["prod"], "worker")["startupProbe"]
    assert f"{startup['periodSeconds'] * startup['failureThreshold'] // 60} minutes for that" in text
    assert f"`replicas`, {find(rendered['dev'], 'Deployment', 'runyard-worker')['spec']['replicas']}." in text


def test_a_migration_has_the_time_that_the_pages_say(rendered: dict[str, list[Manifest]]) -> None:
    minutes = find(rendered["prod"], "Job", "runyard-migrate")["spec"]["activeDeadlineSeconds"] // 60
    assert f"`activeDeadlineSeconds` of the Job ({minutes} minutes)" in (ROOT / "docs/upgrade.md").read_text()
    assert f"--timeout={minutes}m job/runyard-migrate" in GUIDE


def test_compose_takes_what_the_guide_says() -> None:
    taken = set(re.findall(r"\$\{(\w+)", (ROOT / "compose.yaml").read_text()))
    _, _, rest = GUIDE.partition("## One machine")
    told = set(re.findall(r"(?:RUNYARD|ANTHROPIC|OTEL)_\w+", rest.partition("\n## ")[0]))
    assert told == taken
    for words in commands("docker"):
        if words[1:3] == ["compose", "exec"]:
            assert words[3] in SERVICES


def test_without_containers_the_processes_and_their_times_are_the_same(rendered: dict[str, list[Manifest]]) -> None:
    processes = dict(line.split(": ", 1) for line in (ROOT / "Procfile").read_text().splitlines())
    for role, command in processes.items():
        (entrypoint,) = [it for stage in lineage(role) for it in stage.arguments("ENTRYPOINT")]
        assert json.loads(entrypoint) == command.split()
        assert f"`{command}`" in GUIDE
    assert set(processes) == {"gateway", "worker"}
    pod = find(rendered["prod"], "Deployment", "runyard-worker")["spec"]["template"]["spec"]
    assert f"`TimeoutStopSec={pod['terminationGracePeriodSeconds']}`" in GUIDE


def test_the_patch_for_labels_puts_them_on_what_the_operator_selects(tmp_path: Path) -> None:
    (patch,) = [block for block in blocks("yaml") if "monitoring.coreos.com" in block]
    overlay = os.path.relpath(K8S / "overlays/prod", tmp_path.resolve())
    (tmp_path / "kustomization.yaml").write_text(f"namespace: runyard\nresources: [{overlay}]\n{patch}")
    labelled = [
        item["kind"] for item in build(tmp_path) if item["metadata"].get("labels", {}).get("release") == "prometheus"
    ]
    assert sorted(labelled) == ["PodMonitor", "PrometheusRule"]
