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
    def owner(self) -> Owner:
        """What restricts every query to the caller's own rows."""
        return Owner(tenant_id=self.tenant_id, user_id=self.user_id)
