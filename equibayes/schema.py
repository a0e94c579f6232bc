"""The JSON schema of a configuration, for editors that check and complete YAML while it is written.

Derived from the dataclasses of `config.py`: names, types, help texts, choices, bounds and defaults stand there once.
"""

import types
from dataclasses import Field, fields, is_dataclass
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

DIALECT = "https://json-schema.org/draft/2020-12/schema"
NUMBER_AS_TEXT = r"^[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)[eE][-+]?[0-9]+$"
"""YAML reads 1e-3 as text; the program takes it as a number."""


def schema(instance: Any, title: str) -> dict[str, Any]:
    """The schema of a configuration file; defaults are the values of the instance."""
    return {"$schema": DIALECT, "title": title, **_section(instance)}


def _section(instance: Any) -> dict[str, Any]:
    hints = get_type_hints(type(instance))
    properties = {f.name: _property(f, hints[f.name], getattr(instance, f.name)) for f in fields(instance)}
    return {"type": ["object", "null"], "additionalProperties": False, "properties": properties}


def _property(f: Field[Any], hint: Any, value: Any) -> dict[str, Any]:
    about = {"description": f.metadata.get("help", "")}
    if is_dataclass(value):
        return about | _section(value)
    options = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    kinds = [kind for option in options for kind in _kinds(option, f)]
    return about | {"default": value} | (kinds[0] if len(kinds) == 1 else {"anyOf": kinds})


def _kinds(option: Any, f: Field[Any]) -> list[dict[str, Any]]:
    """What a value of this type may look like in the file."""
    origin, args = get_origin(option) or option, get_args(option)
    choices = f.metadata.get("choices", ())
    if option is type(None):
        return [{"type": "null"}, {"const": "none"}]
    if origin is Literal or (origin is str and choices):
        return [{"enum": list(choices or args)}]
    if origin in (int, float):
        kind = {"type": "integer" if origin is int else "number"} | _bounds(f)
        return [kind, {"type": "string", "pattern": NUMBER_AS_TEXT}]
    if origin in (bool, str):
        return [{"type": "boolean" if origin is bool else "string"}]
    if origin is list:
        return [{"type": "array", "items": _any_of(args[0], f)}]
    if origin is dict:
        return [{"type": "object", "additionalProperties": _any_of(args[1], f)}]
    return [{}]


def _any_of(option: Any, f: Field[Any]) -> dict[str, Any]:
    kinds = _kinds(option, f)
    return kinds[0] if len(kinds) == 1 else {"anyOf": kinds}


def _bounds(f: Field[Any]) -> dict[str, float]:
    at_least, above, at_most = f.metadata.get("bounds", (None, None, None))
    limit = f.metadata.get("limit")
    most = limit if at_most is None else at_most
    named = {"minimum": at_least, "exclusiveMinimum": above, "maximum": most}
    return {name: bound for name, bound in named.items() if bound is not None}
