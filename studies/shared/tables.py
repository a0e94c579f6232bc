"""Markdown tables of numbers."""

import math
import textwrap
from collections.abc import Iterable, Sequence

ABSENT = "–"
KEPT = ("", "|", "!", "#", " ")


def markdown(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """The lines of a table."""
    return [f"| {' | '.join(cells)} |" for cells in (headings, ["---"] * len(headings), *rows)]


def number(value: float | None, form: str, scale: float = 1.0) -> str:
    """`scale` times the value; a dash where there is none."""
    return ABSENT if value is None or not math.isfinite(value) else format(scale * value, form)


def paragraph(words: str) -> list[str]:
    """The lines of a paragraph or of a list entry in Markdown."""
    indent = "  " if words.startswith("- ") else ""
    return textwrap.wrap(words, 120, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def wrapped(page: str) -> str:
    """A page whose long lines of text are wrapped; tables, figures and headings stay as they are."""
    lines = page.split("\n")
    return "\n".join(line if line[:1] in KEPT else "\n".join(paragraph(line)) for line in lines)
