"""Gates: places where an answer stands still until the test says so."""

from tests.standin.signals import GUARD_S, Signal


class Gate:
    """Closed at first. `release()` opens it for good, `advance(n)` lets the next n through."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.arrivals = 0  # how often an answer came to it, ever
        self.holders = 0  # how many stand at it now
        self.is_open = False
        self._passes = 0
        self._signal = Signal()

    async def hold(self) -> None:
        """An answer's side: stand here until let through."""
        self.arrivals += 1
        self.holders += 1
        self._signal.notify()
        try:
            while not self.is_open and self._passes == 0:
                await self._signal.change()
            if not self.is_open:
                self._passes -= 1
        finally:
            self.holders -= 1
            self._signal.notify()

    async def reached(self, times: int = 1, *, guard_s: float = GUARD_S) -> None:
        """Return once answers came to the gate so many times, counted from the start."""
        await self._signal.until(
            lambda: self.arrivals >= times,
            lambda: f"gate {self.name!r} was reached {self.arrivals} times, not {times}",
            guard_s,
        )

    def release(self) -> None:
        self.is_open = True
        self._signal.notify()

    def advance(self, count: int = 1) -> None:
        self._passes += count
        self._signal.notify()


class Gates:
    def __init__(self) -> None:
        self._gates: dict[str, Gate] = {}

    def __getitem__(self, name: str) -> Gate:
        return self._gates.setdefault(name, Gate(name))

    def release_all(self) -> None:
        for gate in self._gates.values():
            gate.release()
