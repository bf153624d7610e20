"""From the JSON object that a model sends to the keyword arguments of a tool's function."""

import inspect
import json
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import TypeAdapter, ValidationError
from pydantic_core import from_json

from runyard.authoring.errors import AuthoringError, InvalidToolInput
from runyard.authoring.issues import as_text, find_issues, mismatch, missing
from runyard.authoring.schema import JSON_TYPES, ToolJsonSchema, admitted_types, for_models, json_type


class Arguments:
    """The arguments of one tool: their JSON Schema, and the check of what a model sends.

    An argument's JSON type is never changed: what the schema does not admit is refused, and validation is pydantic's
    strict JSON mode (true is no 1, "5" no 5). Two readings go before it, each only where the type leaves no doubt:
    an object or array that arrives as a JSON string, for a type that admits no string, is decoded (models do that);
    null for an optional parameter whose type admits no null means that it was not given.
    Unknown arguments are refused: leaving out what a model asked for (`dry_run`) would do something else than asked.
    """

    def __init__(self, tool: str, parameters: Sequence[inspect.Parameter], descriptions: Mapping[str, str]) -> None:
        """`descriptions` is what the docstring says of parameters; a `Field(description=...)` goes before it.

        Raises:
            AuthoringError: no JSON value can fill a parameter's type; names the parameter.
        """
        self._adapter, self.schema = _build(tool, parameters)
        properties: dict[str, Any] = self.schema["properties"]
        for parameter, part in zip(parameters, properties.values(), strict=True):
            if parameter.name in descriptions:
                part.setdefault("description", descriptions[parameter.name])
        definitions = self.schema.get("$defs", {})
        self._types = {name: admitted_types(part, definitions) for name, part in properties.items()}
        self._required = frozenset(self.schema.get("required", ()))

    def parse(self, value: Any) -> dict[str, Any]:
        """Keyword arguments, defaults filled in.

        Raises:
            InvalidToolInput: the value does not fit, with every reason found.
        """
        if not isinstance(value, dict):
            raise InvalidToolInput(f"Invalid tool input: {mismatch('', ['object'], value)}")
        given = {name: self._decoded(name, item) for name, item in value.items() if not self._is_absent(name, item)}
        issues = self._type_issues(given)
        try:
            arguments: dict[str, Any] = self._adapter.validate_json(json.dumps(given), strict=True)
        except ValidationError as error:
            issues = {**find_issues(error, given), **issues}
        except RecursionError:
            issues[""] = "nested too deeply"
        if issues:
            raise InvalidToolInput(f"Invalid tool input: {as_text(issues)}")
        return arguments

    def _is_absent(self, name: str, value: Any) -> bool:
        return value is None and name not in self._required and "null" not in self._types.get(name, JSON_TYPES)

    def _decoded(self, name: str, value: Any) -> Any:
        types = self._types.get(name, JSON_TYPES)
        if not isinstance(value, str) or "string" in types or types.isdisjoint({"array", "object"}):
            return value
        try:
            decoded = from_json(value, allow_inf_nan=False)
        except ValueError:
            return value
        return decoded if json_type(decoded) in types & {"array", "object"} else value

    def _type_issues(self, given: dict[str, Any]) -> dict[str, str]:
        issues = {}
        for name, types in self._types.items():
            if name not in given:
                if name in self._required:
                    issues[name] = missing(name, _ordered(types))
            elif json_type(given[name]) not in (types | {"integer"} if "number" in types else types):
                issues[name] = mismatch(name, _ordered(types), given[name])
        return issues


def _ordered(types: frozenset[str]) -> list[str]:
    return sorted(types - {"null"}) + sorted(types & {"null"}) if types < JSON_TYPES else []


def _build(tool: str, parameters: Sequence[inspect.Parameter]) -> tuple[TypeAdapter[Any], dict[str, Any]]:
    try:
        return _adapt(parameters)
    except Exception as error:
        # pydantic and the authors' own types raise errors of every kind here; which parameter it was, we find out.
        for parameter in parameters:
            try:
                _adapt([parameter])
            except Exception as cause:
                raise AuthoringError(
                    f"tool {tool!r}, parameter {parameter.name!r}: no JSON Schema for this type: {_first_line(cause)}"
                ) from cause
        raise AuthoringError(f"tool {tool!r}: no JSON Schema for its parameters: {_first_line(error)}") from error


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


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0]
