"""Builds the `RunContext`s of one execution: for each tool call, and for the system prompt."""

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import structlog

from runyard.authoring.cancellation import Cancellation
from runyard.authoring.context import RunContext
from runyard.authoring.rooms import Rooms
from runyard.authoring.stream import Stream
from runyard.db.claims import Claim
from runyard_workers.output import Output
from runyard_workers.rooms import Tenants


@dataclass(frozen=True, kw_only=True)
class Contexts:
    claim: Claim
    output: Output
    broadcasts: Tenants
    resources: Mapping[str, Any]

    def of_call(self, call_id: str, *, assistant_seq: int, index: int) -> RunContext:
        """`idempotency_key`: the call's key in the ledger, which is the same each time the call runs. Behind a cleared
        transcript, whose rows are numbered from 1 again, it is another one than before.
        """
        run = self.claim.run
        transcript = f"{run.id}.{run.clears}" if run.clears else run.id
        return self._context(call_id, idempotency_key=f"{transcript}:{assistant_seq}:{index}")

    def of_prompt(self) -> RunContext:
        return self._context(None, idempotency_key=None)

    def _context(self, call_id: str | None, *, idempotency_key: str | None) -> RunContext:
        run, invocation = self.claim.run, self.claim.invocation
        return RunContext(
            run_id=run.id,
            session_id=run.session_id,
            invocation_id=invocation.id,
            agent=run.agent,
            user_id=run.user_id,
            tenant_id=run.tenant_id,
            roles=frozenset(invocation.roles),
            # Copies: what code changed in the run's own would be seen by this worker's other calls, and by no other's.
            metadata=copy.deepcopy(run.metadata),
            context=copy.deepcopy(run.context),
            call_id=call_id,
            idempotency_key=idempotency_key,
            cancelled=Cancellation(),
            stream=Stream(self.output.sink(call_id)),
            rooms=Rooms(self.broadcasts.sink(run.tenant_id)),
            resources=self.resources,
            log=structlog.get_logger("agent").bind(run_id=run.id, invocation_id=invocation.id, call_id=call_id),
        )
