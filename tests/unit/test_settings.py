"""The settings class, and that `.env.example` and `docs/settings.md` say the same as it does."""

import re
from pathlib import Path
from typing import Any

import pytest
from pydantic.fields import FieldInfo

from runyard.errors import StartError
from runyard.settings import DatabaseSettings, Settings

ROOT = Path(__file__).parents[2]
REQUIRED = {
    "RUNYARD_DATABASE_URL": "sqlite:///x.db",
    "RUNYARD_REDIS_URL": "redis://localhost",
    "RUNYARD_BROKER_URL": "amqp://localhost",
}


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Settings from these variables and no others; a value of None leaves its variable out."""

    def load_from(**changes: str | None) -> Settings:
        for name in Settings.model_fields:
            monkeypatch.delenv(f"RUNYARD_{name.upper()}", raising=False)
        for name, value in {**REQUIRED, **changes}.items():
            if value is not None:
                monkeypatch.setenv(name, value)
        return Settings.load()

    return load_from


def test_lists_are_comma_separated(load: Any) -> None:
    settings = load(RUNYARD_QUEUES=" bulk , default,", RUNYARD_CORS_ORIGINS="https://a.example")
    assert settings.queues == ("bulk", "default")
    assert settings.cors_origins == ("https://a.example",)


def test_an_empty_variable_counts_as_unset(load: Any) -> None:
    assert load(RUNYARD_PORT="", RUNYARD_AGENTS="").port == 8000


@pytest.mark.parametrize("name", REQUIRED)
def test_what_is_required_is_named(load: Any, name: str) -> None:
    with pytest.raises(StartError, match=f"^{name} is not set$"):
        load(**{name: None})


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"RUNYARD_DATABASE_URL": "mysql://x"}, "RUNYARD_DATABASE_URL: must begin with postgresql:// or sqlite:///"),
        ({"RUNYARD_DATABASE_URL": "postgresql://x/y?pgbouncer=1"}, "?pgbouncer must be true or false"),
        ({"RUNYARD_REDIS_URL": "x"}, "RUNYARD_REDIS_URL: must begin with redis://"),
        ({"RUNYARD_BROKER_URL": "kafka://x"}, "RUNYARD_BROKER_URL: must begin with amqp://"),
        ({"RUNYARD_REDIS_URL": "redis://:a/short@x:6379"}, "RUNYARD_REDIS_URL: its port is no number: percent-encode"),
        ({"RUNYARD_BROKER_URL": "amqp://me:short#er@x"}, "RUNYARD_BROKER_URL: its port is no number: percent-encode"),
        ({"RUNYARD_DATABASE_URL": "postgresql://me:short/er@x/name"}, "RUNYARD_DATABASE_URL: its port is no number"),
        ({"RUNYARD_PORT": "eighty"}, "RUNYARD_PORT: "),
        ({"RUNYARD_PORT": "70000"}, "RUNYARD_PORT: "),
        ({"RUNYARD_WORKER_SLOTS": "0"}, "RUNYARD_WORKER_SLOTS: "),
        ({"RUNYARD_DEV": "perhaps"}, "RUNYARD_DEV: "),
        ({"RUNYARD_QUEUES": " , "}, "RUNYARD_QUEUES: names no queue"),
        ({"RUNYARD_QUEUES": "bulk, default.XQ"}, "RUNYARD_QUEUES: a queue's name must be 1 to 64 letters"),
        ({"RUNYARD_QUEUES": "two words"}, "RUNYARD_QUEUES: a queue's name must be"),
        ({"RUNYARD_PREFIX": "runyard.default"}, "RUNYARD_PREFIX: must be 1 to 64 letters"),
        ({"RUNYARD_PREFIX": "a:b"}, "RUNYARD_PREFIX: must be"),
        ({"RUNYARD_AUTH": "none"}, "RUNYARD_AUTH: "),
        ({"RUNYARD_AUTH": "jwt"}, "RUNYARD_AUTH=jwt needs RUNYARD_JWT_SECRET or RUNYARD_JWKS_URL"),
        ({"RUNYARD_JWKS_URL": "file:///etc/passwd"}, "RUNYARD_JWKS_URL: must begin with https:// or http://"),
        (
            {"RUNYARD_JWT_SECRET": "s" * 32, "RUNYARD_JWKS_URL": "https://issuer.example/keys"},
            "RUNYARD_JWT_SECRET and RUNYARD_JWKS_URL are both set",
        ),
        ({"RUNYARD_SERVICE_KEYS": "billing:acme:short"}, "RUNYARD_SERVICE_KEYS: entry 1 is not name:tenant+tenant:key"),
        ({"RUNYARD_AUTH": "jwt", "RUNYARD_JWT_SECRET": "short"}, "RUNYARD_JWT_SECRET: must have 32 bytes or more"),
        ({"RUNYARD_AUTH": "dev", "RUNYARD_HOST": "0.0.0.0"}, "RUNYARD_HOST must be a loopback address"),
    ],
)
def test_what_cannot_be_used_is_named_and_not_shown(load: Any, changes: dict[str, str], said: str) -> None:
    with pytest.raises(StartError) as caught:
        load(**changes)
    message = str(caught.value)
    assert said in message
    assert "\n" not in message
    assert "short" not in message


def test_every_fault_is_told_at_once(load: Any) -> None:
    with pytest.raises(StartError, match=r"^RUNYARD_REDIS_URL is not set; RUNYARD_PORT: "):
        load(RUNYARD_REDIS_URL=None, RUNYARD_PORT="x")


def test_migrate_needs_the_database_alone(load: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(StartError):
        load(RUNYARD_REDIS_URL=None, RUNYARD_BROKER_URL=None)
    monkeypatch.setenv("RUNYARD_PORT", "x")
    assert DatabaseSettings.load().database_url == "sqlite:///x.db"


def test_a_secret_is_not_shown(load: Any) -> None:
    secret = "0123456789abcdef0123456789abcdef"
    assert secret not in repr(load(RUNYARD_AUTH="jwt", RUNYARD_JWT_SECRET=secret))


def variable(name: str) -> str:
    return f"RUNYARD_{name.upper()}"


def default_as_written(field: FieldInfo) -> str:
    match field.default:
        case None:
            return ""
        case bool() as flag:
            return str(flag).lower()
        case tuple() as names:
            return ",".join(names)
        case value:
            return str(value)


def test_the_docs_have_the_same_table() -> None:
    rows = [line for line in (ROOT / "docs/settings.md").read_text().splitlines() if line.startswith("| `RUNYARD_")]
    expected = []
    for name, field in Settings.model_fields.items():
        default = "required" if field.is_required() else default_as_written(field)
        shown = f"`{default}`" if default and not field.is_required() else default
        expected.append(f"| `{variable(name)}` | {shown} | {field.description} |")
    assert rows == expected


def test_the_example_has_the_same_list() -> None:
    entries = re.findall(r"^# (.+)\n(#?)(RUNYARD_\w+)=(.*)$", (ROOT / ".env.example").read_text(), re.MULTILINE)
    assert [(name, said) for said, _, name, _ in entries] == [
        (variable(name), field.description) for name, field in Settings.model_fields.items()
    ]
    defaults = {name: value for _, commented, name, value in entries if commented}
    assert defaults == {
        variable(name): default_as_written(field)
        for name, field in Settings.model_fields.items()
        if variable(name) in defaults
    }


def test_the_example_is_enough_to_start(load: Any) -> None:
    set_there = dict(re.findall(r"^(RUNYARD_\w+)=(.*)$", (ROOT / ".env.example").read_text(), re.MULTILINE))
    settings = load(**set_there)
    assert settings.auth == "dev"
    assert settings.agents == Path("agents")
