"""Temperature, energy, the largest σ and the novelty over time, from the log of a simulation."""

from pathlib import Path
from typing import Any

import numpy as np

from equibayes.simulate.log import read_log
from equibayes.simulate.trust import Trust


def plot_log(log: str | Path, output: str | Path, trust: Trust, temperature: float | None = None) -> None:
    """Write an SVG or PNG (by the suffix of `output`); `temperature` in K is drawn as the target."""
    from equibayes.evaluation.figures.drawing import save_figure
    from equibayes.evaluation.figures.style import colour, figure, styled

    columns = read_log(log)
    novel = "novelty" in columns and bool(np.isfinite(columns["novelty"]).any())
    with styled():
        drawn, axes = figure(6.4, 7.0 if novel else 5.6, rows=4 if novel else 3, sharex=True)
        top, middle, bottom = axes[:3, 0]
        time = columns["time"] / 1e3
        top.plot(time, columns["temperature"], color=colour("vermillion"), linewidth=0.9)
        if temperature is not None:
            top.axhline(temperature, color=colour("muted"), linewidth=0.8, linestyle="--")
        top.set(ylabel="temperature, K")
        _energies(middle, time, columns)
        bottom.plot(time, _finite(columns["max_devi_f"]), color=colour("blue"), linewidth=0.9, label="largest")
        bottom.plot(time, _finite(columns["avg_devi_f"]), color=colour("sky"), linewidth=0.9, label="mean")
        for level, name in ((trust.lower, "lower"), (trust.upper, "upper")):
            if level is not None:
                bottom.axhline(level, color=colour("muted"), linewidth=0.8, linestyle="--")
                place: Any = {"xycoords": ("axes fraction", "data"), "ha": "right", "va": "bottom"}
                bottom.annotate(f"{name} trust level", (1, level), fontsize=7, **place)
        unknown = columns["state"] == "unknown"
        if unknown.any():
            bottom.plot(time[unknown], np.zeros(unknown.sum()), "x", color=colour("vermillion"), label="unknown")
        bottom.set(ylabel="σ of forces, eV/Å")
        bottom.legend(loc="upper left", ncols=3)
        if novel:
            _novelty(axes[3, 0], time, columns["novelty"], trust)
        axes[-1, 0].set(xlabel="time, ps")
        save_figure(drawn, output)


def _energies(axes: Any, time: np.ndarray, columns: dict[str, np.ndarray]) -> None:
    """Relative to the first frame, to show small changes of large numbers."""
    from equibayes.evaluation.figures.style import colour

    for name, shade in (("potential", "green"), ("conserved", "ink")):
        values = columns[name]
        if len(values) and np.isfinite(values[0]):
            axes.plot(time, values - values[0], color=colour(shade), linewidth=0.9, label=name)
    axes.set(ylabel="energy − first, eV")
    axes.legend(loc="upper left", ncols=2)


def _novelty(axes: Any, time: np.ndarray, values: np.ndarray, trust: Trust) -> None:
    from equibayes.evaluation.figures.style import colour

    axes.plot(time, values, color=colour("purple"), linewidth=0.9)
    for level in (trust.novelty_lower, trust.novelty_upper):
        if level is not None:
            axes.axhline(level, color=colour("muted"), linewidth=0.8, linestyle="--")
    axes.set(ylabel="largest novelty", yscale="log")


def _finite(values: np.ndarray) -> np.ndarray:
    return np.where(np.isfinite(values), values, np.nan)
