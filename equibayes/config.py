"""Settings defined once: one dataclass per section, whose fields carry their help text, choices and bounds.

Checks of user input, overrides (`section.key=value`), the commented YAML template and the reference in the
documentation are all derived from the dataclasses.  An unknown key is refused, and the nearest known key is suggested.
"""

import difflib
import math
import types
from collections.abc import Iterable, Mapping
from dataclasses import Field, field, fields, is_dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from equibayes.errors import InputError, one_line

T = TypeVar("T")
DEEPEST = 20
"""Sections within sections."""


def setting(
    default: Any,
    help: str,
    choices: Iterable[str] = (),
    *,
    at_least: float | None = None,
    above: float | None = None,
    at_most: float | None = None,
    limit: float | None = None,
) -> Any:
    """A dataclass field with a default, a help text, and the values allowed: names (`choices`) or bounds of a number.

    Bounds of a list or dictionary hold for each of its entries; None is always allowed where the type allows it.
    `limit` is an upper bound far beyond any use: it stops a slip of the pen, and is not part of the template.
    """
    metadata = {"help": help, "choices": tuple(choices), "bounds": (at_least, above, at_most), "limit": limit}
    if isinstance(default, (list, dict)):
        return field(default_factory=lambda: type(default)(default), metadata=metadata)
    return field(default=default, metadata=metadata)


def section(kind: type, help: str) -> Any:
    """A dataclass field that is itself a section of settings."""
    return field(default_factory=kind, metadata={"help": help})


def build(kind: type[T], values: Mapping[str, Any], base: T | None = None, where: str = "") -> T:
    """A checked `kind` from nested plain values; settings not given are taken from `base`, else from the defaults.

    A key listed in the class attribute `REMOVED` (name -> reason) existed in an earlier version.
    """
    known = {f.name: f for f in fields(kind)}  # type: ignore[arg-type]
    hints, removed = get_type_hints(kind), getattr(kind, "REMOVED", {})
    if not isinstance(values, Mapping):
        raise InputError(f"{where or 'configuration'}: expected a section of settings, got {one_line(repr(values))}")
    arguments: dict[str, Any] = {f: getattr(base, f) for f in known} if base is not None else {}
    for key, value in values.items():
        name = f"{where}.{one_line(key)}" if where else one_line(key)
        if key in removed:
            raise InputError(f"{name}: this setting no longer exists ({removed[key]}); leave it out")
        if key not in known:
            raise InputError(f"{name}: no such setting{_nearest(one_line(key), known)}")
        if is_dataclass(hints[key]):
            arguments[key] = build(hints[key], {} if value is None else value, arguments.get(key), name)
        else:
            arguments[key] = _convert(_word(known[key], value), hints[key], name)
            _check_value(known[key], arguments[key], name)
    return kind(**arguments)


def _word(f: Field[Any], value: Any) -> Any:
    """YAML reads the words on and off as true and false."""
    words = isinstance(value, bool) and "on" in f.metadata.get("choices", ())
    return ("on" if value else "off") if words else value


def check(instance: Any, where: str = "") -> None:
    """An `InputError` for the first setting outside its choices or bounds, those of nested sections included."""
    for f in fields(instance):
        name, value = f"{where}.{f.name}" if where else f.name, getattr(instance, f.name)
        if is_dataclass(value):
            check(value, name)
        else:
            _check_value(f, value, name)


def _check_value(f: Field[Any], value: Any, name: str) -> None:
    if isinstance(value, dict):
        for key, entry in value.items():
            _check_value(f, entry, f"{name}.{one_line(key)}")
        return
    choices = f.metadata.get("choices", ())
    if choices and value not in choices:
        raise InputError(
            f"{name}={one_line(value)}: must be one of {', '.join(choices)}{_nearest(one_line(value), choices)}"
        )
    at_least, above, at_most = f.metadata.get("bounds", (None, None, None))
    limit = f.metadata.get("limit")
    for number in value if isinstance(value, list) else [value]:
        inside = number is None or (  # NaN is outside of any bounds
            (at_least is None or number >= at_least)
            and (above is None or number > above)
            and (at_most is None or number <= at_most)
        )
        if not inside:
            raise InputError(f"{name}={one_line(value)}: must be {_describe_bounds(at_least, above, at_most)}")
        if number is not None and limit is not None and not number <= limit:
            raise InputError(f"{name}={one_line(value)}: must be at most {limit:g}")


def _describe_bounds(at_least: float | None, above: float | None, at_most: float | None) -> str:
    if at_least is not None and at_most is not None:
        return f"between {at_least:g} and {at_most:g}"
    if above == 0 and at_most is None:
        return "positive"
    named = {"at least": at_least, "above": above, "at most": at_most}
    return " and ".join(f"{word} {bound:g}" for word, bound in named.items() if bound is not None)


def parse_overrides(words: Iterable[str]) -> dict[str, Any]:
    """`section.key=value` words as nested values; the right-hand side is read as YAML."""
    result: dict[str, Any] = {}
    for word in words:
        path, equals, text = word.partition("=")
        if not equals or not path:
            raise InputError(f"'{one_line(word)}': an override is written section.key=value")
        value = _yaml(text, f"'{one_line(word)}': '{one_line(text)}' cannot be read as a value")
        *parents, last = path.split(".")
        if len(parents) > DEEPEST:
            raise InputError(f"'{one_line(word)}': no such setting; settings are at most {DEEPEST} sections deep")
        place = result
        for parent in parents:
            place = place.setdefault(parent, {})
            if not isinstance(place, dict):
                raise InputError(f"'{one_line(word)}': '{one_line(parent)}' is a setting, not a section")
        place[last] = value
    return result


def read_yaml(path: str | Path) -> dict[str, Any]:
    """Settings from a YAML file."""
    from equibayes.plain_yaml import CHARACTERS

    try:
        with open(path, "rb") as file:
            text = file.read(4 * CHARACTERS + 1).decode("utf-8")  # bounded: the file may be a device
    except OSError as cause:
        raise InputError(f"{path}: cannot be read ({cause.strerror})") from None
    except UnicodeDecodeError:
        raise InputError(f"{path}: not a text file") from None
    except ValueError:
        raise InputError(f"{one_line(path)}: no such file; its name contains a NUL character") from None
    values = _yaml(text, f"{path}{{line}}: not valid YAML")
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise InputError(f"{path}: expected settings as 'key: value', got a {type(values).__name__}")
    return values


def _yaml(text: str, message: str) -> Any:
    """A plain value; else an `InputError` with this message and the reason.  `{line}` stands for the place."""
    import yaml

    from equibayes.plain_yaml import load

    try:
        return load(text)
    except yaml.YAMLError as cause:
        mark = getattr(cause, "problem_mark", None)
        reason = getattr(cause, "problem", None) or getattr(cause, "reason", None) or (str(cause) or "syntax error")
        line = f", line {mark.line + 1}" if mark else ""
        raise InputError(f"{message.replace('{line}', line)} ({one_line(reason)})") from None


def merge(*layers: Mapping[str, Any]) -> dict[str, Any]:
    """Nested values combined, later layers taking precedence; an empty section changes nothing."""
    result: dict[str, Any] = {}
    for layer in layers:
        for key, value in layer.items():
            if value is None and isinstance(result.get(key), dict):
                continue
            if isinstance(value, Mapping) and isinstance(result.get(key), dict):
                result[key] = merge(result[key], value)
            else:
                result[key] = merge(value) if isinstance(value, Mapping) else value
    return result


def template(instance: Any, indent: int = 0) -> str:
    """Commented YAML of a configuration: each setting with its help and its value."""
    import yaml

    pad, lines = "  " * indent, []
    for f in fields(instance):
        value, note = getattr(instance, f.name), f.metadata.get("help", "")
        allowed = ", ".join(f.metadata.get("choices", ())) or _describe_bounds(*f.metadata.get("bounds", (None,) * 3))
        note += f" ({allowed})" if allowed else ""
        if is_dataclass(value):
            lines.append(f"\n{pad}# {note}\n{pad}{f.name}:\n{template(value, indent + 1)}")
        else:
            text = yaml.safe_dump(value, default_flow_style=True, allow_unicode=True, width=math.inf).strip()
            lines.append(f"{pad}{f.name}: {text.removesuffix('...').strip()}  # {note}")
    return "\n".join(lines)


def _nearest(word: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.5)
    return f"; did you mean '{close[0]}'?" if close else f"; there are {', '.join(known)}"


def _convert(value: Any, hint: Any, name: str) -> Any:
    """`value` as the annotated type; only numbers may also be given as text (YAML reads 1e-3 as text)."""
    options = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    for option in sorted(options, key=lambda option: option is not type(None)):  # 'none' means None, also for text
        try:
            return _as(value, option)
        except (TypeError, ValueError, OverflowError):
            continue
    raise InputError(f"{name}={one_line(repr(value))}: must be {' or '.join(_describe(option) for option in options)}")


def _as(value: Any, option: Any) -> Any:
    origin, args = get_origin(option) or option, get_args(option)
    if option is Any:  # passed on unchecked, such as the settings of a labelling engine
        return value
    if option in (None, type(None)) and (value is None or value == "none"):
        return None
    if (origin is Literal and value in args) or (origin in (bool, str) and isinstance(value, origin)):
        return value
    if origin is int and not isinstance(value, bool):
        number = float(value) if isinstance(value, str) else value
        if isinstance(number, (int, float)) and number == int(number):
            return int(number)
    if origin is float and not isinstance(value, bool) and isinstance(value, (int, float, str)):
        number = float(value)
        if math.isfinite(number):
            return number
    if origin is list and isinstance(value, (list, tuple)):
        return [_as(item, args[0]) for item in value]
    if origin is dict and isinstance(value, Mapping):
        return {str(key): _as(item, args[1]) for key, item in value.items()}
    raise TypeError


def _describe(option: Any) -> str:
    names = {
        int: "a whole number",
        float: "a number",
        bool: "true or false",
        str: "a word",
        type(None): "none",
        Any: "anything",
    }
    origin = get_origin(option)
    if origin is Literal:
        return " or ".join(map(str, get_args(option)))
    if origin is list:
        return f"a list, each {_describe(get_args(option)[0])}"
    if origin is dict:
        return f"names with values, each {_describe(get_args(option)[1])}"
    return names.get(option, str(option))
