"""What an invocation has spent so far, and what all invocations of its run have spent. Each step stores both."""

from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, Self

from runyard.db.records import Invocation, Run
from runyard.db.turns import Totals
from runyard_workers.prices import Cost
from runyard_workers.providers.model import Usage


@dataclass(frozen=True, kw_only=True, slots=True)
class Progress:
    steps: int
    usage: Usage
    cost: Cost
    run_steps: int
    run_usage: Usage
    run_cost: Cost

    @classmethod
    def stored(cls, run: Run, invocation: Invocation) -> Self:
        return cls(
            steps=invocation.steps,
            usage=Usage.from_dict(invocation.usage),
            cost=_cost(invocation.cost),
            run_steps=run.steps,
            run_usage=Usage.from_dict(run.usage),
            run_cost=_cost(run.cost),
        )

    def loaded(self, run: Run, invocation: Invocation) -> Self:
        """The steps as the rows have them, the rest as counted here: a turn whose commit was lost has been paid for."""
        return replace(self, steps=invocation.steps, run_steps=run.steps)

    def plus_step(self, usage: Usage, cost: Cost) -> Self:
        spent = self.plus_spent(usage, cost)
        return replace(spent, steps=self.steps + 1, run_steps=self.run_steps + 1)

    def plus_spent(self, usage: Usage, cost: Cost) -> Self:
        """Add a failed model call, which costs but is no step."""
        return replace(
            self,
            usage=self.usage + usage,
            cost=self.cost + cost,
            run_usage=self.run_usage + usage,
            run_cost=self.run_cost + cost,
        )

    def totals(self) -> Totals:
        return Totals(
            steps=self.steps,
            usage=self.usage.to_dict(),
            cost=self.cost.to_dict(),
            run_steps=self.run_steps,
            run_usage=self.run_usage.to_dict(),
            run_cost=self.run_cost.to_dict(),
        )


def _cost(stored: dict[str, Any]) -> Cost:
    return Cost(amount=Decimal(str(stored["amount"])), currency=stored["currency"], unpriced=stored["unpriced"])
