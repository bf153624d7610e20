"""What the manifests and `compose.yaml` set are settings of the class, with values that it takes."""

from typing import Any

import pytest
from tests.deploy.compose import config, services
from tests.deploy.manifests import Manifest, asked_of_secrets, environment
from tests.dockerfile import lineage

from runyard.settings import DatabaseSettings, Settings

PREFIX = "RUNYARD_"
SETTINGS = {f"{PREFIX}{name.upper()}" for name in Settings.model_fields}
FOREIGN = {"ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", "FORWARDED_ALLOW_IPS", "OTEL_EXPORTER_OTLP_ENDPOINT"}
"""Read by the provider's SDK, by uvicorn and by `runyard.traces`."""

SAMPLES = {
    "runyard/database-url": "postgresql://runyard@db.example.com/runyard",
    "runyard/redis-url": "rediss://redis.example.com",
    "runyard/broker-url": "amqps://broker.example.com",
}
"""What somebody would keep in the Secret that the overlay `prod` refers to."""

IMAGES = {
    role: dict(pair.split("=", 1) for stage in lineage(role) for pair in " ".join(stage.arguments("ENV")).split())
    for role in ("gateway", "worker")
}
"""The variables that the images have already."""

SECRET = "s" * 32
both = pytest.mark.parametrize("role", ["gateway", "worker"])


def load(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], settings: type = Settings) -> Any:
    for name in SETTINGS:
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        if name not in SETTINGS:
            continue
        monkeypatch.setenv(name, SAMPLES.get(value, value))
    return settings.load()


@pytest.mark.parametrize("role", ["gateway", "worker", "migrate"])
def test_every_variable_is_a_setting(rendered: dict[str, list[Manifest]], role: str) -> None:
    for name, objects in rendered.items():
        variables = set(environment(objects, role))
        assert variables - SETTINGS - FOREIGN == set(), name
        assert "RUNYARD_DATABASE_URL" in variables


@both
def test_a_role_starts_with_what_it_is_given(
    rendered: dict[str, list[Manifest]], role: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for objects in rendered.values():
        settings = load(monkeypatch, {**IMAGES[role], **environment(objects, role)})
        assert settings.auth == "jwt" if role == "gateway" else settings.agents.is_absolute()


def test_the_migration_starts_with_what_it_is_given(
    rendered: dict[str, list[Manifest]], monkeypatch: pytest.MonkeyPatch
) -> None:
    for objects in rendered.values():
        load(monkeypatch, environment(objects, "migrate"), DatabaseSettings)


def test_each_role_sees_only_the_secrets_that_it_needs(objects: list[Manifest]) -> None:
    gateway, worker = environment(objects, "gateway"), environment(objects, "worker")
    assert not {"ANTHROPIC_API_KEY"} & set(gateway)
    assert not {"RUNYARD_JWT_SECRET", "RUNYARD_SERVICE_KEYS"} & set(worker)
    assert set(environment(objects, "migrate")) == {"RUNYARD_DATABASE_URL"}


def test_the_trial_overlay_has_all_secrets_and_prod_has_none(rendered: dict[str, list[Manifest]]) -> None:
    def secrets(name: str) -> dict[str, set[str]]:
        return {item["metadata"]["name"]: set(item["data"]) for item in rendered[name] if item["kind"] == "Secret"}

    optional = {"anthropic-api-key", "service-keys"}
    dev = secrets("dev")
    assert all(keys - optional <= dev[name] for name, keys in asked_of_secrets(rendered["dev"]).items())
    assert secrets("prod") == {}
    assert set(asked_of_secrets(rendered["prod"])) == {"runyard"}


@pytest.mark.parametrize("role", ["gateway", "worker", "migrate"])
def test_every_variable_of_compose_is_a_setting(role: str) -> None:
    variables = set(services(RUNYARD_JWT_SECRET=SECRET)[role]["environment"])
    assert variables - SETTINGS - FOREIGN == set()
    assert "RUNYARD_DATABASE_URL" in variables


@both
def test_a_role_starts_with_what_compose_gives_it(role: str, monkeypatch: pytest.MonkeyPatch) -> None:
    given = services(RUNYARD_JWT_SECRET=SECRET)[role]["environment"]
    settings = load(monkeypatch, {**IMAGES[role], **given})
    assert settings.auth == "jwt" if role == "gateway" else settings.agents.is_absolute()


def test_compose_asks_for_a_secret_that_nobody_knows() -> None:
    done = config()
    assert done.returncode != 0
    assert "RUNYARD_JWT_SECRET is missing" in done.stderr
