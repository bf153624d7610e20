"""`@lifespan`: what a worker process opens once and lends to every call as `ctx.resources`."""

import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from runyard.authoring.errors import AuthoringError
from runyard.errors import StartError

ResourceGenerator = AsyncGenerator[Mapping[str, Any], None]


@dataclass(frozen=True, kw_only=True, eq=False)
class Lifespan:
    name: str
    """`<module>.<function>`, for messages."""

    open: Callable[[], ResourceGenerator]


def lifespan(function: Callable[[], ResourceGenerator], /) -> Lifespan:
    """Open resources once for a worker process, from an async generator function that yields one mapping of them.

    It runs on the event loop that the tools run on, so clients bound to a loop belong here. What follows the `yield`
    closes them when the worker ends.

        @lifespan
        async def database():
            async with connect(...) as pool:
                yield {"pool": pool}

    Raises:
        AuthoringError: it is not an async generator function without parameters.
    """
    if not inspect.isasyncgenfunction(function):
        raise AuthoringError(f"@lifespan takes an async generator function (async def with a yield), not {function!r}")
    name = f"{function.__module__}.{function.__qualname__}"
    if inspect.signature(function).parameters:
        raise AuthoringError(f"lifespan {name!r}: it takes no parameters")
    return Lifespan(name=name, open=function)


@asynccontextmanager
async def open_resources(lifespans: Iterable[Lifespan]) -> AsyncIterator[Mapping[str, Any]]:
    """Open all in order, merge their mappings into one that is read-only, close them in reverse order.

    Every generator is closed even if closing another fails, which is logged.

    Raises:
        StartError: one of them failed to open, yielded no mapping, or yielded a key that another one has.
    """
    resources: dict[str, Any] = {}
    owners: dict[str, str] = {}
    async with AsyncExitStack() as stack:
        for span in lifespans:
            generator = span.open()
            yielded = await _first(span.name, generator)
            stack.push_async_callback(_close, span.name, generator)
            if not isinstance(yielded, Mapping):
                raise StartError(f"lifespan {span.name!r} yielded {type(yielded).__name__}, not a mapping")
            for key in yielded:
                if key in owners:
                    raise StartError(f"resource {key!r} is given by two lifespans, {owners[key]!r} and {span.name!r}")
                owners[key] = span.name
            resources.update(yielded)
        yield MappingProxyType(resources)


async def _first(name: str, generator: ResourceGenerator) -> Any:
    try:
        return await anext(generator)
    except StopAsyncIteration:
        raise StartError(f"lifespan {name!r} ended without a yield") from None
    except (Exception, SystemExit) as error:
        said = " ".join(str(error).split())  # drivers say it in several lines, and a start says why in one
        raise StartError(f"lifespan {name!r} failed to open: {type(error).__name__}: {said}") from error


async def _close(name: str, generator: ResourceGenerator) -> None:
    import structlog  # here, so that importing runyard in an agent's file stays cheap

    try:
        try:
            async for _ in generator:
                raise RuntimeError(f"lifespan {name!r} yielded twice")
        finally:
            await generator.aclose()
    except (Exception, SystemExit):  # noqa: BLE001 - an author's code may raise anything, and the others must still close
        structlog.get_logger().exception("lifespan not closed", lifespan=name)
