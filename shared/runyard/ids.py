"""Identifiers: a prefix that names the kind, then hex digits from the system's CSPRNG."""

import secrets
import time
from typing import NewType

RunId = NewType("RunId", str)
InvocationId = NewType("InvocationId", str)
InputId = NewType("InputId", str)
StreamId = NewType("StreamId", str)
WorkerId = NewType("WorkerId", str)
RequestId = NewType("RequestId", str)


def _time_ordered(prefix: str) -> str:
    # 48 bits of milliseconds, then 80 random bits (the layout of UUIDv7, RFC 9562): new rows land at the end of the
    # index. An id is no secret: who may see a row is part of the query that loads it.
    return f"{prefix}_{time.time_ns() // 1_000_000:012x}{secrets.token_hex(10)}"


def new_run_id() -> RunId:
    return RunId(_time_ordered("run"))


def new_invocation_id() -> InvocationId:
    return InvocationId(_time_ordered("inv"))


def new_input_id() -> InputId:
    return InputId(_time_ordered("in"))


def new_worker_id() -> WorkerId:
    return WorkerId(_time_ordered("wk"))


def new_request_id() -> RequestId:
    return RequestId(f"req_{secrets.token_hex(12)}")


def new_stream_id() -> StreamId:
    """160 random bits: a public function's stream is guarded by its id alone, so no part may be guessable."""
    return StreamId(f"st_{secrets.token_hex(20)}")
