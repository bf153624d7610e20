"""What a tool's function takes: the parameters that the model fills, and the one that receives the context."""

import functools
import inspect
import types
import typing
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

from runyard.authoring.context import RunContext
from runyard.authoring.errors import AuthoringError


@dataclass(frozen=True, kw_only=True)
class Signature:
    parameters: tuple[inspect.Parameter, ...]
    """What the model fills: keyword-only, each annotation resolved to a type. Arguments that a `functools.partial`
    has fixed are not among them."""

    context_parameter: str | None


def read_signature(owner: str, handler: Callable[..., Any]) -> Signature:
    """Look at a function, a bound method, a `functools.partial` or an instance with `__call__`. `owner`, for messages:
    `tool 'search'`.

    Raises:
        AuthoringError: a parameter that a model cannot fill, named.
    """
    try:
        declared = inspect.signature(handler).parameters.values()
    except ValueError as error:
        raise AuthoringError(f"{owner}: its parameters cannot be read: {error}") from error
    names = getattr(underlying_function(handler), "__globals__", {})
    fixed = handler.keywords if isinstance(handler, functools.partial) else {}
    parameters: list[inspect.Parameter] = []
    context_parameter: str | None = None
    for parameter in declared:
        if parameter.name in fixed:
            continue
        where = f"{owner}, parameter {parameter.name!r}"
        annotation = _annotation(where, parameter, names)
        if not _is_context(annotation):
            parameters.append(parameter.replace(annotation=annotation, kind=inspect.Parameter.KEYWORD_ONLY))
        elif context_parameter is None:
            context_parameter = parameter.name
        else:
            raise AuthoringError(f"{where}: a second RunContext beside {context_parameter!r}")
    return Signature(parameters=tuple(parameters), context_parameter=context_parameter)


def underlying_function(handler: Callable[..., Any]) -> Callable[..., Any]:
    """The function that an author wrote, below partials, bound methods, `functools.wraps` and instances."""
    while True:
        match handler:
            case functools.partial():
                handler = handler.func
            case types.MethodType():
                handler = handler.__func__
            case _ if hasattr(handler, "__wrapped__"):
                handler = handler.__wrapped__
            case types.FunctionType() | types.BuiltinFunctionType():
                return handler
            case _:
                return type(handler).__call__


def _annotation(where: str, parameter: inspect.Parameter, names: dict[str, Any]) -> Any:
    match parameter.kind:
        case inspect.Parameter.VAR_POSITIONAL | inspect.Parameter.VAR_KEYWORD:
            raise AuthoringError(f"{where}: *args and **kwargs have no schema; name every parameter")
        case inspect.Parameter.POSITIONAL_ONLY:
            raise AuthoringError(f"{where}: positional-only, but a model passes arguments by name; remove the '/'")
    if parameter.annotation is inspect.Parameter.empty and parameter.name in ("self", "cls"):
        raise AuthoringError(f"{where}: a method of a class; use that of an instance, like tool(Shop().find)")
    if parameter.annotation is inspect.Parameter.empty:
        raise AuthoringError(f"{where}: no type annotation, so it has no schema (the context is annotated RunContext)")
    # One at a time, so that an unknown name is told with its parameter, and one in the return type does not matter.
    holder = types.SimpleNamespace(__annotations__={parameter.name: parameter.annotation})
    try:
        return typing.get_type_hints(holder, globalns=names, include_extras=True)[parameter.name]
    except (NameError, AttributeError, SyntaxError, TypeError) as error:
        raise AuthoringError(
            f"{where}: its annotation cannot be evaluated: {error} (a name imported only `if TYPE_CHECKING` is missing "
            "when the file runs)"
        ) from error


def _is_context(annotation: Any) -> bool:
    """`RunContext`, also inside `Annotated` or beside None."""
    origin = typing.get_origin(annotation)
    if origin is Annotated:
        return _is_context(typing.get_args(annotation)[0])
    if origin in (typing.Union, types.UnionType):
        members = [member for member in typing.get_args(annotation) if member is not types.NoneType]
        return len(members) == 1 and _is_context(members[0])
    return annotation is RunContext
