"""The database's clock, which is the same for all processes."""

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

_UNIX_EPOCH_JULIAN_DAY = 2440587.5
_NOW_MS = {
    "postgresql": sa.text("SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint"),
    "sqlite": sa.text(f"SELECT CAST(round((julianday('now') - {_UNIX_EPOCH_JULIAN_DAY}) * 86400000) AS INTEGER)"),
}


def now_ms_over(connection: sa.Connection) -> int:
    return int(connection.execute(_NOW_MS[connection.dialect.name]).scalar_one())


async def database_now_ms(connection: AsyncConnection) -> int:
    return int((await connection.execute(_NOW_MS[connection.dialect.name])).scalar_one())
