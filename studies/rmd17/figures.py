"""Figures of the rMD17 study: ROC curves (figure 4 of the paper), error densities (figure 5), calibration curves and
the held-back error along the run."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from equibayes.evaluation.figures.style import KCAL, MEV, colour, figure, log_ticks, series, styled
from studies.rmd17.collected import METHODS, Case
from studies.shared.results import save_figure

PANEL, COLUMNS = 2.5, 3
NARROWEST = 4.4
"""Inches: width of a panel, and of the narrowest figure whose legend fits."""
DOTTED: dict[str, Any] = {"linewidth": 1.1, "linestyle": (0, (1, 1.3))}
Draw = Callable[[Any, Case], None]


def draw_all(cases: Sequence[Case], folder: Path) -> dict[str, str]:
    """PNG files in the folder; name -> Markdown line.  Where curves were left out of the results, the files stay."""
    full, few = [c for c in cases if c.few is None], [c for c in cases if c.few is not None]
    pictures = {}
    for group, suffix in ((full, ""), (few, "-few")):
        if not group:
            continue
        wanted: dict[str, tuple[str, Draw]] = {
            "roc": ("ROC curves: true against false positive rate of outlier detection", draw_roc),
            "calibration": (
                "Observed against expected fraction of force errors inside intervals: raw, and dotted recalibrated",
                draw_calibration,
            ),
            "density": (
                "Observed and predicted densities of force errors of the posterior with 8 chains",
                draw_density,
            ),
            "history": ("Force error on the held-back frames against the step", draw_history),
        }
        complete = all("curves" in result for case in group for result in case.results.values())
        for name, (words, draw) in wanted.items():
            file = f"{name}{suffix}.png"
            if complete:
                panels(group, draw, folder / file)
            if (folder / file).exists():
                pictures[f"{name}{suffix}"] = f"![{words}]({file})"
    return pictures


def panels(cases: Sequence[Case], draw: Draw, path: Path) -> None:
    """One panel per case, one legend for all."""
    columns = min(COLUMNS, len(cases))
    rows = -(-len(cases) // columns)
    with styled():
        drawn, axes = figure(max(NARROWEST, PANEL * columns + 0.3), (PANEL + 0.3) * rows + 0.5, rows, columns)
        for axis, case in zip(axes.flat, cases):
            draw(axis, case)
            axis.set_title(case.name)
        for axis in axes.flat[len(cases) :]:
            axis.set_axis_off()
        lines = {line.get_label(): line for axis in axes.flat for line in axis.get_lines()}
        lines = {label: line for label, line in lines.items() if not label.startswith("_")}
        if lines:
            drawn.legend(lines.values(), lines.keys(), loc="outside lower center", ncols=2 if columns < 3 else 3)
        save_figure(drawn, path)


def draw_roc(axis: Any, case: Case) -> None:
    """The paper's threshold where any method has such errors; else three times the MAE of each, as the panel says."""
    curves = {m: r["curves"]["roc"] for m, r in case.results.items()}
    relative = not any(curves.values())
    if relative:
        curves = {m: r["curves"]["roc_relative"] for m, r in case.results.items()}
    _diagonal(axis)
    for method, curve in curves.items():
        if curve:
            axis.plot(curve["flagged"], curve["found"], label=METHODS[method], **look(method))
    words = "errors above 3 MAE" if relative else "errors above 1 kcal/(mol Å)"
    axis.text(0.97, 0.04, words, color=colour("muted"), fontsize=7.5, ha="right")
    axis.set(xlim=(-0.015, 1.015), ylim=(-0.015, 1.015), aspect="equal")
    axis.set(xlabel="false positive rate", ylabel="true positive rate")


def draw_calibration(axis: Any, case: Case) -> None:
    _diagonal(axis)
    for method, result in case.results.items():
        curve = result["curves"]["calibration"]
        style = {"color": look(method)["color"]}
        axis.plot(curve["expected"], curve["raw"], label=METHODS[method], **style)
        axis.plot(curve["expected"], curve["recalibrated"], **DOTTED, **style)
    axis.plot([], [], color=colour("muted"), label="recalibrated", **DOTTED)
    axis.text(0.97, 0.04, "overconfident", color=colour("muted"), fontsize=7.5, ha="right")
    axis.set(xlim=(0, 1), ylim=(0, 1), aspect="equal", xlabel="expected fraction inside", ylabel="observed fraction")


def draw_density(axis: Any, case: Case) -> None:
    result = case.results.get("bayes")
    if result is None:
        axis.text(0.5, 0.5, "missing", ha="center", transform=axis.transAxes, color=colour("muted"))
        return
    density = result["curves"]["density"]["raw"]
    middle = (np.array(density["left"]) + density["width"] / 2) * KCAL
    # density per kcal/(mol Å)
    axis.plot(middle, np.array(density["observed"]) / KCAL, color=colour("ink"), label="observed")
    for index, part in enumerate(("raw", "recalibrated")):
        own = result["curves"]["density"][part]
        axis.plot(middle, np.array(own["predicted"]) / KCAL, label=f"predicted, {part}", **series(index))
    axis.set(yscale="log", xlabel="error of forces, kcal/(mol Å)", ylabel="density")
    observed = np.array(density["observed"]) / KCAL
    axis.set_ylim(bottom=observed[observed > 0].min() / 3)
    log_ticks(axis.yaxis, *axis.get_ylim())


def draw_history(axis: Any, case: Case) -> None:
    for method, result in case.results.items():
        if method == "paper-chain" or not result["history"]:
            continue  # fifty times as many steps
        steps = [record["step"] for record in result["history"]]
        errors = [MEV * record["force_mae_of_mean"] for record in result["history"]]
        axis.plot(steps, errors, label=METHODS[method], **look(method))
    axis.set(yscale="log", xlabel="step", ylabel="held-back force error, meV/Å")
    log_ticks(axis.yaxis, *axis.get_ylim())


def look(method: str) -> dict[str, Any]:
    """The same style of a method in all figures."""
    return series(list(METHODS).index(method)) | ({"color": colour("slate")} if method == "point" else {})


def _diagonal(axis: Any) -> None:
    axis.plot([0, 1], [0, 1], color=colour("muted"), linewidth=1, linestyle=(0, (2, 2)))
