"""Makes the arguments of a tool call from the tool's JSON Schema and a person's text."""

from typing import Any

from runyard.text import clean_json
from runyard_workers.providers.demo.clues import Clues, Number
from runyard_workers.providers.demo.numbers import allowed, as_kind, some_number
from runyard_workers.providers.demo.schemas import CannotFill, Schema, alternatives, kind_of, resolve
from runyard_workers.providers.demo.strings import clear_string, some_string
from runyard_workers.providers.demo.words import overlap, stem, telling, words

_DEPTH_MAX = 8
_NOTHING = object()
_NEGATIONS = frozenset(map(stem, ["not", "no", "without", "false", "off", "dont", "never"]))


def fill_arguments(schema: Schema, clause: str, text: str) -> dict[str, Any]:
    """All required arguments, and the optional ones that the text plainly gives.

    `clause` is the part of `text` that asks for this call; the rest helps where the clause says nothing.

    Raises:
        CannotFill: the schema asks for what cannot be made up.
    """
    filler = _Filler(schema, Clues(clause), Clues(text))
    arguments: dict[str, Any] = clean_json(filler.arguments())
    return arguments


class _Filler:
    def __init__(self, root: Schema, clause: Clues, text: Clues) -> None:
        self._root = root
        self._clause = clause
        self._text = text
        self._given: set[str] = set()
        self._bound: dict[str, Number] = {}

    def arguments(self) -> dict[str, Any]:
        schema = resolve(self._root, self._root)
        arguments = self._object(schema, 0)
        if arguments:
            return arguments
        # All of it is optional, as in `search(query: str = "")`: a call without any argument would show nothing.
        for name, part in schema.get("properties", {}).items():
            for option in self._options(part, "string"):
                if not option.keys() & {"enum", "const"}:
                    return {name: some_string(option, self._clause)}
        return {}

    def _fill(self, schema: Any, name: str, depth: int) -> Any:
        """A value in any case."""
        if depth > _DEPTH_MAX:
            raise CannotFill("the schema is nested too deep")
        schema = resolve(schema, self._root)
        found = self._clear(schema, name)
        if found is not _NOTHING:
            return found
        for key in ("const", "default"):
            if key in schema:
                return schema[key]
        if schema.get("enum"):
            return schema["enum"][0]
        if options := alternatives(schema):
            return self._first_fillable(options, name, depth)
        return self._made_up(schema, name, depth)

    def _made_up(self, schema: Schema, name: str, depth: int) -> Any:
        match kind_of(schema):
            case "object":
                return self._object(schema, depth)
            case "array":
                return self._array(schema, name, depth)
            case "string" | "any":
                return some_string(schema, self._clause)
            case "integer" | "number":
                return self._number(schema)
            case "boolean":
                return False
            case "null":
                return None
            case other:
                raise CannotFill(f"unknown type {other!r}")

    def _clear(self, schema: Schema, name: str) -> Any:
        """What the text plainly says, else `_NOTHING`."""
        if schema.get("enum"):
            return self._enum_value(schema["enum"], name)
        options = alternatives(schema)
        if options:
            found = (self._clear(resolve(option, self._root), name) for option in options)
            return next((value for value in found if value is not _NOTHING), _NOTHING)
        return self._clear_value(schema, name)

    def _clear_value(self, schema: Schema, name: str) -> Any:
        value: Any = None
        match kind_of(schema):
            case "string":
                value = clear_string(schema, name, self._clause) or clear_string(schema, name, self._text)
            case "integer" | "number" if name in self._bound:
                value = as_kind(self._clause.take_number(self._bound.pop(name)), schema)
            case "boolean" if (stems := telling(name)) and overlap(stems, self._clause.stems) == stems:
                value = not _NEGATIONS & set(map(stem, words(self._clause.text.replace("'", ""))))
            case "array":
                items = resolve(schema.get("items", True), self._root)
                value = self._mentioned(items.get("enum", []), name)[: schema.get("maxItems")] or None
        return _NOTHING if value is None else value

    def _enum_value(self, values: list[Any], name: str) -> Any:
        for value in self._mentioned(values, name):
            self._given.add(str(value))
            return value
        return _NOTHING

    def _mentioned(self, values: list[Any], name: str) -> list[Any]:
        """The values of an enum that the clause names, else the text, in its order. Each is given once."""
        for clues in (self._clause, self._text):
            role = Clues(clear_string({}, name, clues) or "")
            if fitting := [value for value in values if role.mentions(str(value)) is not None]:
                return fitting
            places = [
                (place, value)
                for value in values
                if str(value) not in self._given and (place := clues.mentions(str(value))) is not None
            ]
            if places:
                return [value for _, value in sorted(places, key=lambda found: found[0])]
        return []

    def _object(self, schema: Schema, depth: int) -> dict[str, Any]:
        properties: Schema = schema.get("properties", {})
        required = schema.get("required", [])
        self._bind_numbers(properties)
        filled = {}
        for name, part in properties.items():
            if name in required:
                filled[name] = self._fill(part, name, depth + 1)
            elif (found := self._clear(resolve(part, self._root), name)) is not _NOTHING:
                filled[name] = found
        extra = schema.get("additionalProperties", True)
        filled |= {name: self._fill(extra, name, depth + 1) for name in required if name not in properties}
        return filled

    def _bind_numbers(self, properties: Schema) -> None:
        # "5 results" and "a limit of 5" speak of `limit` and `max_results`; other numbers go by their order.
        for name, part in properties.items():
            options = [*self._options(part, "integer"), *self._options(part, "number")]
            free = [number for number in self._clause.numbers if number not in self._bound.values()]
            near = [number for number in free if overlap(telling(name), number.near)]
            if options and near and allowed(near[0].value, options[0]):
                self._bound[name] = near[0]

    def _number(self, schema: Schema) -> int | float:
        for clues in (self._clause, self._text):
            for number in clues.numbers:
                if number not in self._bound.values() and allowed(number.value, schema):
                    return as_kind(clues.take_number(number), schema)
        return some_number(schema)

    def _array(self, schema: Schema, name: str, depth: int) -> list[Any]:
        if places := schema.get("prefixItems"):
            return [self._fill(place, name, depth + 1) for place in places]
        items = schema.get("items", True)
        fewest, most = schema.get("minItems", 1), schema.get("maxItems")
        filled: list[Any] = self._listed(resolve(items, self._root))[:most]
        while len(filled) < fewest and (most is None or len(filled) < most):
            item = self._fill(items, name, depth + 1)
            if item in filled and schema.get("uniqueItems"):
                raise CannotFill("the text gives too few different items")
            filled.append(item)
        return filled

    def _listed(self, items: Schema) -> list[Any]:
        match kind_of(items):
            case "string" if not items.get("enum"):
                return self._clause.listed
            case "integer" | "number":
                numbers = [number for number in self._clause.numbers if allowed(number.value, items)]
                return [as_kind(self._clause.take_number(number), items) for number in numbers]
        return []

    def _first_fillable(self, options: list[Any], name: str, depth: int) -> Any:
        resolved = [resolve(option, self._root) for option in options]
        for option in sorted(resolved, key=self._evidence, reverse=True):
            try:
                return self._fill(option, name, depth + 1)
            except CannotFill:
                continue
        raise CannotFill("none of the alternatives can be made up")

    def _evidence(self, option: Schema) -> int:
        """How much speaks for one of several shapes; of equals the first is taken."""
        tags = [
            part["const"]
            for part in option.get("properties", {}).values()
            if isinstance(part, dict) and "const" in part
        ]
        if any(self._text.mentions(str(tag)) is not None for tag in tags):
            return 3
        match kind_of(option):
            case "null":
                return -1
            case "integer" | "number":
                return 2 if self._clause.numbers else 0
            case "boolean":
                return 0
        return 1

    def _options(self, part: Any, kind: str) -> list[Schema]:
        """The shapes of one type among a property's alternatives."""
        schema = resolve(part, self._root)
        options = [resolve(option, self._root) for option in alternatives(schema)] or [schema]
        return [option for option in options if kind_of(option) == kind]
