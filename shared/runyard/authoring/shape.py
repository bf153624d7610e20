"""The check of arguments by a tool's JSON Schema alone: which are missing, unknown, or of a wrong JSON type.

The worker makes it before it validates by the author's own types. A gateway, which has only the schema, makes it too.
"""

from collections.abc import Mapping
from typing import Any

from pydantic_core import from_json

from runyard.authoring.issues import mismatch, missing, unknown
from runyard.authoring.schema import JSON_TYPES, admitted_types, json_type


class Shape:
    """The parameters that a schema names. Whatever it refuses, `Arguments.parse` of that schema refuses too."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        definitions = schema.get("$defs", {})
        self._types = {name: admitted_types(part, definitions) for name, part in schema["properties"].items()}
        self._required = frozenset(schema.get("required", ()))

    def issues(self, value: Any) -> dict[str, str]:
        """What is wrong with the arguments, by parameter; the key "" stands for the whole. Without an issue they may
        still be refused by the author's types.
        """
        if not isinstance(value, dict):
            return {"": mismatch("", ["object"], value)}
        given = self.given(value)
        return self.type_issues(given) | {name: unknown(name) for name in given if name not in self._types}

    def given(self, value: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments as they were meant: a value is read differently only where its type leaves no doubt.

        An object or array that arrives as a JSON string is decoded if the type admits no string (models do that). A
        null for an optional parameter whose type admits no null counts as not given.
        """
        return {name: self._decoded(name, item) for name, item in value.items() if not self._is_absent(name, item)}

    def type_issues(self, given: Mapping[str, Any]) -> dict[str, str]:
        """Parameters that are missing or whose JSON type the schema does not admit."""
        issues = {}
        for name, types in self._types.items():
            if name not in given:
                if name in self._required:
                    issues[name] = missing(name, _ordered(types))
            elif json_type(given[name]) not in (types | {"integer"} if "number" in types else types):
                issues[name] = mismatch(name, _ordered(types), given[name])
        return issues

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


def _ordered(types: frozenset[str]) -> list[str]:
    return sorted(types - {"null"}) + sorted(types & {"null"}) if types < JSON_TYPES else []
