"""Functions and no agent: each does one thing that their callers can see."""

from typing import Any

from runyard_agents._outside import wait_at

from runyard import Refused, RunContext, function


@function
def add(first: int, second: int) -> int:
    """Streams nothing.

    Args:
        first: One of the two.
    """
    return first + second


@function
async def recite(ctx: RunContext, words: list[str], gate: str | None = None) -> dict[str, int]:
    """Writes word after word; in between it waits at the gate, if there is one."""
    for word in words[:1]:
        ctx.stream.write(word)
    if gate is not None:
        await wait_at(gate)
    for word in words[1:]:
        ctx.stream.write(word)
    return {"count": len(words)}


@function
async def announce(ctx: RunContext, name: str) -> None:
    """Streams an event of its own and no text."""
    ctx.stream.event(name, {"at": 1})


@function
async def refuse(ctx: RunContext, status: int, saying: str = "") -> None:
    ctx.stream.write(saying)
    raise Refused("NOT_TODAY", "Come back tomorrow", status=status, opensAt="09:00")


@function
async def fail() -> None:
    raise KeyError("lost")


@function
def who(ctx: RunContext) -> dict[str, Any]:
    return {"user": ctx.user_id, "tenant": ctx.tenant_id, "roles": sorted(ctx.roles), "context": ctx.context}


@function(auth="public", name="open_hours")
async def hours(ctx: RunContext, gate: str | None = None, day: str = "monday") -> dict[str, str]:
    if day != "monday":
        raise KeyError(day)
    if gate is not None:
        ctx.stream.write("9 to ")
        await wait_at(gate)
        ctx.stream.write("5")
    return {"user": ctx.user_id, "tenant": ctx.tenant_id}


@function(internal=True)
def reindex() -> str:
    return "reindexed"


@function(auth="admin")
def payroll() -> str:
    return "paid"


@function(queue="elsewhere")
def recite_elsewhere(ctx: RunContext, words: list[str]) -> None:
    """On a queue that only a worker of the test's own serves."""
    for word in words:
        ctx.stream.write(word)


@function(queue="unserved", name="nowhere")
def waits() -> None:
    pass
