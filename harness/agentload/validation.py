"""pydantic's errors in our words, each at its place in the file, with unknown keys put right."""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import NoneType, UnionType
from typing import Annotated, Any, TypeVar, Union, cast, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from agentload.errors import UsageError
from agentload.registry import Seam, close_to, did_you_mean
from agentload.yaml_positions import Document, Path, shown

M = TypeVar("M", bound=BaseModel)

_MESSAGES = {
    "greater_than": "must be > {gt:g}",
    "greater_than_equal": "must be >= {ge:g}",
    "less_than": "must be < {lt:g}",
    "less_than_equal": "must be <= {le:g}",
    "int_type": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "finite_number": "must be a finite number",
    "string_type": "must be text",
    "bool_type": "must be true or false",
    "literal_error": "must be one of {expected}",
    "enum": "must be one of {expected}",
    "list_type": "must be a list",
    "tuple_type": "must be a list",
    "dict_type": "must be a mapping",
    "model_type": "must be a mapping",
    "too_short": "needs at least {min_length}",
    "too_long": "must hold at most {max_length}",
    "string_too_short": "must not be empty",
    "string_pattern_mismatch": "must be letters, digits, '-' and '_', starting with a letter or digit",
}
_SPEAKS_FOR_ITSELF = frozenset({"too_short", "too_long", "string_too_short"})


def validate(document: Document, path: Path, model: type[M], value: Any) -> M | None:
    """The value as `model`, or None after noting every problem in the document.

    Strict, as JSON is: `"5"` is no number, and neither is `true`.
    """
    try:
        return model.model_validate_json(json.dumps(value), strict=True)
    except ValidationError as error:
        details = error.errors(include_url=False)
        mistyped = _mistyped(model, details)
        for detail in details:
            if not document.is_hopeless and not (detail["type"] == "missing" and detail["loc"] in mistyped):
                _note(document, path, model, detail)
        return None


def validate_kind(document: Document, path: Path, seam: Seam[M], value: Any) -> tuple[str, M] | None:
    """A seam's instance from `{kind: NAME, …parameters}`, with the kind's name."""
    if isinstance(value, str):
        value = {"kind": value}
    if not isinstance(value, dict):
        document.complain(path, f"must be a mapping such as {{kind: {seam.names()[0]}}}, got {shown(value)}")
        return None
    params = cast("dict[str, Any]", value).copy()
    kind = params.pop("kind", None)
    if kind is None:
        document.complain(path, f"needs a kind (known: {', '.join(seam.names())})")
        return None
    model = model_named(document, (*path, "kind"), seam, kind)
    made = None if model is None else validate(document, path, model, params)
    return None if made is None else (cast(str, kind), made)


def model_named(document: Document, path: Path, seam: Seam[M], name: object) -> type[M] | None:
    """The seam's class called `name`, or None after noting at `path` that there is none."""
    if not isinstance(name, str) or name not in seam.names():
        hint = did_you_mean(str(name), seam.names())
        document.complain(path, f"no {seam.noun.removesuffix('s')} named {shown(name)}{hint}")
        return None
    try:
        return seam.get(name)
    except UsageError as error:
        document.complain(path, str(error))
        return None


def _note(document: Document, path: Path, model: type[BaseModel], detail: ErrorDetails) -> None:
    location = tuple(detail["loc"])
    if detail["type"] == "missing":
        document.complain((*path, *location), "is required")
        return
    if detail["type"] == "extra_forbidden":
        known = _keys_of(_model_at(model, location[:-1]))
        hint = did_you_mean(str(location[-1]), known)
        document.complain((*path, *location), f"unknown key{hint}", at_key=True)
        return
    document.complain(_existing(document, path, location), _message(detail))


def _mistyped(model: type[BaseModel], details: list[ErrorDetails]) -> set[Path]:
    """Where a key is missing because it is there, misspelt: that is said at the unknown key."""
    unknown = [tuple(one["loc"]) for one in details if one["type"] == "extra_forbidden"]
    meant = ((where, close_to(str(where[-1]), _keys_of(_model_at(model, where[:-1])))) for where in unknown)
    return {(*where[:-1], name) for where, name in meant if name is not None}


def _existing(document: Document, path: Path, location: Path) -> Path:
    """The location without the tags that pydantic adds for unions and the like."""
    for part in location:
        if (*path, part) in document.places:
            path = (*path, part)
    return path


def _message(detail: ErrorDetails) -> str:
    context: Mapping[str, Any] = detail.get("ctx", {})
    kind = detail["type"]
    if kind == "value_error":
        return str(context["error"])
    template = _MESSAGES.get(kind)
    if template is None:
        return f"{detail['msg'][:1].lower()}{detail['msg'][1:]}"
    message = template.format(**context)
    return message if kind in _SPEAKS_FOR_ITSELF else f"{message}, got {shown(detail['input'])}"


def _keys_of(model: object) -> list[str]:
    if not (isinstance(model, type) and issubclass(model, BaseModel)):
        return []
    return [field.alias or name for name, field in model.model_fields.items()]


def _model_at(model: type[BaseModel], location: Path) -> object:
    """The annotation that pydantic looked at when it came to this location."""
    annotation: object = model
    for part in location:
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            named = {field.alias or name: field for name, field in annotation.model_fields.items()}
            annotation = _bare(named[str(part)].annotation) if str(part) in named else None
        else:
            arguments = [a for a in get_args(annotation) if a is not Ellipsis]
            annotation = _bare(arguments[-1]) if arguments else None
    return annotation


def _bare(annotation: object) -> object:
    """Without Annotated and `| None`."""
    if get_origin(annotation) is Annotated:
        return _bare(get_args(annotation)[0])
    if get_origin(annotation) in (Union, UnionType):
        rest = [a for a in get_args(annotation) if a is not NoneType]
        return _bare(rest[0]) if len(rest) == 1 else annotation
    return annotation
