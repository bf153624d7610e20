"""Rooms: `GET /v1/rooms/{room}` joins one, `GET /v1/rooms/{room}/members` tells who is there; tickets."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from runyard.errors import RoomNotFound, StreamOverloaded
from runyard.rooms import ROOM, covers
from runyard_gateway import shapes
from runyard_gateway.answers import EVENT_STREAM, Answer, json_answer
from runyard_gateway.auth.acting import only_tenant
from runyard_gateway.auth.event_source import TICKET, Door, seat_headers, ticket_answer
from runyard_gateway.auth.principal import Identity, Principal, Service
from runyard_gateway.failures import request_id_of
from runyard_gateway.gateway import Gateway
from runyard_gateway.members import Room
from runyard_gateway.open_streams import reader_behind
from runyard_gateway.operations import Operation, bearer
from runyard_gateway.parameters import Text
from runyard_gateway.requests import Nothing, read_body
from runyard_gateway.sse import raw_headers
from runyard_gateway.streaming import EndlessStream

TENANT = Text(name="tenantId", description="The room's tenant. A service of several tenants has to name one.")


def _place(request: Request) -> str:
    """The room as the URL names it, with its tenant: no room's name can hold a NUL."""
    return f"\0room\0{request.path_params['room']}\0{TENANT.given(request) or ''}"


DOOR = Door(place=_place, otherwise=bearer, is_alike=False)  # whoever comes is listed as a member


async def join_room(gateway: Gateway, request: Request, principal: Principal) -> ASGIApp:
    """Join a room, and receive its messages from now on."""
    room = await _room(gateway, request, principal)
    reader = reader_behind(principal, request)
    gateway.open_streams.check(reader)
    caller = principal.caller
    answer = EndlessStream(
        reading=gateway.rooms.join(room, caller.user_id if isinstance(caller, Identity) else None),
        credential=principal.credential,
        request_id=request_id_of(request),
        headers=raw_headers(seat_headers(request)),
    )
    return gateway.open_streams.counted(reader, answer)


async def issue_room_ticket(gateway: Gateway, request: Request, principal: Principal) -> Response:
    """Get a ticket for an `EventSource` on a room. A browser also gets a seat: a cookie for the room's path."""
    await read_body(request, Nothing, limit_bytes=gateway.settings.body_max_bytes)
    await _room(gateway, request, principal)
    return ticket_answer(request, *await DOOR.ticket(gateway, request, principal))


async def list_members(gateway: Gateway, request: Request, principal: Principal) -> Response:
    """List the users who are in a room."""
    users = await gateway.members.of(await _room(gateway, request, principal))
    items: list[shapes.Member] = [{"userId": user_id} for user_id in users]
    return json_answer({"items": items})


async def _room(gateway: Gateway, request: Request, principal: Principal) -> Room:
    """Raises `RoomNotFound` if the caller may not join it."""
    name, tenant_id = request.path_params["room"], TENANT.read(request)
    match principal.caller:
        case Service() as service:
            tenant_id = only_tenant(service) if tenant_id is None else tenant_id
            granted = tenant_id in service.tenants
        case Identity() as user:
            granted = tenant_id in {None, user.tenant_id} and await _may_join(gateway, user, name)
            tenant_id = user.tenant_id
    if not granted or ROOM.fullmatch(name) is None:
        raise RoomNotFound("no such room", room=name)
    return tenant_id, name


async def _may_join(gateway: Gateway, user: Identity, room: str) -> bool:
    """Admins may join any room of their tenant; others those that their token, or an agent that they
    may call, names.
    """
    if user.is_admin or covers(user.rooms, room):
        return True
    agents = (await gateway.directory.all()).values()
    return any(agent.is_for(user) and covers(agent.spec.get("rooms", ()), room) for agent in agents)


OPERATIONS = (
    Operation(
        method="GET",
        path="/v1/rooms/{room}",
        handler=join_room,
        caller=DOOR.enter,
        parameters=(TENANT, TICKET),
        answers=(Answer(status=200, description="What is said, one event each.", media=EVENT_STREAM),),
        errors=(RoomNotFound, StreamOverloaded),
    ),
    Operation(
        method="GET",
        path="/v1/rooms/{room}/members",
        handler=list_members,
        parameters=(TENANT,),
        answers=(Answer(status=200, description="All of them.", shape=shapes.Items[shapes.Member]),),
        errors=(RoomNotFound,),
    ),
    Operation(
        method="POST",
        path="/v1/rooms/{room}/tickets",
        handler=issue_room_ticket,
        body=Nothing,
        parameters=(TENANT,),
        answers=(Answer(status=201, description="The ticket.", shape=shapes.Ticket),),
        errors=(RoomNotFound,),
    ),
)
