"""Schemas of the custom resources in the manifests: strict, and only with the fields that are used.

`HTTPRoute` follows the Gateway API's v1 (gateway-api.sigs.k8s.io/reference/spec). KEDA's objects are held against
models of its own definitions; what this adds is what those leave open, the metadata of the triggers that are used here
(keda.sh/docs/2.16/scalers), all of it strings.
"""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

Duration = Annotated[str, StringConstraints(pattern=r"^([0-9]{1,5}(h|m|s|ms)){1,4}$")]  # GEP-2257
Hostname = Annotated[str, StringConstraints(pattern=r"^(\*\.)?[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9-]+)*$")]
Number = Annotated[str, StringConstraints(pattern=r"^[0-9]+$")]


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class Metadata(Strict):
    name: str
    namespace: str
    labels: dict[str, str] = {}


class ParentReference(Strict):
    name: str
    namespace: str | None = None
    sectionName: str | None = None  # noqa: N815 - Kubernetes' names


class PathMatch(Strict):
    type: Literal["Exact", "PathPrefix", "RegularExpression"]
    value: Annotated[str, StringConstraints(pattern=r"^/")]


class Match(Strict):
    path: PathMatch


class BackendReference(Strict):
    name: str
    port: Annotated[int, Field(ge=1, le=65535)]


class Timeouts(Strict):
    request: Duration
    backendRequest: Duration  # noqa: N815


class Rule(Strict):
    matches: list[Match]
    backendRefs: list[BackendReference]  # noqa: N815
    timeouts: Timeouts


class RouteSpec(Strict):
    parentRefs: Annotated[list[ParentReference], Field(min_length=1)]  # noqa: N815
    hostnames: Annotated[list[Hostname], Field(min_length=1)]
    rules: Annotated[list[Rule], Field(min_length=1)]


class HTTPRoute(Strict):
    apiVersion: Literal["gateway.networking.k8s.io/v1"]  # noqa: N815
    kind: Literal["HTTPRoute"]
    metadata: Metadata
    spec: RouteSpec


class PostgresqlTrigger(Strict):
    dbName: str  # noqa: N815
    query: str
    targetQueryValue: Number  # noqa: N815


class RabbitmqTrigger(Strict):
    protocol: Literal["amqp", "http", "auto"]
    queueName: str  # noqa: N815
    mode: Literal["QueueLength", "MessageRate"]
    value: Number


class RedisTrigger(Strict):
    listName: str  # noqa: N815
    listLength: Number  # noqa: N815


TRIGGERS: dict[str, type[Strict]] = {
    "postgresql": PostgresqlTrigger,
    "rabbitmq": RabbitmqTrigger,
    "redis": RedisTrigger,
}
