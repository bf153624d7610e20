"""JSON Schemas of tools: what pydantic draws from annotations, reduced to what every model's endpoint accepts.

Endpoints that check schemas strictly refuse `oneOf` in items and `default`, and know no `discriminator`; titles are
noise in the prompt. A default is applied on our side: an optional parameter is one that `required` does not list.
"""

from collections.abc import Mapping
from typing import Any

from pydantic.errors import PydanticInvalidForJsonSchema
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

_DROPPED = frozenset({"title", "default", "discriminator", "example", "externalDocs", "xml", "nullable"})
_NAMED_SCHEMAS = frozenset({"properties", "patternProperties", "$defs", "dependentSchemas"})
_VALUES = frozenset({"const", "enum", "examples", "required"})

_TYPE_NAMES: Mapping[type, str] = {
    type(None): "null",
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
    list: "array",
    dict: "object",
}
JSON_TYPES = frozenset(_TYPE_NAMES.values())


class ToolJsonSchema(GenerateJsonSchema):
    """Refuses what pydantic only warns of, or describes as "anything" although no JSON value fits it."""

    def emit_warning(self, kind: Any, detail: str) -> None:
        if kind == "skipped-choice":
            raise PydanticInvalidForJsonSchema(detail)

    def generator_schema(self, schema: core_schema.GeneratorSchema) -> JsonSchemaValue:  # noqa: ARG002 - pydantic's
        raise PydanticInvalidForJsonSchema(
            "an Iterable is checked only as it is read: write list[...] or Sequence[...]"
        )

    def is_subclass_schema(self, schema: core_schema.IsSubclassSchema) -> JsonSchemaValue:
        return self.handle_invalid_for_json_schema(schema, "a class")


def for_models(schema: Mapping[str, Any]) -> dict[str, Any]:
    """A copy without the keywords that endpoints refuse, `oneOf` as `anyOf`."""
    reduced: dict[str, Any] = {}
    for keyword, value in schema.items():
        if keyword in _DROPPED:
            continue
        if keyword in _NAMED_SCHEMAS:
            reduced[keyword] = {name: for_models(part) for name, part in value.items()}
        elif keyword in _VALUES:
            reduced[keyword] = value
        else:
            reduced["anyOf" if keyword == "oneOf" else keyword] = _reduce(value)
    return reduced


def _reduce(value: Any) -> Any:
    match value:
        case dict():
            return for_models(value)
        case list():
            return [_reduce(item) for item in value]
    return value


def admitted_types(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> frozenset[str]:
    """The JSON types that a value of this schema may have; all of them where the schema does not say.

    `definitions` is the `$defs` of the schema's root.
    """
    return _admitted(schema, definitions, frozenset())


def _admitted(schema: Mapping[str, Any], definitions: Mapping[str, Any], seen: frozenset[str]) -> frozenset[str]:
    match schema:
        case {"$ref": str(reference)} if reference not in seen:
            name = reference.removeprefix("#/$defs/")
            return _admitted(definitions.get(name, {}), definitions, seen | {reference})
        case {"type": names}:
            return frozenset([names] if isinstance(names, str) else names)
        case {"anyOf": list(choices)}:
            return frozenset().union(*(_admitted(choice, definitions, seen) for choice in choices))
        case {"enum": list(values)}:
            return frozenset(json_type(value) for value in values)
        case {"const": value}:
            return frozenset({json_type(value)})
    return JSON_TYPES


def json_type(value: Any) -> str:
    """The JSON type of a decoded JSON value (`1.0` is a number, no integer); Python's name for any other value."""
    return _TYPE_NAMES.get(type(value), type(value).__name__)
