"""The judge on a tool's `input_schema`."""

from typing import Any

import pytest
from tests.standin import InvalidTranscript, validate


def judge(schema: Any) -> None:
    validate(
        {
            "model": "m",
            "max_tokens": 1,
            "messages": [{"role": "user", "content": "hello"}],
            "tools": [{"name": "f", "input_schema": schema}],
        }
    )


def with_property(schema: Any, **around: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"a": schema}, **around}


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object"},
        {"type": "object", "properties": {}},
        {"type": "object", "properties": {"a": {}}, "required": ["a"], "additionalProperties": False},
        {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": "x", "type": "object", "title": "T"},
        with_property(schema=True),
        with_property({"type": ["string", "null"], "default": None, "description": "d", "examples": ["a"]}),
        with_property({"anyOf": [{"type": "string"}, {"type": "null"}]}),
        with_property({"enum": ["a", 1, None]}),
        with_property({"const": {"any": "value"}}),
        with_property({"type": "string", "minLength": 1, "maxLength": 9, "pattern": "^a+$", "format": "date"}),
        with_property({"type": "number", "minimum": 0, "exclusiveMaximum": 1.5, "multipleOf": 0.5}),
        with_property({"type": "array", "items": {"type": "integer"}, "minItems": 1, "uniqueItems": True}),
        with_property({"type": "array", "prefixItems": [{"type": "integer"}], "items": False, "contains": {}}),
        with_property({"type": "object", "additionalProperties": {"type": "integer"}, "propertyNames": {}}),
        with_property({"type": "object", "patternProperties": {"^x": {}}, "minProperties": 1}),
        with_property({"if": {"type": "string"}, "then": {"minLength": 1}, "else": {}, "not": {"const": 0}}),
        with_property({"allOf": [{"type": "string"}, {"maxLength": 3}], "deprecated": True, "readOnly": False}),
        with_property({"dependentRequired": {"a": ["b"]}, "dependentSchemas": {"a": {}}}),
        with_property({"$ref": "#/$defs/Node"}, **{"$defs": {"Node": with_property({"$ref": "#/$defs/Node"})}}),
        with_property({"$ref": "#"}),
        with_property({"$ref": "#/$defs/a~1b/anyOf/0"}, **{"$defs": {"a/b": {"anyOf": [{"type": "null"}]}}}),
    ],
)
def test_takes(schema: dict[str, Any]) -> None:
    judge(schema)


@pytest.mark.parametrize("schema", [{}, {"properties": {}}, {"type": "array"}, {"type": ["object"]}])
def test_the_top_is_an_object(schema: dict[str, Any]) -> None:
    with pytest.raises(InvalidTranscript, match=r"^tools\.0\.custom\.input_schema\.type: Input should be 'object'"):
        judge(schema)


@pytest.mark.parametrize("keyword", ["oneOf", "anyOf", "allOf"])
def test_the_top_is_no_choice(keyword: str) -> None:
    with pytest.raises(InvalidTranscript, match="does not support oneOf, allOf, or anyOf at the top level"):
        judge({"type": "object", keyword: [{"type": "object"}]})


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        (with_property("number"), "#/properties/a: a schema is an object or a boolean"),
        (with_property(None), "#/properties/a: a schema is an object or a boolean"),
        ({"type": "object", "properties": []}, "#/properties: must be an object of schemas"),
        (with_property({"type": "str"}), "#/properties/a/type: must be one or several of"),
        (with_property({"type": []}), "#/properties/a/type: must be one or several of"),
        (with_property({"type": ["string", "string"]}), "#/properties/a/type: must be one or several of"),
        (with_property({"nullable": True}), "#/properties/a/nullable: unknown keyword"),
        (with_property({"discriminator": {}}), "#/properties/a/discriminator: unknown keyword"),
        (with_property({"enum": []}), "#/properties/a/enum: must be a list, not empty"),
        (with_property({"anyOf": []}), "#/properties/a/anyOf: must be a list of schemas, not empty"),
        (with_property({"anyOf": ["string"]}), "#/properties/a/anyOf/0: a schema is an object or a boolean"),
        (with_property({"items": [{}]}), "#/properties/a/items: a schema is an object or a boolean"),
        (with_property({"minLength": -1}), "#/properties/a/minLength: must be a whole number of zero or more"),
        (with_property({"maxItems": True}), "#/properties/a/maxItems: must be a whole number of zero or more"),
        (with_property({"minimum": "0"}), "#/properties/a/minimum: must be a number"),
        (with_property({"minimum": True}), "#/properties/a/minimum: must be a number"),
        (with_property({"multipleOf": 0}), "#/properties/a/multipleOf: must be a number above zero"),
        (with_property({"uniqueItems": 1}), "#/properties/a/uniqueItems: must be true or false"),
        (with_property({"description": None}), "#/properties/a/description: must be a string"),
        (with_property({"pattern": "("}), "#/properties/a/pattern: not a regular expression"),
        (with_property({"examples": "a"}), "#/properties/a/examples: must be a list"),
        (with_property({"dependentRequired": {"a": "b"}}), "#/properties/a/dependentRequired: must be"),
        (with_property({}, required="a"), "#/required: must be a list of different names"),
        (with_property({}, required=["a", "a"]), "#/required: must be a list of different names"),
        (with_property({}, required=["a", "b", "c"]), "#/required: no property is named b, c"),
        (with_property({"type": "object", "required": ["x"]}), "#/properties/a/required: no property is named x"),
        (with_property({"$ref": "#/$defs/Node"}), "#/properties/a/$ref: #/$defs/Node leads nowhere"),
        (with_property({"$ref": "#/required"}, required=["a"]), "#/properties/a/$ref: must be a reference to a schema"),
        (with_property({"$ref": "other.json"}), "#/properties/a/$ref: must be a reference within this schema"),
        ({"type": "object", "$schema": "http://json-schema.org/draft-07/schema#"}, "#/$schema: must be draft 2020-12"),
        ({"type": "object", "additionalProperties": {"type": "x"}}, "#/additionalProperties/type: must be"),
    ],
)
def test_refuses(schema: dict[str, Any], why: str) -> None:
    with pytest.raises(InvalidTranscript) as refusal:
        judge(schema)
    start = "tools.0.custom.input_schema: JSON schema is invalid. It must match JSON Schema draft 2020-12"
    assert refusal.value.message.startswith(start)
    assert f"At {why}" in refusal.value.message
