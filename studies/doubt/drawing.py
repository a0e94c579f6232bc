"""A figure of the posterior's frames: how wrong each is, against its novelty and against its σ."""

from pathlib import Path
from typing import Any

import numpy as np

from equibayes.evaluation.figures.style import colour, figure, series, styled
from equibayes.posterior.novelty import NOVELTY
from studies.doubt.cases import INSIDE
from studies.doubt.measures import BAD, LEVEL
from studies.shared.results import save_figure

MOST = 1e6
"""Larger numbers are drawn there."""


def draw(found: list[dict[str, Any]], path: Path) -> None:
    """found: results of the posterior, a column for each.  A bad frame in the shaded corner is trusted by that number
    alone."""
    with styled():
        drawn, axes = figure(2.9 * len(found), 5.2, 2, len(found))
        for column, each in enumerate(found):
            usual = each["sets"][INSIDE]["force_mae"]
            for axis, name, words, edge in (
                (axes[0, column], "novelty", "novelty", NOVELTY[0]),
                (axes[1, column], "sigma", "largest σ of an atom / MAE in distribution", LEVEL),
            ):
                for index, (kind, frames) in enumerate(each["frames"].items()):
                    values = np.array(frames[name], dtype=float) / (1.0 if name == "novelty" else usual)
                    error = np.array(frames["error"], dtype=float) / usual
                    style = {"color": colour("muted")} if kind == INSIDE else {"color": series(index - 1)["color"]}
                    axis.plot(np.minimum(values, MOST), error, ".", markersize=2.5, alpha=0.6, label=kind, **style)
                axis.set(xscale="log", yscale="log", xlabel=words)
                left, top = axis.get_xlim()[0], axis.get_ylim()[1]
                axis.fill_between([left, edge], BAD, top, color=colour("vermillion"), alpha=0.12, linewidth=0)
                axis.set(xlim=(left, None), ylim=(None, top))
            axes[0, column].set_title(each["case"])
            axes[0, column].legend(fontsize=5.5, loc="lower right", markerscale=2)
        for axis in axes[:, 0]:
            axis.set_ylabel("force error of a frame / MAE in distribution")
        save_figure(drawn, path)
