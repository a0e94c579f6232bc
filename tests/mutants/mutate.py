"""All single changes of a source file that leave a valid program: other operators, comparisons, constants, functions,
arguments, and removed statements.

The text outside of the change stays as it is, character by character.  Docstrings, annotations, decorators, messages
and f-strings are left alone.
"""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

Spot = tuple[int, int]
"""Line from 1 and column in bytes, as `ast` counts."""

BINARY = {ast.Add: ("+", "-"), ast.Sub: ("-", "+"), ast.Mult: ("*", "/"), ast.Div: ("/", "*"), ast.Pow: ("**", "*")}
BINARY |= {ast.FloorDiv: ("//", "/"), ast.Mod: ("%", "*"), ast.BitAnd: ("&", "|"), ast.MatMult: ("@", "*")}
COMPARISON = {ast.Lt: ("<", "<="), ast.LtE: ("<=", "<"), ast.Gt: (">", ">="), ast.GtE: (">=", ">")}
COMPARISON |= {ast.Eq: ("==", "!="), ast.NotEq: ("!=", "=="), ast.Is: ("is", "is not"), ast.IsNot: ("is not", "is")}
COMPARISON |= {ast.In: ("in", "not in"), ast.NotIn: ("not in", "in")}
LOGICAL = {ast.And: ("and", "or"), ast.Or: ("or", "and")}
PAIRS = [("max", "min"), ("maximum", "minimum"), ("argmax", "argmin"), ("any", "all"), ("mean", "sum")]
PAIRS += [("mul", "div"), ("mul_", "div_"), ("add_", "sub_"), ("zeros", "ones"), ("zeros_like", "ones_like")]
FUNCTIONS = {**dict(PAIRS), **{second: first for first, second in PAIRS}}
FUNCTIONS |= {"sqrt": "abs", "sqrt_": "abs_", "exp": "abs", "log": "abs", "square": "abs"}
SYMMETRIC = {"max", "min", "maximum", "minimum", "hypot", "isinstance", "getattr", "hasattr"}
"""Swapping their arguments changes nothing, or fails at once."""


@dataclass(frozen=True)
class Mutant:
    """One change: the bytes from `start` to `end` of a file become `new`."""

    path: str
    line: int
    kind: str
    start: int
    end: int
    new: str

    def applied_to(self, source: str) -> str:
        raw = source.encode()
        return (raw[: self.start] + self.new.encode() + raw[self.end :]).decode()

    def lines(self, source: str) -> tuple[str, str]:
        """The first changed line before and after, without indentation."""
        pairs = zip(source.splitlines(), self.applied_to(source).splitlines())
        return next(((old.strip(), new.strip()) for old, new in pairs if old != new), ("", ""))


def mutants_of(path: str, source: str) -> list[Mutant]:
    """Every change of this file that is another valid program, in the order of the text."""
    return [mutant for mutant in candidates(path, source) if is_another_program(mutant, source)]


def candidates(path: str, source: str) -> list[Mutant]:
    """The same without the last check, which costs most of the time."""
    text = _Text(source)
    changes = {change[1:]: change[0] for node in _nodes(ast.parse(source)) for change in _changes(node, text)}
    return [Mutant(path, text.line_of(place[0]), kind, *place) for place, kind in sorted(changes.items())]


def is_another_program(mutant: Mutant, source: str) -> bool:
    """Whether the changed source compiles, and not to the same."""
    try:
        return ast.dump(ast.parse(mutant.applied_to(source))) != ast.dump(ast.parse(source))
    except SyntaxError:
        return False


class _Text:
    """Places in a source file, in bytes from its beginning."""

    def __init__(self, source: str) -> None:
        self.raw = source.encode()
        self.first = [0]
        for line in self.raw.splitlines(keepends=True):
            self.first.append(self.first[-1] + len(line))

    def at(self, spot: Spot) -> int:
        return self.first[spot[0] - 1] + spot[1]

    def span(self, node: ast.AST) -> Spot:
        return self.at((node.lineno, node.col_offset)), self.at((node.end_lineno, node.end_col_offset))  # type: ignore

    def of(self, node: ast.AST) -> str:
        start, end = self.span(node)
        return self.raw[start:end].decode()

    def between(self, left: ast.AST, right: ast.AST, word: str) -> Spot | None:
        """Where an operator stands between its operands; comments between them are jumped over."""
        start, end = self.span(left)[1], self.span(right)[0]
        gap = re.sub(rb"#[^\n]*", lambda comment: b" " * len(comment[0]), self.raw[start:end])
        place = re.search(re.escape(word).replace(r"\ ", r"\s+").encode(), gap)
        return (start + place.start(), start + place.end()) if place else None

    def line_of(self, place: int) -> int:
        return self.raw.count(b"\n", 0, place) + 1


Change = tuple[str, int, int, str]


def _nodes(node: ast.AST) -> Iterator[ast.AST]:
    """What may be changed, from the outside in."""
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "bases"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and not isinstance(child, ast.JoinedStr):
                yield child
                if not isinstance(child, ast.Raise):
                    yield from _nodes(child)


def _changes(node: ast.AST, text: _Text) -> Iterator[Change]:
    if isinstance(node, (ast.BinOp, ast.AugAssign, ast.Compare, ast.BoolOp)):
        yield from _operators(node, text)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.Not)):
        yield "removed sign or not", *text.span(node), f"({text.of(node.operand)})"
    elif isinstance(node, ast.Constant):
        yield from _constants(node, text)
    elif isinstance(node, (ast.If, ast.IfExp, ast.While)) and not _is_negation(node.test):
        yield "negated condition", *text.span(node.test), f"(not ({text.of(node.test)}))"
    elif isinstance(node, ast.Call):
        yield from _calls(node, text)
    if _removable(node):
        yield "removed statement", *text.span(node), "pass"


def _operators(node: ast.BinOp | ast.AugAssign | ast.Compare | ast.BoolOp, text: _Text) -> Iterator[Change]:
    for left, operator, right in _operands(node):
        table = {**BINARY, **COMPARISON, **LOGICAL}
        if type(operator) not in table:
            continue
        old, new = table[type(operator)]
        place = text.between(left, right, old)
        if place:
            yield f"{old} to {new}", *place, new


def _operands(node: ast.BinOp | ast.AugAssign | ast.Compare | ast.BoolOp) -> Iterator[tuple[ast.AST, ast.AST, ast.AST]]:
    if isinstance(node, ast.BinOp):
        yield node.left, node.op, node.right
    elif isinstance(node, ast.AugAssign):
        yield node.target, node.op, node.value
    elif isinstance(node, ast.Compare):
        yield from zip([node.left, *node.comparators], node.ops, node.comparators)
    else:
        yield from ((left, node.op, right) for left, right in zip(node.values, node.values[1:]))


def _constants(node: ast.Constant, text: _Text) -> Iterator[Change]:
    value = node.value
    if isinstance(value, bool):
        yield "other truth", *text.span(node), str(not value)
    elif isinstance(value, int):
        yield "constant + 1", *text.span(node), str(value + 1)
    elif isinstance(value, float):
        yield "constant doubled", *text.span(node), repr(2 * value or 1.0)


def _calls(node: ast.Call, text: _Text) -> Iterator[Change]:
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    of_math = isinstance(node.func, ast.Attribute) and getattr(node.func.value, "id", "") == "math"
    if name in FUNCTIONS and not of_math:
        end = text.span(node.func)[1]
        yield f"{name} to {FUNCTIONS[name]}", end - len(name.encode()), end, FUNCTIONS[name]
    plain = [each for each in node.args if not isinstance(each, (ast.Starred, ast.GeneratorExp))]
    if len(plain) == len(node.args) >= 2 and name not in SYMMETRIC:
        first, second = node.args[-2:]
        between = text.raw[text.span(first)[1] : text.span(second)[0]].decode()
        swapped = text.of(second) + between + text.of(first)
        yield "swapped arguments", text.span(first)[0], text.span(second)[1], swapped


def _is_negation(node: ast.AST) -> bool:
    """`not x`, which another change makes `x` already."""
    return isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)


def _removable(node: ast.AST) -> bool:
    """A statement without which the program still has all its names."""
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Call)
    if isinstance(node, ast.Assign):
        return all(isinstance(target, (ast.Attribute, ast.Subscript)) for target in node.targets)
    return isinstance(node, (ast.AugAssign, ast.Raise))
