"""How long a credential is valid."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from runyard.errors import Unauthenticated


class Lasting:
    """Valid for as long as the process runs."""

    def to_dict(self) -> dict[str, Any]:
        return {}

    def on_end(self, tell: Callable[[Unauthenticated], None]) -> Callable[[], None]:  # noqa: ARG002 - it never ends
        return _nothing


@dataclass(frozen=True, slots=True)
class UntilTime:
    """A token, valid until it expires: `ends_at_s`, in seconds since the epoch."""

    ends_at_s: float

    def to_dict(self) -> dict[str, Any]:
        return {"endsAtS": self.ends_at_s}

    def on_end(self, tell: Callable[[Unauthenticated], None]) -> Callable[[], None]:
        left_s = self.ends_at_s - time.time()
        return asyncio.get_running_loop().call_later(left_s, tell, expired()).cancel


def _nothing() -> None:
    pass


def expired() -> Unauthenticated:
    return Unauthenticated("the token has expired", reason="expired")
