"""Markdown tables of numbers."""

import math
import textwrap
from collections.abc import Iterable, Sequence

ABSENT = "–"
KEPT = ("", "|", "!", "#", "-", " ")


def markdown(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """The lines of a table."""
    return [f"| {' | '.join(cells)} |" for cells in (headings, ["---"] * len(headings), *rows)]


def number(value: float | None, form: str, scale: float = 1.0) -> str:
    """`scale` times the value; a dash where there is none."""
    return ABSENT if value is None or not math.isfinite(value) else format(scale * value, form)


def paragraph(words: str) -> list[str]:
    """The lines of a paragraph in Markdown."""
    return textwrap.wrap(words, 120, break_long_words=False, break_on_hyphens=False)


def wrapped(page: str) -> str:
    """A page whose long lines of text are wrapped; tables, figures, headings, lists and code stay as they are."""
    lines = page.split("\n")
    return "\n".join(line if line[:1] in KEPT else "\n".join(paragraph(line)) for line in lines)
