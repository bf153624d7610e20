"""Who calls."""

from dataclasses import dataclass

from runyard.db.reads import Owner

DEFAULT_TENANT = "default"


@dataclass(frozen=True, kw_only=True, slots=True)
class Principal:
    tenant_id: str
    user_id: str
    roles: frozenset[str]

    @property
    def is_service(self) -> bool:
        """A program that calls for others: it would not know what became of input that joined somebody's turn."""
        return "service" in self.roles

    @property
    def owner(self) -> Owner:
        """What restricts every query to the caller's own rows."""
        return Owner(tenant_id=self.tenant_id, user_id=self.user_id)
