"""Moments of a run for which a test plans something: before and after a model's turn or a tool."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal

from runyard_workers.testing.errors import ScriptError

When = Literal["before", "after"]
Act = Callable[[], Awaitable[None]]


@dataclass(frozen=True, kw_only=True)
class Moment:
    """`subject`: the name of a tool, or the number of a turn in the model's script."""

    when: When
    subject: str | int
    nth: int = 1

    def __str__(self) -> str:
        subject = f"step={self.subject}" if isinstance(self.subject, int) else f"tool={self.subject!r}"
        nth = "" if self.nth == 1 else f", nth={self.nth}"
        return f"{self.when}({subject}{nth})"


@dataclass(kw_only=True)
class Planned:
    """`left`: how many more times the moment must come before the action runs."""

    moment: Moment
    name: str
    act: Act
    left: int

    def __str__(self) -> str:
        return f"{self.moment}.{self.name}"


class Moments:
    def __init__(self) -> None:
        self._planned: list[Planned] = []

    def plan(self, moment: Moment, name: str, act: Act) -> None:
        self._planned.append(Planned(moment=moment, name=name, act=act, left=moment.nth))

    async def reached(self, when: When, subject: str | int) -> None:
        """Run what is planned for this moment.

        Raises:
            WorkerCrashed: the plan was that this worker dies.
        """
        coming = [it for it in self._planned if (it.moment.when, it.moment.subject) == (when, subject)]
        for planned in coming:
            planned.left -= 1
        for planned in [it for it in coming if it.left == 0]:
            self._planned.remove(planned)
            await planned.act()

    def check(self) -> None:
        """Look whether every planned moment has come.

        Raises:
            ScriptError: one has not.
        """
        if self._planned:
            raise ScriptError(f"these moments never came: {', '.join(map(str, self._planned))}")
