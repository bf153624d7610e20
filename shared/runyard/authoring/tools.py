"""`@tool`: a function that a model may call."""

import functools
import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, overload

import docstring_parser
from typing_extensions import ParamSpec, TypeVar  # with defaults, PEP 696: Python 3.13's typing has them

from runyard.authoring.arguments import Arguments
from runyard.authoring.errors import AuthoringError
from runyard.authoring.limits import flag, positive_seconds
from runyard.authoring.signature import read_signature, underlying_function

P = ParamSpec("P", default=...)
R = TypeVar("R", default=Any)

TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
"""The Messages API's rule: https://docs.claude.com/en/docs/agents-and-tools/tool-use/implement-tool-use"""


@dataclass(frozen=True, kw_only=True, eq=False)
class Tool(Generic[P, R]):
    """A function that models may call. Calling it calls the author's function, with every argument that it declares,
    the context included.
    """

    name: str
    description: str
    """The docstring without its sections; empty when there is none."""

    handler: Callable[P, R]
    schema: dict[str, Any]
    """JSON Schema of the arguments as the model sees them: type object, without the context."""

    is_async: bool
    timeout_s: float
    exclusive: bool
    """Whether it runs alone, with no other call of the same batch at the same time."""

    idempotent: bool
    """Whether it may run again, with the same `ctx.idempotency_key`, after a worker died while it ran."""

    context_parameter: str | None
    """The name of the parameter that receives the `RunContext`; None: it has no such parameter."""

    _arguments: Arguments = field(repr=False)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.handler(*args, **kwargs)

    def arguments(self, input: Any) -> dict[str, Any]:  # noqa: A002 - the Messages API's word for it
        """The model's `input` (decoded JSON) as keyword arguments of the handler, defaults filled in, no context.

        Raises:
            InvalidToolInput: with a message for the model.
        """
        return self._arguments.parse(input)


@overload
def tool(function: Callable[P, R], /) -> Tool[P, R]: ...
@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    timeout_s: float = 120,
    exclusive: bool = False,
    idempotent: bool = False,
) -> Callable[[Callable[P, R]], Tool[P, R]]: ...
def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    timeout_s: float = 120,
    exclusive: bool = False,
    idempotent: bool = False,
) -> Tool[..., Any] | Callable[[Callable[..., Any]], Tool[..., Any]]:
    """Let models call a function, sync (it runs in a thread) or async. Use it bare (`@tool`) or with options.

    The schema comes from the annotations, the descriptions from the docstring (Google, NumPy or Sphinx style). A
    parameter annotated `RunContext` receives the context and is never shown to the model. A bound method, a
    `functools.partial` (whose fixed arguments are not shown) and an instance with `__call__` may be decorated too.

    Args:
        name: What models call it; by default the function's name.
        description: What models read about it; by default the docstring.
        timeout_s: After this an async function is cancelled, and a thread is left behind; the model is told.
        exclusive: No other call of the same turn runs at the same time.
        idempotent: It may run again after a worker died while it ran.

    Raises:
        AuthoringError: something cannot become a schema; the message names the tool and the parameter.
    """

    def decorate(handler: Callable[..., Any]) -> Tool[..., Any]:
        return read_tool(
            handler,
            kind="tool",
            name=name,
            description=description,
            timeout_s=timeout_s,
            exclusive=exclusive,
            idempotent=idempotent,
        )

    return decorate if function is None else decorate(function)


def read_tool(
    handler: Callable[..., Any],
    *,
    kind: Literal["tool", "function"],
    name: str | None,
    description: str | None,
    timeout_s: float,
    exclusive: bool,
    idempotent: bool,
) -> Tool[..., Any]:
    """The tool that a function becomes; `kind` is the decorator in use, for messages.

    Raises:
        AuthoringError: something cannot become a schema; the message names the tool and the parameter.
    """
    call = _what_runs(kind, handler)
    named = _name(kind, handler, name)
    owner = f"{kind} {named!r}"
    if inspect.isgeneratorfunction(call) or inspect.isasyncgenfunction(call):
        raise AuthoringError(
            f"{owner}: a generator has no single result; return a value, show progress with ctx.stream"
        )
    if description is not None and not isinstance(description, str):
        raise AuthoringError(f"{owner}: description must be a text, not {description!r:.80}")
    signature = read_signature(owner, handler)
    docstring, parameters = _read_docstring(handler)
    arguments = Arguments(owner, signature.parameters, parameters)
    return Tool(
        name=named,
        description=docstring if description is None else description,
        handler=handler,
        schema=arguments.schema,
        is_async=inspect.iscoroutinefunction(call),
        timeout_s=positive_seconds(owner, "timeout_s", timeout_s),
        exclusive=flag(owner, "exclusive", exclusive),
        idempotent=flag(owner, "idempotent", idempotent),
        context_parameter=signature.context_parameter,
        _arguments=arguments,
    )


def _what_runs(kind: str, handler: Any) -> Callable[..., Any]:
    """The function behind an instance with `__call__`; every other callable itself."""
    if isinstance(handler, Tool):
        raise AuthoringError(f"{kind} {handler.name!r}: it is a tool already")
    if not callable(handler) or inspect.isclass(handler):
        raise AuthoringError(f"@{kind} takes a function, not {handler!r:.80}")
    if inspect.isroutine(handler) or isinstance(handler, functools.partial):
        return handler
    call: Callable[..., Any] = type(handler).__call__
    return call


def _name(kind: str, handler: Callable[..., Any], given: str | None) -> str:
    if given is None:
        name: str = getattr(handler, "__name__", None) or underlying_function(handler).__name__
    else:
        name = given
    if not isinstance(name, str) or TOOL_NAME.fullmatch(name) is None or name == "__call__":
        raise AuthoringError(f"{kind} {name!r}: a name is 1 to 64 letters, digits, '_' and '-'; give it with name=")
    return name


def _read_docstring(handler: Callable[..., Any]) -> tuple[str, dict[str, str]]:
    """The description without its sections, and what is said of each parameter."""
    text = inspect.getdoc(underlying_function(handler)) or ""
    try:
        docstring = docstring_parser.parse(text)
    except docstring_parser.ParseError:
        return text, {}
    parameters = {item.arg_name: item.description for item in docstring.params if item.description}
    return (docstring.description or "").strip(), parameters
