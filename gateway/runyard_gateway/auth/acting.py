"""For whom a call on an agent is made: its caller, or the user whom a service names (`as`)."""

from runyard.db.records import Run
from runyard.errors import AgentRequiresUser, AgentRunForbidden, Forbidden, InvalidArgs
from runyard_gateway.auth.principal import ADMIN, Identity, Principal, Service
from runyard_gateway.directory import KnownAgent
from runyard_gateway.requests import ActAs


def acting(principal: Principal, act_as: ActAs | None, *, continues: Run | None = None) -> Identity:
    """The user for whom a call is made. A service that names nobody continues a run (`continues`) for the run's owner.

    Raises:
        AgentRunForbidden: `as` was sent by a caller that is no service, or by one that is not for that tenant.
        AgentRequiresUser: a service does not say for whom it calls.
        InvalidArgs: a service of several tenants does not say to which one the user belongs.
    """
    match principal.caller:
        case Identity() as user:
            if act_as is not None:
                raise AgentRunForbidden("only a service may call as another user")
            return user
        case Service() as service:
            if act_as is not None:
                roles = frozenset({ADMIN} if act_as.admin else ())
                return Identity(tenant_id=_tenant(service, act_as), user_id=act_as.user_id, roles=roles)
            if continues is not None:
                return Identity(tenant_id=continues.tenant_id, user_id=continues.user_id, roles=frozenset())
            raise AgentRequiresUser('a service calls for a user: name them in "as": {"userId": ...}')


def check_may_run(agent: KnownAgent, identity: Identity) -> None:
    """Raises `Forbidden`: the agent is for admins. (Users never get here: for them it does not exist.)"""
    if not agent.is_for(identity):
        raise Forbidden('this is for admins: call it with "as": {"admin": true}', agent=agent.current.agent)


def only_tenant(service: Service, *, field: str = "tenantId") -> str:
    """The service's one tenant. Raises `InvalidArgs` if it has several and `field` had to name one."""
    if len(service.tenants) > 1:
        raise InvalidArgs("the service is for several tenants: say which one", fields=[field])
    return service.tenants[0]


def _tenant(service: Service, act_as: ActAs) -> str:
    if act_as.tenant_id is None:
        return only_tenant(service, field="as.tenantId")
    if act_as.tenant_id not in service.tenants:
        raise AgentRunForbidden("the service is not for users of this tenant", tenantId=act_as.tenant_id)
    return act_as.tenant_id
