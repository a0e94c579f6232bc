"""Figure of the comparison."""

from pathlib import Path
from typing import Any

import numpy as np

from studies.convergence.comparison import moments, z_scores
from studies.shared.results import save_figure


def plot(reference: np.ndarray, runs: dict[str, np.ndarray], part: slice, path: Path) -> None:
    """Means and standard deviations of forces against the reference, and the distribution of z; all [K, n, Q] in
    eV/Å."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    def summary(draws: np.ndarray) -> Any:
        own = draws[:, :, part]
        return moments(own.mean(1), np.square(own).mean(1))

    a, (first, *_) = summary(reference), runs
    figure, (means, sds, histogram) = pyplot.subplots(1, 3, figsize=(14, 4.4), layout="constrained")
    b = summary(runs[first])
    means.errorbar(a.mean, b.mean, xerr=a.mean_error, yerr=b.mean_error, fmt=".", ms=2, lw=0.5)
    means.axline((0, 0), slope=1, color="0.5", lw=0.8)
    means.set(xlabel="mean force, HMC (eV/Å)", ylabel="mean force, SGHMC (eV/Å)")
    for (name, draws), color in zip(runs.items(), ("C0", "C3", "C1")):
        b = summary(draws)
        x, y = 1000 * np.exp(a.log_sd), 1000 * np.exp(b.log_sd)
        sds.errorbar(
            x, y, xerr=x * a.log_sd_error, yerr=y * b.log_sd_error, fmt=".", ms=2, lw=0.4, color=color, label=name
        )
        z = np.concatenate(z_scores(a, b))
        histogram.hist(
            z.clip(-8, 8), bins=np.linspace(-8, 8, 65), density=True, histtype="step", color=color, label=name
        )
    sds.axline((0, 0), slope=1, color="0.5", lw=0.8)
    sds.set(xscale="log", yscale="log", xlabel="sd of force, HMC (meV/Å)", ylabel="sd of force (meV/Å)")
    sds.legend(fontsize=8)
    grid = np.linspace(-8, 8, 200)
    histogram.plot(grid, np.exp(-(grid**2) / 2) / np.sqrt(2 * np.pi), color="0.5", lw=0.8)
    histogram.set(xlabel="z of means and of ln sd (ends: beyond ±8)", ylabel="density")
    histogram.legend(fontsize=8)
    save_figure(figure, path)
