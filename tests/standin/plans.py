"""Decides which script answers a request."""

from collections.abc import Callable
from enum import StrEnum

from pydantic import Field

from tests.standin.record import Request
from tests.standin.script import Part, Script

Choice = Callable[[Request], Script | None]
"""None: somebody else's."""


class By(StrEnum):
    QUEUE = "queue"  # each script once, in the order of the requests
    TURN = "turn"  # by the number of assistant turns in the request, for any number of conversations at once


class Match(Part):
    """Which requests a plan is for; what is left out matches all."""

    contains: str | None = None  # in what the user said
    system: str | None = None  # in the system prompt
    model: str | None = None  # the model's name

    def __call__(self, request: Request) -> bool:
        return (
            (self.contains is None or self.contains in request.user_text)
            and (self.system is None or self.system in request.system)
            and (self.model is None or self.model == request.model)
        )


class Plan(Part):
    """`POST /_standin/scripts` takes this as JSON."""

    scripts: tuple[Script, ...] = Field(min_length=1)
    by: By = By.QUEUE
    match: Match = Match()

    def choice(self) -> Choice:
        waiting = list(self.scripts)

        def choose(request: Request) -> Script | None:
            if not self.match(request):
                return None
            if self.by is By.TURN:
                return self.scripts[request.turn] if request.turn < len(self.scripts) else None
            return waiting.pop(0) if waiting else None

        return choose
