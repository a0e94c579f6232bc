"""What covariances add to the ln likelihood of forces, and the coverage of fragment net forces, by set."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from equibayes.bayes.covariance import COVARIANCES
from equibayes.evaluation.figures.style import colour, figure, series, styled
from studies.covariance.tables import groups, values
from studies.shared.results import save_figure

WANTED = (60, 76)
"""Goal for the coverage of fragment net forces, %."""
APART = 0.22
"""Between the points of one set; sets are one apart."""
Of = Callable[[list[dict[str, Any]], str], list[float]]


def draw(runs: list[dict[str, Any]], path: Path) -> None:
    """Against independent components of the isotropic model: open symbols without net force and torque."""
    sets = list(dict.fromkeys(run["set"] for run in runs))
    base = {(run["set"], run["seed"]): run for run in runs if run["covariance"] == "isotropic"}

    def gain(own: list[dict[str, Any]], key: str) -> list[float]:
        pairs = [(run, base[run["set"], run["seed"]]) for run in own if (run["set"], run["seed"]) in base]
        return [values([run], "full", key)[0] - values([other], "independent", key)[0] for run, other in pairs]

    with styled():
        drawn, axes = figure(10.0, 3.6, 1, 2)
        left, right = axes.flat
        left.axhline(0, color=colour("muted"), linewidth=0.8)
        right.axhspan(*WANTED, color=colour("grid"), zorder=0)
        for name, covariance, own in groups(runs):
            number = COVARIANCES.index(covariance)
            x, look = sets.index(name) + APART * (number - 1), {"color": series(number)["color"], "markersize": 5}
            _point(left, x, gain(own, "ln_p"), look)
            _point(left, x + APART / 3, gain(own, "ln_p_inner"), look | {"markerfacecolor": "white"})
            for place, form, more in ((x, "full", {}), (x + APART / 3, "independent", {"markerfacecolor": "white"})):
                _point(right, place, [100 * each for each in values(own, form, "fragment net force_68")], look | more)
        for each in (left, right):
            each.set_xticks(range(len(sets)), sets)
        left.set(ylabel="ln p per force vector", title="gain over the isotropic model without correlations")
        right.set(ylabel="%", title="fragment net forces within 1σ", ylim=(40, 101))
        for number, covariance in enumerate(COVARIANCES):
            left.plot([], [], "o", color=series(number)["color"], label=covariance)
        left.legend(title="open: without net force and torque")
        right.plot([], [], "o", color=colour("muted"), label="all correlations")
        right.plot([], [], "o", color=colour("muted"), markerfacecolor="white", label="components alone")
        right.legend(loc="lower left")
        save_figure(drawn, path)


def _point(axes: Any, x: float, found: list[float], look: dict[str, Any]) -> None:
    """Mean and range over seeds."""
    if found:
        mean = np.mean(found)
        axes.errorbar([x], [mean], [[mean - min(found)], [max(found) - mean]], fmt="o", **look)
