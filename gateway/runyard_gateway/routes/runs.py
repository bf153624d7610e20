"""Runs and their transcripts, read: `GET /v1/runs`, `/v1/runs/{id}`, `/v1/runs/{id}/messages`."""

from starlette.requests import Request
from starlette.responses import Response

from runyard.db import reads
from runyard.errors import InvalidArgs, RunNotFound
from runyard.runs import RunStatus
from runyard_gateway import paging
from runyard_gateway.answers import json_answer
from runyard_gateway.gateway import Gateway, Operation
from runyard_gateway.principal import Principal
from runyard_gateway.requests import known_query, query_choice, query_int, query_metadata, query_text
from runyard_gateway.views import message_view, run_view

RUNS_DEFAULT, RUNS_MAX = 20, 100
MESSAGES_DEFAULT, MESSAGES_MAX = 50, 500


async def list_runs(gateway: Gateway, request: Request, principal: Principal) -> Response:
    """Newest activity first; those that match every filter: `agent`, `status`, `sessionId`, and `metadata.<key>`, which
    a top-level text, number, true, false or null equals.
    """
    known_query(request, "agent", "status", "sessionId", "limit", "cursor", metadata=True)
    limit = query_int(request, "limit", default=RUNS_DEFAULT, low=1, high=RUNS_MAX)
    where = reads.RunFilter(
        agent=query_text(request, "agent"),
        status=query_choice(request, "status", default=None, choices=tuple(RunStatus)),
        session_id=query_text(request, "sessionId"),
        metadata=query_metadata(request),
    )
    asked = [part for pair in sorted(where.metadata.items()) for part in pair]
    listing = ("runs", principal.tenant_id, principal.user_id, where.agent, where.status, where.session_id, *asked)
    found = await gateway.database.read(
        reads.runs_of, principal.owner, where, before=time_position(listing, request), limit=limit + 1
    )
    page = found[:limit]
    cursor = None
    if len(found) > limit:
        last = page[-1][0]
        cursor = paging.seal(listing, last.last_activity_at, last.id)
    return json_answer({"items": [run_view(run, stream_id=stream) for run, stream in page], "nextCursor": cursor})


async def get_run(gateway: Gateway, request: Request, principal: Principal) -> Response:
    known_query(request)
    found = await gateway.database.read(reads.run_of, request.path_params["id"], principal.owner)
    if found is None:
        raise run_not_found(request)
    run, invocation, waiting = found
    return json_answer(run_view(run, stream_id=invocation.stream_id, waiting=waiting))


async def list_messages(gateway: Gateway, request: Request, principal: Principal) -> Response:
    """Oldest first, or `order=desc`; a page of a transcript that grows meanwhile loses and repeats nothing."""
    known_query(request, "limit", "cursor", "order")
    limit = query_int(request, "limit", default=MESSAGES_DEFAULT, low=1, high=MESSAGES_MAX)
    order = query_choice(request, "order", default="asc", choices=("asc", "desc"))
    listing = ("messages", request.path_params["id"], order)
    found = await gateway.database.read(
        reads.messages_of,
        request.path_params["id"],
        principal.owner,
        after_seq=_seq_position(listing, request),
        descending=order == "desc",
        limit=limit + 1,
    )
    if found is None:
        raise run_not_found(request)
    page = found[:limit]
    cursor = paging.seal(listing, page[-1].seq) if len(found) > limit else None
    return json_answer({"items": [message_view(message) for message in page], "nextCursor": cursor})


def run_not_found(request: Request) -> RunNotFound:
    return RunNotFound("Run not found", runId=request.path_params["id"])


def time_position(listing: paging.Listing, request: Request) -> tuple[int, str] | None:
    """The place in a list ordered by time, then id."""
    cursor = request.query_params.get("cursor")
    if cursor is None:
        return None
    match paging.unseal(listing, cursor):
        case [int(at), str(row_id)]:
            return at, row_id
        case _:
            raise InvalidArgs("cursor is not one that this list gave", fields=["cursor"])


def _seq_position(listing: paging.Listing, request: Request) -> int | None:
    cursor = request.query_params.get("cursor")
    if cursor is None:
        return None
    match paging.unseal(listing, cursor):
        case [int(seq)]:
            return seq
        case _:
            raise InvalidArgs("cursor is not one that this list gave", fields=["cursor"])


OPERATIONS = (
    Operation(method="GET", path="/v1/runs", handler=list_runs),
    Operation(method="GET", path="/v1/runs/{id}", handler=get_run),
    Operation(method="GET", path="/v1/runs/{id}/messages", handler=list_messages),
)
