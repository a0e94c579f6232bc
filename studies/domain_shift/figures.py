"""Figures of the study of domain shift.  Each function returns file name -> caption."""

from pathlib import Path
from typing import Any

import numpy as np

from equibayes.evaluation.figures.style import KCAL, MEV, colour, figure, log_ticks, series, styled
from studies.shared.results import save_figure

MARKERS = {"inside": "o", "control": "s", "outside": "^"}
Studies = dict[str, dict[str, dict[str, Any]]]


def growth(studies: Studies, folder: Path) -> dict[str, str]:
    """RMS σ against RMS error of every test set, one panel per case."""
    with styled():
        drawn, axes = figure(3.3 * len(studies), 3.5, 1, len(studies))
        for axis, (case, methods) in zip(axes[0], studies.items()):
            points = []
            for index, (method, found) in enumerate(methods.items()):
                for name, each in found["sets"].items():
                    values = each["raw"][str(found["k"])]
                    points.append((MEV * values["force_rmse"], MEV * values["rms_sigma"]))
                    axis.plot(*points[-1], MARKERS[each["kind"]], color=series(index)["color"], markersize=5)
                    if index == 0:
                        axis.annotate(
                            name, points[-1], (4, -9), textcoords="offset points", fontsize=6.5, color=colour("muted")
                        )
                axis.plot([], [], "o", color=series(index)["color"], label=method)
            _diagonal(axis, np.array(points))
            axis.set(title=case, xlabel="RMS error of forces / (meV/Å)", ylabel="RMS σ / (meV/Å)")
            axis.legend(loc="upper left")
        return _save(
            drawn, folder, "growth.png", "RMS σ against RMS error of every test set; on the dashed line σ is right"
        )


def of_study(case: str, methods: dict[str, dict[str, Any]], folder: Path) -> dict[str, str]:
    """All figures of one study."""
    made = _frames(case, methods, folder) | _calibration(case, methods, folder) | _roc(case, methods, folder)
    if case == "pedot":
        made = _density(methods, folder) | made
    return made


def _density(methods: dict[str, dict[str, Any]], folder: Path) -> dict[str, str]:
    """Figure 6 of the paper: observed and predicted density of errors on the longest chain."""
    with styled():
        drawn, axes = figure(3.4 * len(methods), 5.4, 2, len(methods))
        for column, (method, found) in enumerate(methods.items()):
            for row, scale in enumerate(("linear", "log")):
                axis = axes[row, column]
                for kind, name, dashes in (
                    ("raw", "vermillion", (0, (5, 1.6))),
                    ("recalibrated", "green", (0, (1.2, 1.2))),
                ):
                    density = found["sets"]["length 16"]["curves"][kind]["density"]
                    width, left = density["width"] * KCAL, np.array(density["left"]) * KCAL
                    if kind == "raw":
                        edges = np.append(left, left[-1] + width)
                        observed = np.array(density["observed"]) / width
                        axis.stairs(observed, edges, fill=True, color=colour("blue"), alpha=0.28, label="observed")
                    predicted = np.array(density["predicted"]) / width
                    axis.plot(
                        left + width / 2, predicted, color=colour(name), linestyle=dashes, label=f"predicted, {kind}"
                    )
                axis.set_yscale(scale)
                if scale == "log":
                    axis.set_ylim(bottom=max(observed.max() * 1e-4, 1e-9))
                    log_ticks(axis.yaxis, *axis.get_ylim())
                axis.set(xlabel="error of a force component / (kcal/(mol Å))", ylabel="density / (mol Å/kcal)")
                if row == 0:
                    axis.set_title(f"{method}, k = {found['k']}")
                    axis.legend(loc="upper left", fontsize=6.5)
        return _save(
            drawn,
            folder,
            "pedot-density.png",
            "Figure 6: densities of force errors on length 16, observed and predicted",
        )


def _frames(case: str, methods: dict[str, dict[str, Any]], folder: Path) -> dict[str, str]:
    """σ against error, frame by frame."""
    with styled():
        drawn, axes = figure(3.4 * len(methods), 3.4, 1, len(methods), sharex=True, sharey=True)
        points = []
        for axis, (method, found) in zip(axes[0], methods.items()):
            for index, (name, each) in enumerate(found["sets"].items()):
                frames = each["curves"]["raw"]["frames"]
                error, sigma = (MEV * np.array(frames[key]) for key in ("rms_error", "rms_sigma"))
                points.append(np.stack([error, sigma], 1))
                look = {"color": series(index)["color"], "alpha": 0.5, "markersize": 2.5, "markeredgewidth": 0}
                axis.plot(error, sigma, MARKERS[each["kind"]], label=name, **look)
            axis.set(title=f"{method}, k = {found['k']}", xlabel="RMS error of a frame's forces / (meV/Å)")
        for axis in axes[0]:
            _diagonal(axis, np.concatenate(points))
        axes[0, 0].set_ylabel("RMS σ of the frame / (meV/Å)")
        axes[0, 0].legend(loc="upper left", fontsize=6.5, markerscale=1.6)
        return _save(
            drawn, folder, f"{case}-frames.png", f"{case}: σ against error of single frames (lengths of force vectors)"
        )


def _calibration(case: str, methods: dict[str, dict[str, Any]], folder: Path) -> dict[str, str]:
    """Fraction of errors inside intervals; top: raw σ, bottom: recalibrated on held-back frames."""
    with styled():
        drawn, axes = figure(3.1 * len(methods), 6.0, 2, len(methods), sharex=True, sharey=True)
        for column, (method, found) in enumerate(methods.items()):
            for row, kind in enumerate(("raw", "recalibrated")):
                axis = axes[row, column]
                axis.plot([0, 1], [0, 1], color=colour("muted"), linewidth=1, linestyle=(0, (2, 2)))
                for index, (name, each) in enumerate(found["sets"].items()):
                    curve = each["curves"][kind]["calibration"]
                    axis.plot([0, *curve["level"], 1], [0, *curve["inside"], 1], label=name, **series(index))
                axis.set(xlim=(0, 1), ylim=(0, 1), aspect="equal", title=f"{method}, {kind}")
        for axis in axes[1]:
            axis.set_xlabel("expected fraction inside")
        for axis in axes[:, 0]:
            axis.set_ylabel("observed fraction inside")
        axes[0, 0].legend(loc="lower right", fontsize=6.5)
        return _save(
            drawn, folder, f"{case}-calibration.png", f"{case}: calibration curves; below the diagonal σ is too small"
        )


def _roc(case: str, methods: dict[str, dict[str, Any]], folder: Path) -> dict[str, str]:
    """Detection by σ of errors above three times the in-distribution MAE, on every set."""
    with styled():
        drawn, axes = figure(3.3 * len(methods), 3.6, 1, len(methods), sharex=True, sharey=True)
        for axis, (method, found) in zip(axes[0], methods.items()):
            axis.plot([0, 1], [0, 1], color=colour("muted"), linewidth=1, linestyle=(0, (2, 2)))
            for index, (name, each) in enumerate(found["sets"].items()):
                curve, values = each["curves"]["raw"]["roc"]["relative"], each["raw"][str(found["k"])]
                if curve is not None:
                    label = f"{name}: {values['force_auc_relative']:.3f}"
                    axis.plot(curve["false"], curve["found"], label=label, **series(index))
            axis.set(xlim=(-0.01, 1.01), ylim=(-0.01, 1.01), aspect="equal", title=method)
            axis.set_xlabel("false positive rate")
            axis.legend(loc="lower right", fontsize=6.5, title="AUC", title_fontsize=6.5)
        axes[0, 0].set_ylabel("true positive rate")
        return _save(
            drawn,
            folder,
            f"{case}-roc.png",
            f"{case}: force errors above three times the in-distribution MAE, detected by σ",
        )


def _diagonal(axis: Any, points: np.ndarray) -> None:
    """Logarithmic axes of equal range, with the line on which σ equals the error."""
    positive = points[points > 0]
    low, high = positive.min() / 1.25, positive.max() * 1.25
    axis.plot([low, high], [low, high], color=colour("muted"), linewidth=1, linestyle=(0, (2, 2)))
    axis.set(xscale="log", yscale="log", xlim=(low, high), ylim=(low, high))
    for side in (axis.xaxis, axis.yaxis):
        log_ticks(side, low, high)


def _save(drawn: Any, folder: Path, name: str, words: str) -> dict[str, str]:
    save_figure(drawn, folder / name)
    return {name: words}
