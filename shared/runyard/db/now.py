"""The database's clock, which is the same for all processes."""

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

_NOW_MS = {
    "postgresql": sa.text("SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint"),
    "sqlite": sa.text(
        "SELECT CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER)"
    ),  # 1970 as a Julian day
}


def now_ms_over(connection: sa.Connection) -> int:
    return int(connection.execute(_NOW_MS[connection.dialect.name]).scalar_one())


async def database_now_ms(connection: AsyncConnection) -> int:
    return int((await connection.execute(_NOW_MS[connection.dialect.name])).scalar_one())
