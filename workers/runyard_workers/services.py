"""What all runs of the process share. `main.py` builds it once, owns its parts and closes them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from runyard.db.engine import Database
from runyard_workers.catalog import Catalog
from runyard_workers.closer import Closer
from runyard_workers.flusher import Flusher
from runyard_workers.frame_server import FrameServer
from runyard_workers.liveness import Liveness
from runyard_workers.providers.model import Models
from runyard_workers.retries import RetryPolicy
from runyard_workers.rooms import Tenants
from runyard_workers.threads import ToolThreads


@dataclass(frozen=True, kw_only=True, slots=True)
class Services:
    """`resources`: what the agents' `@lifespan`s yielded. `default_model`: the model of agents that name none."""

    database: Database
    flusher: Flusher
    closer: Closer
    broadcasts: Tenants
    providers: Models
    threads: ToolThreads
    liveness: Liveness
    catalog: Catalog
    resources: Mapping[str, Any]
    default_model: str | None
    frame_server: FrameServer
    retries: RetryPolicy = field(default_factory=RetryPolicy)
