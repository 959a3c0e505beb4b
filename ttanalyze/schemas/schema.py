"""Checks values against JSON schemas: the part of draft 2020-12 that ours use.

Each schema is compiled to a function once, so a million records take seconds. An unknown keyword is
refused, never ignored.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator
from importlib import resources
from typing import Any

import orjson

Fault = tuple[str, str]  # where, such as kernels.a.points[2]; what is wrong there
Check = Callable[[Any, str], Iterator[Fault]]
Schema = dict[str, Any]

TYPES = {
    "object": (dict, "an object"),
    "array": (list, "a list"),
    "string": (str, "a string"),
    "integer": (int, "a whole number"),
    "boolean": (bool, "true or false"),
    "null": (type(None), "null"),
}
OF_OBJECTS = ("required", "properties", "propertyNames", "additionalProperties")
OF_OTHERS = ("items", "minItems", "maxItems", "minLength", "pattern", "minimum", "maximum")
KNOWN = {"$schema", "$ref", "title", "description", "type", "const", "enum", *OF_OBJECTS}
SHOWN = 60  # letters of a value
LARGEST = (1 << 64) - 1


def load(name: str) -> Schema:
    """Returns the schema in schemas/NAME.json."""
    file = resources.files("ttanalyze") / "schemas" / f"{name}.json"
    return orjson.loads(file.read_bytes())


@functools.cache
def check_of(name: str) -> Check:
    """Returns a function that yields the faults of a value against schemas/NAME.json."""
    return compiled(load(name))


def compiled(schema: Schema) -> Check:
    """Returns a function that yields the faults of a value. Raises ValueError for an unknown
    keyword.
    """
    if unknown := schema.keys() - KNOWN - set(OF_OTHERS):
        raise ValueError(f"unknown keywords: {', '.join(sorted(unknown))}")
    if "$ref" in schema:  # what it says itself goes beyond that schema
        base = load(schema["$ref"].removesuffix(".json"))
        additions = {name: of for name, of in schema.items() if name != "$ref"}
        members = {**base.get("properties", {}), **additions.get("properties", {})}
        return compiled({**base, **additions, "properties": members})
    named = schema.get("type", [])
    types = [TYPES[name] for name in ([named] if isinstance(named, str) else named)]
    kinds = {kind for kind, _ in types}
    expected = " or ".join(words for _, words in types)
    allowed = [schema["const"]] if "const" in schema else schema.get("enum")
    parts = {dict: _object(schema), list: _list(schema), str: _text(schema), int: _number(schema)}

    def check(value: Any, at: str) -> Iterator[Fault]:
        kind = type(value)
        if kinds and kind not in kinds:
            yield at, f"expected {expected}, not {_shown(value)}"
        elif allowed is not None and not any(kind is type(a) and value == a for a in allowed):
            yield at, f"expected {' or '.join(map(_shown, allowed))}, not {_shown(value)}"
        elif kind in parts:
            yield from parts[kind](value, at)

    return check


def _object(schema: Schema) -> Check:
    required = schema.get("required", [])
    members = {name: compiled(of) for name, of in schema.get("properties", {}).items()}
    names = schema.get("propertyNames", {}).get("pattern")
    named = re.compile(names) if names else None
    more = schema.get("additionalProperties", True)
    others = compiled(more) if isinstance(more, dict) else None

    def check(value: Any, at: str) -> Iterator[Fault]:
        for name in required:
            if name not in value:
                yield at, f"no {name}, which is required"
        for name, member in value.items():
            location = f"{at}.{name}" if at else name
            if name in members:
                yield from members[name](member, location)
            elif named and not named.search(name):
                yield at, f"expected a name that matches {names}, not {_shown(name)}"
            elif others:
                yield from others(member, location)
            elif more is False:
                yield at, f"{_shown(name)} is not a member that it has"

    return check


def _list(schema: Schema) -> Check:
    least, most = schema.get("minItems", 0), schema.get("maxItems", LARGEST)
    item = compiled(schema["items"]) if "items" in schema else None

    def check(value: Any, at: str) -> Iterator[Fault]:
        if not least <= len(value) <= most:
            wanted = str(least) if least == most else f"{least} to {most}"
            yield at, f"expected {wanted} items, not {len(value)}"
        if item is None:
            return
        for i, member in enumerate(value):
            yield from item(member, f"{at}[{i}]")

    return check


def _text(schema: Schema) -> Check:
    pattern, least = re.compile(schema.get("pattern", "")), schema.get("minLength", 0)

    def check(value: Any, at: str) -> Iterator[Fault]:
        if len(value) < least:
            yield at, "is empty"
        elif not pattern.search(value):
            yield at, f"expected a string that matches {pattern.pattern}, not {_shown(value)}"

    return check


def _number(schema: Schema) -> Check:
    least, most = schema.get("minimum", -LARGEST), schema.get("maximum", LARGEST)

    def check(value: Any, at: str) -> Iterator[Fault]:
        if value < least:
            yield at, f"expected {least} or more, not {value}"
        elif value > most:
            yield at, f"expected {most} or less, not {value}"

    return check


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return "a list"
    text = orjson.dumps(value).decode()
    return text if len(text) <= SHOWN else text[: SHOWN - 1] + "…"
