"""What tools say to rooms, kept for the test."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Broadcast:
    tenant_id: str
    room: str
    event: str
    data: Any


class RecordedRooms:
    """As `runyard_workers.rooms.Broadcasts`."""

    def __init__(self) -> None:
        self.said: list[Broadcast] = []

    def sink(self, tenant_id: str) -> "TenantRecord":
        return TenantRecord(said=self.said, tenant_id=tenant_id)


@dataclass(frozen=True, kw_only=True)
class TenantRecord:
    said: list[Broadcast]
    tenant_id: str

    def broadcast(self, room: str, event: str, data: Any) -> None:
        self.said.append(Broadcast(tenant_id=self.tenant_id, room=room, event=event, data=data))
