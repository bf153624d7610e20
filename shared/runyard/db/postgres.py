"""Connections to Postgres: every wait has a limit, and connections to a standby are dropped."""

import select
from typing import Any, TypeVar

import psycopg
import sqlalchemy as sa
from psycopg.abc import PQGen
from psycopg.pq import TransactionStatus

T = TypeVar("T")

IDLE_IN_TRANSACTION_MS = 5_000
"""A frozen process must not hold a run's lock: after this the server ends its session."""

CONNECT_S = 5
ANSWER_S = 10
"""A server that does not answer a statement for this long counts as away, whether it, its disk or a proxy hangs."""

MARGIN_S = 1
"""Where the server itself has a limit for statements, we wait this much longer for its error."""

WAIT_INTERVAL_S = 0.1  # psycopg's own: how often a wait that blocks its thread looks for signals

READ_ONLY_TRANSACTION = "25006"
"""The SQLSTATE of a write on a standby. After a failover such a link would stay on the standby, so it counts as lost.

https://www.postgresql.org/docs/current/errcodes-appendix.html"""


FAREWELLS = ("57P", "08")
"""The classes of SQLSTATEs with which the server ends a link. The statement may or may not have been executed."""

_USED = "used"

POOLED = "pgbouncer"
"""`?pgbouncer=true`: the address is that of a pool in transaction mode, where every transaction may get another
session. So nothing that belongs to a session is used: no prepared statements, no session settings."""


def link_url(url: str) -> sa.URL:
    return _parsed(url).difference_update_query([POOLED])


def link_options(url: str, statement_timeout_ms: int | None) -> dict[str, Any]:
    """https://www.postgresql.org/docs/current/libpq-connect.html"""
    silent_ms = statement_timeout_ms or ANSWER_S * 1000
    if _parsed(url).query.get(POOLED) == "true":
        session: dict[str, Any] = {"prepare_threshold": None}
    else:
        session = {"options": _session_settings(statement_timeout_ms)}
    return session | {
        "connect_timeout": min(CONNECT_S, silent_ms // 1000),
        # A server that vanished without a word acknowledges no packet: its link is broken after this, not after hours.
        "tcp_user_timeout": silent_ms,
        "keepalives_idle": 10,
        "keepalives_interval": 5,
        "keepalives_count": 2,
    }


def _parsed(url: str) -> sa.URL:
    scheme, _, rest = url.partition("://")
    assert scheme in {"postgres", "postgresql"}
    return sa.make_url(f"postgresql+psycopg://{rest}")


def _session_settings(statement_timeout_ms: int | None) -> str:
    # What a claim looks for is found in a millisecond or two, and compiled in thirty: the planner cannot tell how far a
    # recursion goes, and takes it for a lot of work.
    options = f"-c idle_in_transaction_session_timeout={IDLE_IN_TRANSACTION_MS} -c jit=off"
    if statement_timeout_ms is not None:
        options += f" -c statement_timeout={statement_timeout_ms}"
    return options


def watch_links(engine: sa.Engine) -> None:
    """Drop the pool's links when one of them turns out to lead to a standby. Replace a link that died while it was idle
    before anything is sent over it.
    """

    @sa.event.listens_for(engine, "handle_error")
    def _lose_standby(context: sa.engine.ExceptionContext) -> None:
        if getattr(context.original_exception, "sqlstate", None) == READ_ONLY_TRANSACTION:
            context.is_disconnect = True

    @sa.event.listens_for(engine, "checkout")
    def _replace_dead(_link: object, record: sa.pool.ConnectionPoolEntry, _proxy: object) -> None:
        if _USED not in record.info:
            record.info[_USED] = True  # opened just now: the pool gives up when it is refused a second new one
        elif record.driver_connection is None or _has_died(record.driver_connection.pgconn):
            raise sa.exc.DisconnectionError


def _has_died(link: psycopg.pq.abc.PGconn) -> bool:
    """A server sends something over an idle link only to end it."""
    try:
        incoming = select.poll()
        incoming.register(link.socket, select.POLLIN)
        return bool(incoming.poll(0))
    except psycopg.OperationalError:  # it is closed
        return True


def is_refusal(error: BaseException | None) -> bool:
    """Whether this error of the server means that the statement was not executed (see `FAREWELLS`)."""
    state: str | None = getattr(error, "sqlstate", None)
    return state is not None and not state.startswith(FAREWELLS)


def bound_waits(engine: sa.Engine, statement_timeout_ms: int | None) -> None:
    """Give a blocking engine `BoundedLink`s."""

    @sa.event.listens_for(engine, "do_connect")
    def _connect(_dialect: object, _record: object, arguments: Any, parameters: Any) -> BoundedLink:
        link = BoundedLink.connect(*arguments, **parameters)
        if statement_timeout_ms is not None:
            link.answer_s = statement_timeout_ms / 1000 + MARGIN_S
        return link


class BoundedLink(psycopg.Connection[Any]):
    answer_s: float | None = ANSWER_S
    """None: wait for as long as the server lives."""

    def wait(self, gen: PQGen[T], interval: float = WAIT_INTERVAL_S, timeout: float | None = None) -> T:
        try:
            return super().wait(gen, interval, timeout or self.answer_s)
        except psycopg.OperationalError:
            _give_up(self.pgconn)
            raise


class AsyncBoundedLink(psycopg.AsyncConnection[Any]):
    async def wait(
        self,
        gen: PQGen[T],
        interval: float = WAIT_INTERVAL_S,
        timeout: float | None = None,  # noqa: ASYNC109 - psycopg's own
    ) -> T:
        try:
            return await super().wait(gen, interval, timeout or ANSWER_S)
        except psycopg.OperationalError:
            _give_up(self.pgconn)
            raise


def _give_up(link: psycopg.pq.abc.PGconn) -> None:
    """Close a link whose statement is still running, since nobody will read its answer."""
    if link.transaction_status == TransactionStatus.ACTIVE:
        link.finish()
