"""The state of one stand-in: plans, gates, what arrived, what was sent, and requests that no plan expected."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from tests.standin.gates import Gates
from tests.standin.ledger import Ledger
from tests.standin.plans import Choice
from tests.standin.record import Request
from tests.standin.script import Script
from tests.standin.signals import GUARD_S, Signal

MESSAGES = "/v1/messages"
COUNT_TOKENS = "/v1/messages/count_tokens"


@dataclass(kw_only=True)
class State:
    otherwise: Choice | None = None
    strict: bool = True
    choices: list[Choice] = field(default_factory=list)
    gates: Gates = field(default_factory=Gates)
    ledger: Ledger = field(default_factory=Ledger)
    requests: list[Request] = field(default_factory=list)
    unexpected: list[str] = field(default_factory=list)
    stopping: bool = False
    _arrivals: Signal = field(default_factory=Signal)

    def arrived(self, request: Request) -> None:
        self.requests.append(request)
        request.number = len(self.requests)
        self._arrivals.notify()

    async def request(self, number: int, guard_s: float = GUARD_S) -> Request:
        await self._arrivals.until(
            lambda: len(self.requests) >= number,
            lambda: f"{len(self.requests)} requests arrived, not {number}",
            guard_s,
        )
        return self.requests[number - 1]

    def choose(self, request: Request) -> Script | None:
        for choose in self.choices:
            if (script := choose(request)) is not None:
                return script
        return None if self.otherwise is None else self.otherwise(request)

    @property
    def calls(self) -> list[Request]:
        return [request for request in self.requests if request.path == MESSAGES]

    def conversations(self) -> dict[str, list[Request]]:
        found: dict[str, list[Request]] = {}
        for request in self.calls:
            found.setdefault(request.conversation, []).append(request)
        return found

    def usage(self, requests: Iterable[Request]) -> dict[str, int]:
        total: dict[str, int] = {}
        for request in requests:
            for name, count in request.usage.items():
                if isinstance(count, int):
                    total[name] = total.get(name, 0) + count
        return total

    def reset(self) -> None:
        """Forget plans, gates and requests. What was sent stays known: conversations may go on."""
        self.gates.release_all()
        self.gates = Gates()
        self.choices.clear()
        self.requests.clear()
        self.unexpected.clear()
