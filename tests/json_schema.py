"""Just enough of JSON Schema 2020-12 to hold report.json against its schema; other keywords are an error."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}
_KNOWN = {"$ref", "type", "const", "enum", "anyOf", "required", "properties", "additionalProperties", "items"}
_IGNORED = {"$schema", "$id", "$defs", "title", "description"}


def problems(value: Any, schema: dict[str, Any], root: dict[str, Any], path: str = "$") -> Iterator[str]:
    """What does not fit, one line each."""
    unknown = schema.keys() - _KNOWN - _IGNORED
    if unknown:
        raise ValueError(f"{path}: this checker does not know {sorted(unknown)}")
    if "$ref" in schema:
        yield from problems(value, root["$defs"][schema["$ref"].removeprefix("#/$defs/")], root, path)
    if "const" in schema and value != schema["const"]:
        yield f"{path}: {value!r} is not {schema['const']!r}"
    if "enum" in schema and value not in schema["enum"]:
        yield f"{path}: {value!r} is none of {schema['enum']}"
    if "anyOf" in schema and all(any(problems(value, one, root, path)) for one in schema["anyOf"]):
        yield f"{path}: fits none of the alternatives"
    if "type" in schema and not _is_of_type(value, schema["type"]):
        yield f"{path}: {value!r} is not of type {schema['type']}"
    elif isinstance(value, dict):
        yield from _object_problems(value, schema, root, path)
    elif isinstance(value, list) and "items" in schema:
        for index, item in enumerate(value):
            yield from problems(item, schema["items"], root, f"{path}[{index}]")


def _object_problems(
    value: dict[str, Any], schema: dict[str, Any], root: dict[str, Any], path: str
) -> Iterator[str]:
    yield from (f"{path}: lacks {name}" for name in schema.get("required", []) if name not in value)
    properties, rest = schema.get("properties", {}), schema.get("additionalProperties", True)
    for name, inner in value.items():
        if name in properties:
            yield from problems(inner, properties[name], root, f"{path}.{name}")
        elif rest is False:
            yield f"{path}: has an unknown {name}"
        elif isinstance(rest, dict):
            yield from problems(inner, rest, root, f"{path}.{name}")


def _is_of_type(value: Any, wanted: str | list[str]) -> bool:
    names = [wanted] if isinstance(wanted, str) else wanted
    if isinstance(value, bool):
        return "boolean" in names
    return any(isinstance(value, _TYPES[name]) for name in names)
