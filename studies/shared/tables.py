"""Markdown tables of numbers."""

import math
from collections.abc import Iterable, Sequence

ABSENT = "–"


def markdown(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """The lines of a table."""
    return [f"| {' | '.join(cells)} |" for cells in (headings, ["---"] * len(headings), *rows)]


def number(value: float | None, form: str, scale: float = 1.0) -> str:
    """`scale` times the value; a dash where there is none."""
    return ABSENT if value is None or not math.isfinite(value) else format(scale * value, form)
