"""One image for each role: linted, complete, without root."""

import importlib.util
import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from scripts.bootstrap import UV_VERSION
from tests.dockerfile import DOCKERFILE, copied, installation, lineage, stages

ROOT = DOCKERFILE.parent
WORKSPACE = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["uv"]["workspace"]["members"]
ROLES = {
    "gateway": ("runyard-gateway", "runyard_gateway"),
    "worker": ("runyard-workers", "runyard_workers"),
}
in_both = pytest.mark.parametrize("role", ROLES)


def test_hadolint_has_nothing_to_say() -> None:
    done = subprocess.run(
        [Path(sys.executable).with_name("hadolint"), "--no-color", DOCKERFILE],
        check=False,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


@in_both
def test_a_build_has_the_whole_workspace_and_its_lock(role: str) -> None:
    assert {"pyproject.toml", "uv.lock", *WORKSPACE} <= set(copied(f"build-{role}"))


@in_both
def test_what_is_copied_is_there_and_not_ignored(role: str) -> None:
    context = (ROOT / ".dockerignore").read_text().splitlines()
    assert context[0] == "*"
    for source in [*copied(f"build-{role}"), *copied(role)]:
        assert (ROOT / source).exists()
        assert f"!{source}" in context


@in_both
def test_a_role_is_installed_from_the_lock_without_the_other(role: str) -> None:
    distribution, _ = ROLES[role]
    sync = ["uv", "sync", "--locked", "--no-dev", "--no-editable", "--package", distribution]
    assert installation(role) == [*sync, "--extra", "otel"]  # whoever sets an endpoint finds the SDK there
    (taken,) = [argument for argument in stages()[role].arguments("COPY") if argument.startswith("--from=")]
    assert taken.split()[0] == f"--from=build-{role}"


def test_the_image_is_built_with_the_uv_that_the_repository_uses() -> None:
    assert f"pip install --no-cache-dir uv=={UV_VERSION}" in stages()["build"].arguments("RUN")


@in_both
def test_nobody_is_root(role: str) -> None:
    """A number: Kubernetes' `runAsNonRoot` cannot tell who a name is."""
    users = [user for stage in lineage(role) for user in stage.arguments("USER")]
    assert int(users[-1]) > 0
    (created,) = [run for stage in lineage(role) for run in stage.arguments("RUN") if run.startswith("useradd ")]
    assert f"--uid {users[-1]} " in created


@in_both
def test_the_process_is_the_role_and_gets_the_signals(role: str) -> None:
    (entrypoint,) = stages()[role].arguments("ENTRYPOINT")
    module = ROLES[role][1]
    assert json.loads(entrypoint) == ["python", "-m", module]  # no shell before it
    assert importlib.util.find_spec(f"{module}.__main__") is not None


def test_the_examples_are_the_workers_image_with_their_agents_where_it_looks() -> None:
    examples = stages()["worker-examples"]
    assert examples.base == "worker"
    ((_, copy),) = examples.instructions
    source, target = copy.split()
    assert (ROOT / source).is_dir()
    assert f"!{source}" in (ROOT / ".dockerignore").read_text().splitlines()
    assert f"RUNYARD_AGENTS={target}" in stages()["worker"].arguments("ENV")
    assert source not in copied("worker")


def test_an_image_has_the_python_that_built_it() -> None:
    assert stages()["build"].base == stages()["runtime"].base
    assert stages()["gateway"].base == stages()["worker"].base == "runtime"
