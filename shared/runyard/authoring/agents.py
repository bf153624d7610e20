"""`agent(...)`: the definition of an agent, one per file; the file's name is the agent's name."""

import copy
import inspect
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

from runyard.authoring.context import RunContext
from runyard.authoring.errors import AuthoringError
from runyard.authoring.limits import flag, optional_count, positive_count, positive_seconds, priority_class, queue_name
from runyard.authoring.tools import Tool
from runyard.priorities import Priority
from runyard.rooms import ROOM, ROOM_RULE

SystemPrompt = str | Callable[[RunContext], str | Awaitable[str]]
"""A text, or a function (sync or async) that is called before every model call."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Agent:
    system: SystemPrompt | None
    tools: tuple[Tool[..., Any], ...]
    model: str | None
    """None: the worker's `RUNYARD_MODEL`."""

    fallbacks: tuple[str, ...]
    """Tried in this order when the model fails."""

    max_steps: int
    max_tokens: int
    timeout_s: float
    auth: Literal["user", "admin"]
    queue: str
    priority: Priority
    """The class of calls that do not name one."""

    max_running: int | None
    """How many runs of it may run at once, over all workers; None: any number."""

    provider_options: Mapping[str, Any]
    stream_thinking: bool
    rooms: tuple[str, ...]
    """Rooms that every user who may call the agent may join."""

    def manifest(self, name: str) -> dict[str, Any]:
        """What gateways may know of the agent, JSON-ready; never the system prompt.

        `{name, auth, queue, priority, maxRunning, model, maxSteps, maxTokens, timeoutS, rooms, tools: [{name,
        description, inputSchema, idempotent, exclusive, timeoutS}]}`
        """
        return {
            "name": name,
            "auth": self.auth,
            "queue": self.queue,
            "priority": self.priority,
            "maxRunning": self.max_running,
            "model": self.model,
            "maxSteps": self.max_steps,
            "maxTokens": self.max_tokens,
            "timeoutS": self.timeout_s,
            "rooms": list(self.rooms),
            "tools": [
                {
                    "name": tool.name,
                    "description": tool.description,
                    "inputSchema": copy.deepcopy(tool.schema),
                    "idempotent": tool.idempotent,
                    "exclusive": tool.exclusive,
                    "timeoutS": tool.timeout_s,
                }
                for tool in self.tools
            ],
        }


def agent(
    *,
    system: SystemPrompt | None = None,
    tools: Sequence[Tool[..., Any]] = (),
    model: str | None = None,
    fallbacks: Sequence[str] = (),
    max_steps: int = 64,
    max_tokens: int = 4096,
    timeout_s: float = 600,
    auth: Literal["user", "admin"] = "user",
    queue: str = "default",
    priority: Literal["interactive", "background"] = "interactive",
    max_running: int | None = None,
    provider_options: Mapping[str, Any] | None = None,
    stream_thinking: bool = True,
    rooms: Sequence[str] = (),
) -> Agent:
    """Define the agent of this file. Arguments are copied: changing them later changes nothing.

    Args:
        system: The system prompt, or a function of the context (sync or async) that returns it before every model call.
        tools: What the model may call.
        model: Which model to call; None: the worker's `RUNYARD_MODEL`.
        fallbacks: Models to try in this order when `model` fails. A caller's own model replaces `model` only.
        max_steps: How many model calls one invocation may make.
        max_tokens: How long each of the model's answers may be.
        timeout_s: How long the model and the tools may be silent.
        auth: "admin" restricts the agent to callers with the role admin.
        queue: Where its runs wait. Only workers that name the queue in `RUNYARD_QUEUES` take them.
        priority: The class of calls that do not name one. "background" calls wait behind those that somebody waits for.
        max_running: How many of its runs may run at once, over all workers; None: any number.
        provider_options: Further keys of the model's request, passed on as they are (JSON).
        stream_thinking: Whether readers see the model's reasoning.
        rooms: Rooms that everybody who may call the agent may join: names, or how names begin (`project:*`).

    Raises:
        AuthoringError: something in `tools` is not a tool, a name is used twice, or a value is not allowed.
    """
    where = "agent(...)"
    if auth not in ("user", "admin"):
        raise AuthoringError(f"{where}: auth must be 'user' or 'admin', not {auth!r}")
    if model is not None and not _is_model(model):
        raise AuthoringError(f"{where}: model must be a model's name, not {model!r}")
    return Agent(
        system=_check_system(where, system),
        tools=_check_tools(where, tools),
        model=model,
        fallbacks=_check_fallbacks(where, model, fallbacks),
        max_steps=positive_count(where, "max_steps", max_steps),
        max_tokens=positive_count(where, "max_tokens", max_tokens),
        timeout_s=positive_seconds(where, "timeout_s", timeout_s),
        auth=auth,
        queue=queue_name(where, queue),
        priority=priority_class(where, priority),
        max_running=optional_count(where, "max_running", max_running),
        provider_options=_copy_options(where, provider_options or {}),
        stream_thinking=flag(where, "stream_thinking", stream_thinking),
        rooms=_check_rooms(where, rooms),
    )


def _check_system(where: str, system: Any) -> SystemPrompt | None:
    if system is None or isinstance(system, str):
        return system
    try:
        inspect.signature(system).bind(None)
    except TypeError:
        raise AuthoringError(
            f"{where}: system must be a text, or a function of one parameter, the context: not {system!r:.80}"
        ) from None
    except ValueError:
        pass  # it has no signature to be read: what it takes shows when it is called
    checked: SystemPrompt = system
    return checked


def _check_rooms(where: str, rooms: Any) -> tuple[str, ...]:
    if not isinstance(rooms, Sequence) or isinstance(rooms, str):
        raise AuthoringError(f"{where}: rooms must be a list of names, not {rooms!r}")
    for room in rooms:
        if not isinstance(room, str) or ROOM.fullmatch(room) is None:
            raise AuthoringError(f"{where}: a room's name must be {ROOM_RULE}: not {room!r}")
    return tuple(rooms)


def _is_model(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _check_fallbacks(where: str, model: str | None, fallbacks: Any) -> tuple[str, ...]:
    if not isinstance(fallbacks, Sequence) or isinstance(fallbacks, str) or not all(map(_is_model, fallbacks)):
        raise AuthoringError(f"{where}: fallbacks must be a list of models' names, not {fallbacks!r}")
    twice = [name for name, count in Counter([model, *fallbacks]).items() if count > 1]
    if twice:
        raise AuthoringError(f"{where}: fallbacks holds {twice[0]!r} twice, or the model itself")
    return tuple(fallbacks)


def _check_tools(where: str, tools: Any) -> tuple[Tool[..., Any], ...]:
    if not isinstance(tools, Sequence) or isinstance(tools, str):
        raise AuthoringError(f"{where}: tools must be a list of tools, not {type(tools).__name__}")
    for item in tools:
        if inspect.isroutine(item):
            raise AuthoringError(f"{where}: {item.__name__!r} is a plain function; decorate it with @tool")
        if not isinstance(item, Tool):
            raise AuthoringError(f"{where}: tools must hold tools only, not {type(item).__name__}")
    twice = [name for name, count in Counter(item.name for item in tools).items() if count > 1]
    if twice:
        raise AuthoringError(f"{where}: two tools are named {twice[0]!r}; give one another name with @tool(name=...)")
    return tuple(tools)


def _copy_options(where: str, options: Mapping[str, Any]) -> Mapping[str, Any]:
    try:
        copied: dict[str, Any] = json.loads(json.dumps(dict(options), allow_nan=False))
    except (TypeError, ValueError) as error:
        raise AuthoringError(f"{where}: provider_options must be a mapping of JSON values: {error}") from error
    return MappingProxyType(copied)
