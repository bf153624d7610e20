"""Findings: a stable code for each invariant, and the place where the invariant does not hold."""

from dataclasses import dataclass
from enum import StrEnum


class Code(StrEnum):
    """`docs/fsck.md` has a row for each, with its meaning and what to do."""

    ROWS_UNREADABLE = "rows-unreadable"

    RUN_WORKER = "run-worker"
    WORKER_SILENT = "worker-silent"
    RUN_STATUS = "run-status"
    RUN_QUEUE = "run-queue"
    RUN_PENDING = "run-pending"

    INVOCATION_STRANDED = "invocation-stranded"
    INVOCATION_RESULT = "invocation-result"
    TOTALS = "totals"

    INPUT_FOLDED = "input-folded"
    INPUT_STRANDED = "input-stranded"

    TRANSCRIPT_ORDER = "transcript-order"
    TRANSCRIPT_CALLS = "transcript-calls"
    TRANSCRIPT_REQUEST = "transcript-request"

    LEDGER_CALLS = "ledger-calls"
    LEDGER_OPEN = "ledger-open"
    LEDGER_RESULT = "ledger-result"

    STREAM_OPEN = "stream-open"
    STREAM_EARLY = "stream-early"
    STREAM_END = "stream-end"
    STREAM_TEXT = "stream-text"
    STREAM_NUMBERS = "stream-numbers"
    STREAM_REWIND = "stream-rewind"

    KEY_TTL = "key-ttl"


class CouldNotLookError(Exception):
    """The check was not possible: a part does not answer, or the run does not exist. The message is one line."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """An invariant that does not hold in one place. `detail` has ids, numbers and states, never what anybody said."""

    code: Code
    detail: str
    run_id: str | None = None
    invocation_id: str | None = None
    stream_id: str | None = None
    worker_id: str | None = None
    key: str | None = None

    @property
    def place(self) -> tuple[str | None, ...]:
        """Equal for two looks at the same fault, even if its figures have changed."""
        return self.code, self.run_id, self.invocation_id, self.stream_id, self.worker_id, self.key

    def to_dict(self) -> dict[str, str]:
        """`{"code": "stream-open", "runId": "run_...", "streamId": "st_...", "detail": "..."}`; what is not known is
        left out.
        """
        fields = {
            "code": str(self.code),
            "runId": self.run_id,
            "invocationId": self.invocation_id,
            "streamId": self.stream_id,
            "workerId": self.worker_id,
            "key": self.key,
            "detail": self.detail,
        }
        return {name: value for name, value in fields.items() if value is not None}

    def to_line(self) -> str:
        """`stream-open run_... inv_... st_...: its stream is live, 31 s after it was settled`."""
        names = [self.run_id, self.invocation_id, self.stream_id, self.worker_id, self.key]
        return f"{' '.join([self.code, *filter(None, names)])}: {self.detail}"
