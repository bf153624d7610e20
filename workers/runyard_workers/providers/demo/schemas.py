"""Reads JSON Schemas as tools carry them: references, merged parts, alternatives, types."""

from collections.abc import Iterable
from typing import Any

Schema = dict[str, Any]


class CannotFill(Exception):
    """The schema asks for what the demo model cannot make up."""


def resolve(schema: Any, root: Schema) -> Schema:
    """Follow `$ref` inside the document and merge `allOf`; `true` is the schema of anything.

    Raises:
        CannotFill: a reference leads nowhere, out of the document or in a circle, or the schema allows nothing.
    """
    seen: set[str] = set()
    while isinstance(schema, dict) and isinstance(reference := schema.get("$ref"), str):
        if reference in seen:
            raise CannotFill(f"{reference} refers to itself")
        seen.add(reference)
        siblings = {name: part for name, part in schema.items() if name != "$ref"}
        schema = _merged([_at(reference, root), siblings])
    if schema is True:
        return {}
    if not isinstance(schema, dict):
        raise CannotFill("a schema that allows nothing")
    if parts := schema.get("allOf"):
        rest = {name: part for name, part in schema.items() if name != "allOf"}
        return _merged([*(resolve(part, root) for part in parts), rest])
    return schema


def alternatives(schema: Schema) -> list[Any]:
    """What `anyOf`, `oneOf` or a list of types offers; empty where there is one shape only."""
    for key in ("anyOf", "oneOf"):
        if schema.get(key):
            rest = {name: part for name, part in schema.items() if name != key}
            return [_merged([rest, option]) if isinstance(option, dict) else option for option in schema[key]]
    kinds = schema.get("type")
    return [{**schema, "type": kind} for kind in kinds] if isinstance(kinds, list) else []


def kind_of(schema: Schema) -> str:
    """The type, also where the schema only implies it; `any` where nothing does."""
    kind = schema.get("type")
    if isinstance(kind, str):
        return kind
    if "properties" in schema:
        return "object"
    return "array" if "items" in schema or "prefixItems" in schema else "any"


def _at(reference: str, root: Schema) -> Any:
    part: Any = root
    if not reference.startswith("#"):
        raise CannotFill(f"{reference} is outside the schema")
    for step in reference.removeprefix("#").split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        if not isinstance(part, dict) or name not in part:
            raise CannotFill(f"{reference} leads nowhere")
        part = part[name]
    return part


def _merged(parts: Iterable[Any]) -> Schema:
    merged: Schema = {}
    for part in parts:
        if part is False:
            raise CannotFill("a schema that allows nothing")
        if part is True:
            continue
        merged = {
            **merged,
            **part,
            **(
                {"properties": merged["properties"] | part["properties"]}
                if "properties" in merged and "properties" in part
                else {}
            ),
            **(
                {"required": [*merged["required"], *part["required"]]}
                if "required" in merged and "required" in part
                else {}
            ),
        }
    return merged
