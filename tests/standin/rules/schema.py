"""A tool's `input_schema`: JSON Schema draft 2020-12, walked keyword by keyword.

https://json-schema.org/draft/2020-12. Stricter than the draft in three points, because in a tool's schema they are
faults: unknown keywords, `required` names without a property, references that lead nowhere.
"""

import re
from collections.abc import Callable
from typing import Any

from tests.standin.rules.refusal import InvalidTranscript

TYPES = frozenset({"null", "boolean", "object", "array", "number", "integer", "string"})
DIALECTS = frozenset({"https://json-schema.org/draft/2020-12/schema", "https://json-schema.org/draft/2020-12/schema#"})

ONE_SCHEMA_OF_OBJECTS = frozenset({"additionalProperties", "propertyNames", "unevaluatedProperties"})
ONE_SCHEMA_OF_ARRAYS = frozenset({"items", "contains", "unevaluatedItems"})
ONE_SCHEMA = ONE_SCHEMA_OF_OBJECTS | ONE_SCHEMA_OF_ARRAYS | {"not", "if", "then", "else", "contentSchema"}
SCHEMA_LIST = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
SCHEMA_MAP = frozenset({"properties", "patternProperties", "dependentSchemas", "$defs"})
TEXT = frozenset({"title", "description", "format", "$comment", "contentEncoding", "contentMediaType"})
FLAG = frozenset({"deprecated", "readOnly", "writeOnly", "uniqueItems"})
NUMBER = frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"})
COUNT = frozenset(f"{end}{what}" for end in ("min", "max") for what in ("Length", "Items", "Contains", "Properties"))
NOT_AT_THE_TOP = ("oneOf", "allOf", "anyOf")  # the API's own limit


def check_input_schema(schema: dict[str, Any], path: str) -> None:
    if schema.get("type") != "object":
        raise InvalidTranscript(f"{path}.type: Input should be 'object'")
    for keyword in NOT_AT_THE_TOP:
        if keyword in schema:
            raise InvalidTranscript(f"{path}: input_schema does not support oneOf, allOf, or anyOf at the top level")
    _Walk(schema, path).schema(schema, "#")


class _Walk:
    def __init__(self, root: dict[str, Any], path: str) -> None:
        self.root = root
        self.path = path

    def fault(self, place: str, why: str) -> InvalidTranscript:
        return InvalidTranscript(
            f"{self.path}: JSON schema is invalid. It must match JSON Schema draft 2020-12 "
            f"(https://json-schema.org/draft/2020-12). At {place}: {why}"
        )

    def schema(self, schema: Any, place: str) -> None:
        if isinstance(schema, bool):
            return
        if not isinstance(schema, dict):
            raise self.fault(place, "a schema is an object or a boolean")
        for keyword, value in schema.items():
            self.keyword(keyword, value, f"{place}/{keyword}")
        self.required_are_properties(schema, place)

    def keyword(self, keyword: str, value: Any, place: str) -> None:
        if keyword in {"default", "const"}:
            return  # any value
        if keyword in ONE_SCHEMA:
            self.schema(value, place)
        elif keyword in SCHEMA_LIST:
            self.expect(isinstance(value, list) and value, place, "a list of schemas, not empty")
            for index, item in enumerate(value):
                self.schema(item, f"{place}/{index}")
        elif keyword in SCHEMA_MAP:
            self.expect(isinstance(value, dict), place, "an object of schemas")
            for name, item in value.items():
                self.schema(item, f"{place}/{name}")
        else:
            self.plain_keyword(keyword, value, place)

    def plain_keyword(self, keyword: str, value: Any, place: str) -> None:
        if keyword not in PLAIN:
            raise self.fault(place, "unknown keyword")
        holds, wanted = PLAIN[keyword]
        self.expect(holds(value), place, wanted)
        match keyword:
            case "pattern":
                self.pattern(value, place)
            case "$ref":
                self.reference(value, place)

    def expect(self, holds: object, place: str, wanted: str) -> None:
        if not holds:
            raise self.fault(place, f"must be {wanted}")

    def pattern(self, pattern: str, place: str) -> None:
        try:
            re.compile(pattern)
        except re.error as error:
            raise self.fault(place, f"not a regular expression: {error}") from None

    def reference(self, reference: str, place: str) -> None:
        self.expect(reference.startswith("#"), place, "a reference within this schema")
        target: Any = self.root
        for part in reference.removeprefix("#").split("/")[1:]:
            name = part.replace("~1", "/").replace("~0", "~")
            if isinstance(target, list) and name.isdecimal() and int(name) < len(target):
                target = target[int(name)]
            elif isinstance(target, dict) and name in target:
                target = target[name]
            else:
                raise self.fault(place, f"{reference} leads nowhere")
        self.expect(isinstance(target, dict | bool), place, "a reference to a schema")

    def required_are_properties(self, schema: dict[str, Any], place: str) -> None:
        known = schema.get("properties", {})
        if missing := [name for name in schema.get("required", []) if name not in known]:
            raise self.fault(f"{place}/required", f"no property is named {', '.join(missing)}")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _are_names(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_text, value)) and len(set(value)) == len(value)


def _are_types(value: Any) -> bool:
    if isinstance(value, str):
        return value in TYPES
    return _are_names(value) and bool(value) and set(value) <= TYPES


PLAIN: dict[str, tuple[Callable[[Any], object], str]] = {
    "type": (_are_types, f"one or several of {', '.join(sorted(TYPES))}"),
    "enum": (lambda value: isinstance(value, list) and value, "a list, not empty"),
    "required": (_are_names, "a list of different names"),
    "examples": (lambda value: isinstance(value, list), "a list"),
    "pattern": (_is_text, "a string"),
    "$ref": (_is_text, "a string"),
    "$schema": (lambda value: value in DIALECTS, "draft 2020-12"),
    "$id": (_is_text, "a string"),
    "$anchor": (_is_text, "a string"),
    "multipleOf": (lambda value: _is_number(value) and value > 0, "a number above zero"),
    "dependentRequired": (
        lambda value: isinstance(value, dict) and all(map(_are_names, value.values())),
        "an object of lists of different names",
    ),
    **dict.fromkeys(TEXT, (_is_text, "a string")),
    **dict.fromkeys(FLAG, (lambda value: isinstance(value, bool), "true or false")),
    **dict.fromkeys(NUMBER, (_is_number, "a number")),
    **dict.fromkeys(COUNT, (_is_count, "a whole number of zero or more")),
}
