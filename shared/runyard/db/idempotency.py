"""`Idempotency-Key`: with it, a caller whose answer was lost can send the call again without making a second one.

The key is taken in the transaction that accepts the call. So a refused call takes no key, and of two calls at once the
second waits for the first to commit and then finds its key.
"""

from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncConnection

from runyard.db.tables import idempotency_keys
from runyard.errors import IdempotencyMismatch
from runyard.ids import InputId, InvocationId, RunId

KEPT_MS = 24 * 3600 * 1000
"""After this a key may be used again for another call."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CallKey:
    """A caller's key. `request_hash` covers the whole call: the same key with another hash is refused."""

    key: str
    request_hash: str


@dataclass(frozen=True, kw_only=True, slots=True)
class KeyedCall:
    """The call to which a key belongs. `queued`: if it steered a run, how many inputs then waited, itself included."""

    run_id: RunId
    invocation_id: InvocationId
    input_id: InputId
    queued: int | None


def _take(insert: type[postgresql.Insert] | type[sqlite.Insert]) -> sa.Executable:
    statement = insert(idempotency_keys)
    return statement.on_conflict_do_update(
        index_elements=list(idempotency_keys.primary_key),
        set_={column.name: statement.excluded[column.name] for column in idempotency_keys.c if not column.primary_key},
        where=idempotency_keys.c.created_at < sa.bindparam("expired"),
    ).returning(idempotency_keys.c.input_id)


_take_key = {"postgresql": _take(postgresql.Insert), "sqlite": _take(sqlite.Insert)}
_one = sa.and_(
    idempotency_keys.c.tenant_id == sa.bindparam("tenant"),
    idempotency_keys.c.user_id == sa.bindparam("user"),
    idempotency_keys.c.key == sa.bindparam("call_key"),
)
_find = sa.select(idempotency_keys).where(_one)
_bind = sa.update(idempotency_keys).where(_one)


async def take_key(
    connection: AsyncConnection, call: CallKey, keyed: KeyedCall, *, tenant_id: str, user_id: str, at: int
) -> KeyedCall | None:
    """Take the key for this call. None: the key is this call's, now or since an earlier try of it. Otherwise returns
    the earlier call to which the key belongs.

    Raises:
        IdempotencyMismatch: the earlier call had another content.
    """
    row = {
        "tenant_id": tenant_id,
        "user_id": user_id,
        "key": call.key,
        "request_hash": call.request_hash,
        "run_id": keyed.run_id,
        "invocation_id": keyed.invocation_id,
        "input_id": keyed.input_id,
        "queued": keyed.queued,
        "created_at": at,
    }
    taken = await connection.execute(_take_key[connection.dialect.name], row | {"expired": at - KEPT_MS})
    if taken.one_or_none() is not None:
        return None
    found = (await connection.execute(_find, {"tenant": tenant_id, "user": user_id, "call_key": call.key})).one()
    if found.input_id == keyed.input_id:
        return None
    if found.request_hash != call.request_hash:
        raise IdempotencyMismatch("the Idempotency-Key belongs to an earlier call that said something else")
    return KeyedCall(
        run_id=found.run_id, invocation_id=found.invocation_id, input_id=found.input_id, queued=found.queued
    )


async def bind_key(
    connection: AsyncConnection, call: CallKey, keyed: KeyedCall, *, tenant_id: str, user_id: str
) -> None:
    """Store where the call's input went, once that is known."""
    await connection.execute(
        _bind,
        {
            "tenant": tenant_id,
            "user": user_id,
            "call_key": call.key,
            "run_id": keyed.run_id,
            "invocation_id": keyed.invocation_id,
            "queued": keyed.queued,
        },
    )
