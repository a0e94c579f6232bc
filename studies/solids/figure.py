"""Relative errors of all properties with their 95 % intervals."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from equibayes.evaluation.figures.style import colour, figure, styled
from studies.shared.results import save_figure
from studies.solids.tables import JUDGED, compared, inside

WIDEST = {"a, Å": 0.3, "B′": 30.0}
"""% shown; 10 of the others."""
SPREAD = 0.32
"""Half the width of the points of one system; systems are one apart."""


def draw(cases: list[dict[str, Any]], path: Path, view: str = "refined") -> None:
    """A panel for each quantity; a point for each crystal and seed, sorted by what was learned."""
    learned = sorted({each["system"] for each in cases}, key=lambda name: (name.count("-"), name))
    with styled():
        drawn, panels = figure(10.0, 5.2, 2, 3, sharex=True)
        for axes, label in zip(panels.flat, JUDGED, strict=True):
            limit = WIDEST.get(label, 10.0)
            axes.axhspan(-min(3.0, limit), min(3.0, limit), color=colour("grid"), zorder=0)
            axes.axhline(0, color=colour("muted"), linewidth=0.8)
            for place, system in enumerate(learned):
                values = list(_percent([each for each in cases if each["system"] == system], label, view))
                places = place + np.linspace(-SPREAD, SPREAD, len(values) + 2)[1:-1]
                for x, (middle, low, high, right) in zip(places, values):
                    look = {"color": colour("blue" if right else "vermillion"), "markersize": 3, "linewidth": 1.0}
                    axes.errorbar([x], [middle], [[middle - low], [high - middle]], fmt="o", **look)
            axes.set(title=label.split(",")[0], ylim=(-limit, limit), ylabel="relative error, %")
            axes.set_xticks(range(len(learned)), learned, rotation=35, ha="right")
        save_figure(drawn, path)


def _percent(cases: list[dict[str, Any]], label: str, view: str) -> Iterator[tuple[float, float, float, bool]]:
    """Error, ends of the interval, and whether the truth is inside."""
    for case in cases:
        for _, key, truth, found in compared(case, view):
            if key == label:
                low, high = (100 * (bound / truth - 1) for bound in found["interval_95"])
                yield 100 * (found["value"] / truth - 1), low, high, inside(truth, found)
