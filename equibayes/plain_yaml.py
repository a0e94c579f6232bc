"""YAML as settings need it: text, numbers, true or false, none, lists and sections.

A settings file may come from anywhere, and full YAML can do more than settings need: aliases (`*name`) turn a few
lines into gigabytes, tags build other objects, unquoted dates become objects, and nesting has no limit.  All of these
are refused with the line, as any other mistake; a date is read as text.
"""

from typing import Any

import yaml

CHARACTERS = 256_000
"""Largest text; a thousand times the size of a usual settings file."""
DEPTH = 20
"""Deepest nesting of sections and lists."""
DIGITS = 30
"""Longest whole number."""

_PLAIN = ("null", "bool", "int", "float", "seq", "map", "str")


def load(text: str) -> Any:
    """The value that a text stands for; `yaml.YAMLError` if it is not YAML or not plain."""
    if len(text) > CHARACTERS:
        raise yaml.YAMLError(f"longer than {CHARACTERS} characters")
    loader = _Loader(text)
    try:
        return loader.get_single_data()
    finally:
        loader.dispose()


class _Loader(yaml.SafeLoader):
    """PyYAML's safe loader without aliases, dates and tags for other objects, and with limits."""

    depth = 0
    yaml_implicit_resolvers = {  # noqa: RUF012 (as declared by PyYAML)
        start: [(tag, pattern) for tag, pattern in known if not tag.endswith((":timestamp", ":value"))]
        for start, known in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    yaml_constructors = {  # noqa: RUF012
        tag: yaml.SafeLoader.yaml_constructors[tag] for tag in (None, *(f"tag:yaml.org,2002:{name}" for name in _PLAIN))
    }

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            self._refuse("aliases such as *name are not accepted, write the value out")
        self.depth += 1
        if self.depth > DEPTH:
            self._refuse(f"nested more than {DEPTH} levels deep")
        node: yaml.Node | None = super().compose_node(parent, index)
        self.depth -= 1
        return node

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        if node.tag == "tag:yaml.org,2002:int" and len(str(node.value)) > DIGITS:
            raise _problem(f"a whole number of more than {DIGITS} digits", node.start_mark)
        try:
            value = super().construct_object(node, deep)
        except (ValueError, KeyError, IndexError, TypeError, AttributeError) as cause:  # as from '!!bool maybe'
            raise _problem(f"no {node.tag.rpartition(':')[2]} value", node.start_mark) from cause
        if isinstance(value, str) and any(c == "\0" or "\ud800" <= c <= "\udfff" for c in value):
            raise _problem("a character that no text contains", node.start_mark)
        return value

    def _refuse(self, problem: str) -> None:
        raise _problem(problem, self.peek_event().start_mark)


def _problem(text: str, mark: Any) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=text, problem_mark=mark)
