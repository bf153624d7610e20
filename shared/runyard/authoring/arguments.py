"""From the JSON object that a model sends to the keyword arguments of a tool's function."""

import inspect
import json
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import TypeAdapter, ValidationError

from runyard.authoring.errors import AuthoringError, InvalidToolInput
from runyard.authoring.issues import find_issues
from runyard.authoring.schema import ToolJsonSchema, for_models
from runyard.authoring.shape import Shape


class Arguments:
    """The arguments of one tool: their JSON Schema, and the check of what a model sends.

    An argument's JSON type is never changed: what the schema does not admit is refused, and validation is pydantic's
    strict JSON mode (true is not 1, "5" is not 5). Two lenient readings come before it (`Shape.given`). Unknown
    arguments are refused: to ignore one that the model asked for (`dry_run`) would do something else than it meant.
    """

    def __init__(self, owner: str, parameters: Sequence[inspect.Parameter], descriptions: Mapping[str, str]) -> None:
        """`owner`, for messages: `tool 'search'`. `descriptions` is what the docstring says of parameters; a
        `Field(description=...)` goes before it.

        Raises:
            AuthoringError: no JSON value can fill a parameter's type; names the parameter.
        """
        self._adapter, self.schema = _build(owner, parameters)
        properties: dict[str, Any] = self.schema["properties"]
        for parameter, part in zip(parameters, properties.values(), strict=True):
            if parameter.name in descriptions:
                part.setdefault("description", descriptions[parameter.name])
        self._shape = Shape(self.schema)

    def parse(self, value: Any) -> dict[str, Any]:
        """Keyword arguments, defaults filled in.

        Raises:
            InvalidToolInput: the value does not fit, with every reason found.
        """
        if not isinstance(value, dict):
            raise InvalidToolInput(self._shape.issues(value))
        given = self._shape.given(value)
        issues = self._shape.type_issues(given)
        try:
            arguments: dict[str, Any] = self._adapter.validate_json(json.dumps(given), strict=True)
        except ValidationError as error:
            issues = {**find_issues(error, given), **issues}
        except RecursionError:
            issues[""] = "nested too deeply"
        if issues:
            raise InvalidToolInput(issues)
        return arguments


def _build(owner: str, parameters: Sequence[inspect.Parameter]) -> tuple[TypeAdapter[Any], dict[str, Any]]:
    try:
        return _adapt(parameters)
    except Exception as error:
        # pydantic and the authors' own types raise errors of every kind here; which parameter it was, we find out.
        for parameter in parameters:
            try:
                _adapt([parameter])
            except Exception as cause:
                raise AuthoringError(
                    f"{owner}, parameter {parameter.name!r}: no JSON Schema for this type: {_reason(cause)}. A caller "
                    "sends JSON: text, numbers, lists, pydantic models; objects come from ctx.resources"
                ) from cause
        raise AuthoringError(f"{owner}: no JSON Schema for its parameters: {_reason(error)}") from error


def _adapt(parameters: Sequence[inspect.Parameter]) -> tuple[TypeAdapter[Any], dict[str, Any]]:
    # pydantic takes a call apart by a function's signature, with any parameter name (`self`, `schema`, `json`).
    def collect(**arguments: Any) -> dict[str, Any]:
        return arguments

    collect.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # inspect reads it, PEP 362
    collect.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    adapter: TypeAdapter[dict[str, Any]] = TypeAdapter(collect)  # type: ignore[arg-type]  # typed for types only
    schema = for_models(adapter.json_schema(schema_generator=ToolJsonSchema))
    del schema["additionalProperties"]
    return adapter, schema


def _reason(error: BaseException) -> str:
    """The first line, without what pydantic advises those to do who own a model's config."""
    line, *_ = str(error).partition("\n")
    return line.partition(" Set `arbitrary_types_allowed")[0].rstrip(".")
