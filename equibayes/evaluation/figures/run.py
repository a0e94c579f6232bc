"""The run itself: the history of every chain, and whether the chains arrive at the same predictions."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from equibayes.evaluation.figures.drawing import Drawing
from equibayes.evaluation.figures.style import MEV, colour, figure, log_ticks, series, styled
from equibayes.plural import counted

Record = dict[str, Any]
# A line of a page cannot show more points than this
POINTS = 400
MANY_CHAINS = 8


def trace(records: Sequence[Record], key: str) -> tuple[np.ndarray, np.ndarray]:
    """Steps [n] and values [n, chains] of the records that hold that key; gaps are NaN.  Thinned to `POINTS`."""
    rows = [(r["step"], r[key]) for r in records if r.get(key) is not None and "step" in r]
    rows = rows[:: max(1, -(-len(rows) // POINTS))]
    lists = [list(v) if isinstance(v, (list, tuple)) else [v] for _, v in rows]
    width = max(map(len, lists), default=0)
    values = np.full((len(rows), width), np.nan)
    for row, given in zip(values, lists):
        row[: len(given)] = [np.nan if v is None else v for v in given]
    return np.array([step for step, _ in rows]), values


def learning_history(records: Sequence[Record], sample_steps: Sequence[int] = ()) -> Drawing | None:
    """Error, σ, log posterior, temperature and learning rate against the step; None without records."""
    panels = [
        ("force error, MAE / (meV/Å)", "force_mae", "validation_force_mae", MEV, "log"),
        ("σ of forces / (meV/Å)", "force_sigma", "validation_force_sigma", MEV, "log"),
        ("log posterior", "log_posterior", "", 1.0, "linear"),
        ("temperature of the momenta", "kinetic_temperature", "", 1.0, "linear"),
        ("learning rate", "learning_rate", "", 1.0, "log"),
    ]
    panels = [p for p in panels if trace(records, p[1])[1].size]
    if not panels:
        return None
    chains = max(trace(records, key)[1].shape[1] for _, key, *_ in panels)
    with styled():
        drawn, axes = figure(7.6, 0.5 + 1.45 * len(panels), len(panels), 1, sharex=True)
        for axis, (title, key, held_back, scale, kind) in zip(axes[:, 0], panels):
            _lines(axis, *trace(records, key), scale, faint=bool(held_back) and trace(records, held_back)[1].size > 0)
            if held_back:
                _lines(axis, *trace(records, held_back), scale)
            values = trace(records, key)[1]
            positive = bool(np.nanmin(values, initial=np.inf) > 0) or key == "learning_rate"
            axis.set_yscale(kind if positive else "linear")
            _zoom(axis, key, values)
            if axis.get_yscale() == "log":
                log_ticks(axis.yaxis, *axis.get_ylim())
            axis.set_title(title, fontsize=8.5)
            _phases(axis, records, sample_steps)
        target = [r["temperature"] for r in records if isinstance(r.get("temperature"), (int, float))]
        shown = [key for _, key, *_ in panels]
        if target and "kinetic_temperature" in shown:
            goal = {"color": colour("muted"), "linewidth": 1, "linestyle": (0, (2, 2))}
            axes[shown.index("kinetic_temperature"), 0].axhline(target[-1], **goal)
        axes[-1, 0].set_xlabel("step")
        if 1 < chains <= MANY_CHAINS:
            axes[0, 0].legend(loc="upper right", ncols=min(chains, 4))
    last = trace(records, "force_mae")[1]
    end = f"; the force error ends at {np.nanmean(last[-1]) * MEV:.3g} meV/Å" if np.isfinite(last[-1:]).any() else ""
    return Drawing(
        "history",
        f"Learning history of {counted(chains, 'chain')} over {counted(records[-1]['step'], 'step')}{end}.",
        drawn,
    )


def probe_traces(records: Sequence[Record], panels: int = 6) -> Drawing | None:
    """Predicted force components of held-back frames during the cycles, one line per chain; None without such records.

    Those components are shown over which the chains differ most, compared with their own fluctuations.
    """
    late = [r for r in records if r.get("phase") == "cycle" and r.get("probes")]
    if len(late) < 2:
        return None
    late = late[:: max(1, -(-len(late) // POINTS))]
    steps = np.array([r["step"] for r in late])
    try:
        values = np.array([r["probes"] for r in late], dtype=float)  # [records, chains, probes]; None becomes NaN
    except (TypeError, ValueError):
        return None
    if values.ndim != 3:
        return None
    within, between = np.nan_to_num(np.nanstd(values, axis=0)).mean(0), np.nan_to_num(np.nanmean(values, axis=0)).std(0)
    chosen = np.argsort(-between / np.maximum(within, 1e-12), kind="stable")[:panels]
    with styled():
        rows = -(-len(chosen) // 3)
        drawn, axes = figure(7.6, 0.4 + 1.7 * rows, rows, 3, sharex=True)
        for axis in axes.flat[len(chosen) :]:
            axis.set_visible(False)
        for axis, probe in zip(axes.flat, chosen):
            _lines(axis, steps, values[:, :, probe], MEV)
            axis.set_title(f"component {probe + 1}", fontsize=8, fontweight="normal")
            axis.locator_params(axis="x", nbins=4)
        for axis in axes[:, 0]:
            axis.set_ylabel("force / (meV/Å)")
        for axis in axes[-1]:
            axis.set_xlabel("step")
        if 1 < values.shape[1] <= MANY_CHAINS:
            drawn.legend(
                *axes[0, 0].get_legend_handles_labels(), loc="outside upper right", ncols=min(values.shape[1], 4)
            )
    return Drawing(
        "traces", f"Predicted force components of {counted(values.shape[1], 'chain')} during the cycles.", drawn
    )


def _lines(axis: Any, steps: np.ndarray, values: np.ndarray, scale: float, *, faint: bool = False) -> None:
    """One line per chain; faint for secondary quantities."""
    for chain in range(values.shape[1]):
        look = {**series(chain), "alpha": 0.35, "linewidth": 0.8} if faint else {**series(chain), "linewidth": 1.2}
        axis.plot(steps, values[:, chain] * scale, label=None if faint else f"chain {chain}", **look)


def _zoom(axis: Any, key: str, values: np.ndarray) -> None:
    """The first steps fall by orders of magnitude and would compress everything else."""
    finite = values[np.isfinite(values)]
    if key in ("log_posterior", "kinetic_temperature") and finite.size > 8:
        low, high = np.quantile(finite, [0.08, 0.995] if key == "log_posterior" else [0.005, 0.99])
        margin = 0.1 * (high - low) or 1.0
        axis.set_ylim(low - margin, high + margin)


def _phases(axis: Any, records: Sequence[Record], sample_steps: Sequence[int]) -> None:
    """Where burn-in ends, and where samples were taken."""
    first = next((r["step"] for r in records if r.get("phase") == "cycle"), None)
    burn_in = [r["step"] for r in records if r.get("phase") != "cycle"]
    if burn_in:
        axis.axvspan(
            records[0]["step"], first if first is not None else burn_in[-1], color=colour("muted"), alpha=0.08, lw=0
        )
    for step in sorted(set(sample_steps))[:200]:
        axis.axvline(step, ymax=0.06, color=colour("ink"), linewidth=1.0)
