"""Every setting, once: environment variables with the prefix `RUNYARD_`.

Nothing reads the environment at import: `gateway/runyard_gateway/app.py`, `workers/runyard_workers/main.py` and the
command build one `Settings` each and pass its parts on. `.env.example` and the table in `docs/settings.md` are held
equal to this class by a test. The provider SDKs' own variables (`ANTHROPIC_API_KEY`, `ANTHROPIC_BASE_URL`) keep their
names and are read by the SDKs.
"""

from pathlib import Path
from typing import Annotated, Literal, Self
from urllib.parse import parse_qs, urlsplit

from pydantic import Field, SecretStr, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from runyard.errors import StartError
from runyard.names import PART, PART_RULE
from runyard.service_keys import parse_service_keys

PREFIX = "RUNYARD_"

Names = Annotated[tuple[str, ...], NoDecode]
"""A comma-separated list: `default,bulk`."""

LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})
JWT_SECRET_MIN_BYTES = 32  # RFC 7518, section 3.2: a key of the hash's size or larger for HS256


class _Environment(BaseSettings):
    model_config = SettingsConfigDict(
        env_prefix=PREFIX, frozen=True, extra="ignore", env_ignore_empty=True, hide_input_in_errors=True
    )

    @classmethod
    def load(cls) -> Self:
        """Read the environment.

        Raises:
            StartError: one line per setting that is missing or cannot be parsed; values are not shown.
        """
        try:
            return cls()
        except ValidationError as error:
            raise StartError("; ".join(_explain(item["loc"], item["msg"]) for item in error.errors())) from None


class CallerSettings(_Environment):
    """What the commands that call a gateway need."""

    url: str = Field(default="http://127.0.0.1:8000", description="The gateway that commands call")
    token: SecretStr | None = Field(default=None, description="What they show there: a token, or a service's key")


class DatabaseSettings(_Environment):
    """What `runyard migrate` and `runyard keys` need."""

    database_url: str = Field(description="postgresql://user@host/name or sqlite:///path/to/file.db")

    @field_validator("database_url")
    @classmethod
    def _known_database(cls, value: str) -> str:
        if not value.startswith(("postgresql://", "postgres://", "sqlite:///")):
            raise ValueError("must begin with postgresql:// or sqlite:///")
        if not {"true", "false"} >= set(parse_qs(urlsplit(value).query, keep_blank_values=True).get("pgbouncer", ())):
            raise ValueError("?pgbouncer must be true or false")
        return _with_a_port(value)


class NamedSettings(DatabaseSettings):
    """What distinguishes one system from another on servers that they share."""

    prefix: str = Field(default="runyard", description="Prefix of every Redis key, channel and broker queue")

    @field_validator("prefix")
    @classmethod
    def _part_of_names(cls, value: str) -> str:
        if PART.fullmatch(value) is None:
            raise ValueError(f"must be {PART_RULE}")
        return value


class QueueSettings(NamedSettings):
    """Where runs wait, and where wake-ups are: what `runyard queues` needs."""

    broker_url: str = Field(description="The broker: amqp(s):// or redis(s):// or unix://")

    @field_validator("broker_url")
    @classmethod
    def _known_broker(cls, value: str) -> str:
        if not value.startswith(("amqp://", "amqps://", "redis://", "rediss://", "unix://")):
            raise ValueError("must begin with amqp://, amqps://, redis://, rediss:// or unix://")
        return _with_a_port(value)


class StateSettings(NamedSettings):
    """Where everything that is stored can be found: what `runyard fsck` needs."""

    redis_url: str = Field(description="The Redis of the frames: redis://, rediss:// or unix://")

    @field_validator("redis_url")
    @classmethod
    def _known_redis(cls, value: str) -> str:
        if not value.startswith(("redis://", "rediss://", "unix://")):
            raise ValueError("must begin with redis://, rediss:// or unix://")
        return _with_a_port(value)


class AuthSettings(_Environment):
    """How a gateway finds out who calls; also what `runyard token` needs."""

    auth: Literal["dev", "jwt"] | None = Field(
        default=None, description="Required by the gateway. dev trusts everybody as the user dev, on loopback only"
    )
    jwt_secret: SecretStr | None = Field(
        default=None, description="Secret that tokens are signed with: 32 bytes or more for HS256, 48 HS384, 64 HS512"
    )
    jwks_url: str | None = Field(default=None, description="Where the issuer has its public keys (RS, PS, ES, EdDSA)")
    jwt_audience: str | None = Field(default=None, description="The audience that tokens must have; unset: any")
    jwt_issuer: str | None = Field(default=None, description="The issuer that tokens must have; unset: any")
    service_keys: SecretStr | None = Field(
        default=None, description="Keys of services, besides those of `runyard keys`: name:tenant+tenant:key, ..."
    )

    @field_validator("jwt_secret")
    @classmethod
    def _long_enough(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None and len(value.get_secret_value().encode()) < JWT_SECRET_MIN_BYTES:
            raise ValueError(f"must have {JWT_SECRET_MIN_BYTES} bytes or more")
        return value

    @field_validator("jwks_url")
    @classmethod
    def _known_url(cls, value: str | None) -> str | None:
        if value is not None and not value.startswith(("https://", "http://")):
            raise ValueError("must begin with https:// or http://")
        return value

    @field_validator("service_keys")
    @classmethod
    def _known_keys(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None:
            parse_service_keys(value.get_secret_value())
        return value

    @model_validator(mode="after")
    def _can_tell_who_calls(self) -> Self:
        if self.auth == "jwt" and self.jwt_secret is None and self.jwks_url is None:
            raise ValueError("RUNYARD_AUTH=jwt needs RUNYARD_JWT_SECRET or RUNYARD_JWKS_URL")
        if self.jwt_secret is not None and self.jwks_url is not None:
            raise ValueError("RUNYARD_JWT_SECRET and RUNYARD_JWKS_URL are both set: tokens are of one issuer")
        return self


class Settings(AuthSettings, StateSettings, QueueSettings):
    cors_origins: Names = Field(default=(), description="Origins that browsers may call from, comma-separated")
    host: str = Field(default="127.0.0.1", description="Address the gateway listens on")
    port: int = Field(default=8000, ge=0, le=65535, description="Port the gateway listens on")
    metrics_port: int | None = Field(
        default=None, ge=1, le=65535, description="Port of /metrics on RUNYARD_HOST, of any process; unset: none"
    )
    body_max_bytes: int = Field(default=1_048_576, ge=1024, description="Largest request body, in bytes")

    rate_user_per_min: int = Field(default=0, ge=0, description="Calls a user may make in a minute; 0: any number")
    rate_tenant_per_min: int = Field(default=0, ge=0, description="Calls a tenant may make in a minute; 0: any number")

    running_per_user: int = Field(
        default=0, ge=0, description="Runs of a user that may run at once, over all workers; 0: any number"
    )
    running_per_tenant: int = Field(
        default=0, ge=0, description="Runs of a tenant that may run at once, over all workers; 0: any number"
    )

    streams_per_user: int = Field(
        default=100, ge=0, description="Streams a user may have open at one gateway; 0: any number"
    )

    agents: Path | None = Field(default=None, description="Required by workers: the folder of agent files")
    model: str | None = Field(default=None, description="Model for agents that name none")
    models_allowed: Names = Field(default=(), description="Models a call may ask for; empty: only the agent's own")
    queues: Names = Field(default=("default",), description="Queues a worker serves, comma-separated")
    worker_slots: int = Field(default=32, ge=1, le=10_000, description="Runs a worker process executes at once")
    drain_s: float = Field(default=25, ge=0, description="Seconds a worker has to give its runs back on SIGTERM")

    retain_runs_days: int = Field(
        default=0, ge=0, description="Days a run is kept, with its transcript, after it was last active; 0: for ever"
    )
    retain_calls_days: int = Field(
        default=90, ge=0, description="Days the ledger keeps tool calls after their invocation ended; 0: for ever"
    )
    retain_manifests_days: int = Field(
        default=30, ge=8, description="Days an agent's version is known after its last worker"
    )
    stream_retain_s: int = Field(default=3600, ge=1, description="Seconds a stream is kept after its end")
    stream_max_bytes: int = Field(default=4_194_304, ge=1, description="Bytes of frames kept per stream")
    stream_max: int = Field(
        default=20_000, ge=1, description="Finished streams kept; beyond that the oldest are deleted"
    )

    dev: bool = Field(
        default=False,
        description="Set by `runyard dev`: without a key the demo model answers, "
        "a broken agent file does not stop the start, logs are not JSON",
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="The least severe level that is logged"
    )

    @field_validator("cors_origins", "models_allowed", "queues", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        if isinstance(value, str):
            return tuple(name for part in value.split(",") if (name := part.strip()))
        return value

    @field_validator("queues")
    @classmethod
    def _some_queue(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if not value:
            raise ValueError("names no queue")
        if wrong := [name for name in value if PART.fullmatch(name) is None]:
            raise ValueError(f"a queue's name must be {PART_RULE}: not {wrong[0]!r}")
        return value

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.auth == "dev" and self.host not in LOOPBACK:
            raise ValueError("RUNYARD_AUTH=dev trusts every caller: RUNYARD_HOST must be a loopback address")
        return self


def _with_a_port(url: str) -> str:
    """The URL, if its port is a number, or is left out. What else is found there is mostly a part of a password."""
    try:
        urlsplit(url).port  # noqa: B018 - it is parsed when it is read
    except ValueError:
        raise ValueError("its port is no number: percent-encode / ? # and @ in a name or a password") from None
    return url


def _explain(location: tuple[int | str, ...], message: str) -> str:
    if not location:
        return message.removeprefix("Value error, ")
    name = f"{PREFIX}{str(location[0]).upper()}"
    if message == "Field required":
        return f"{name} is not set"
    return f"{name}: {message.removeprefix('Value error, ')}"
