"""Docstrings of the package as reStructuredText, for the API page.

Docstrings are written as plain text.  A list of parameters is a block of lines that begin with names,

    name        meaning, with continuation lines
                indented
    one, two    or with a colon: `name: meaning`

and becomes a field list.  Paragraphs stay paragraphs; indented blocks and tables are shown as they are written.
"""

import inspect
import re
from collections.abc import Iterator
from itertools import groupby
from textwrap import dedent
from typing import Any

LITERAL = re.compile(r"(``[^`]+``|`[^`]+`|:\w+:`[^`]+`)")


def known_names(thing: Any) -> set[str]:
    """Parameters of a callable, fields of a class."""
    try:
        names = set(inspect.signature(thing).parameters)
    except (TypeError, ValueError):
        names = set()
    return names | set(getattr(thing, "__annotations__", {})) if inspect.isclass(thing) else names


def to_rst(lines: list[str], names: set[str]) -> list[str]:
    """The lines of a docstring, whose parameters have these names, as reStructuredText."""
    found: list[str] = []
    for block in _blocks(lines):
        if _is_heading(block):
            block = block[2:]
        items = _items(block, names)
        if items:
            fields = (f":param {name}: {_words(meaning)}" for own, meaning in items for name in own)
            found += [*fields, ""]
        elif block[0].startswith((" ", "|")):
            found += ["::", "", *(f"    {line}" for line in dedent("\n".join(block)).splitlines()), ""]
        else:
            found += [_words(" ".join(line.strip() for line in block)), ""]
    return found


def short_signature(signature: str) -> str:
    """Types by their last name, and arrays without their dtypes, which docstrings state."""
    signature = (
        re.sub(r"~(?:\w+\.)+", "", signature).replace("<built-in function iter>", "iter").replace("<factory>", "...")
    )
    signature = re.sub(r"_Buffer \|.*?bytes \| str\](?=,|\))", "ArrayLike", signature)
    return re.sub(r"ndarray\[(?:[^\[\]]|\[(?:[^\[\]]|\[[^\[\]]*\])*\])*\]", "ndarray", signature)


def _blocks(lines: list[str]) -> Iterator[list[str]]:
    """Runs of lines between blank ones."""
    for blank, group in groupby(lines, key=lambda line: not line.strip()):
        if not blank:
            yield list(group)


def _is_heading(block: list[str]) -> bool:
    """`Parameters` or `Attributes`, underlined."""
    return len(block) > 2 and bool(block[1]) and not block[1].strip("-")


def _items(block: list[str], names: set[str]) -> list[tuple[list[str], str]]:
    """Names with their meaning, if all lines of the block belong to such a list; else nothing."""
    items: list[tuple[list[str], str]] = []
    for line in block:
        found = re.match(r"(\w+(?:, \w+)*)(?::? +)(\S.*)", line)
        own = found[1].split(", ") if found else []
        if found and own and set(own) <= names:
            items.append((own, found[2]))
        elif items and line.startswith(" "):
            items[-1] = (items[-1][0], f"{items[-1][1]} {line.strip()}")
        else:
            return []
    return items


def _words(text: str) -> str:
    """A paragraph: names in backticks become literals, and characters that mean something in reStructuredText are
    escaped."""
    parts = LITERAL.split(text)
    escaped = (re.sub(r"([*|\\`@]|_(?!\w))", r"\\\1", part) for part in parts[::2])
    literals = (re.sub(r"^(?::\w+:)?`{1,2}([^`]+)`{1,2}$", r"``\1``", part) for part in parts[1::2])
    return "".join(each for pair in zip(escaped, [*literals, ""]) for each in pair)
