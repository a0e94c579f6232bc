"""Figures of the study, and how its JSON files are read."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from equibayes.evaluation.figures.style import MEV, colour, figure, log_ticks, series, styled
from studies.one_or_many.views import LEVELS
from studies.shared.results import save_figure

Found = dict[str, Any]
SINGLE = {
    "one": "one, equal seconds",
    "one-stretched": "one, equal seconds, all stretched",
    "one-work": "one, equal work",
}


def widest(case: Found) -> str:
    """The view with one draw of every chain, 8x1."""
    return max((name for name in case["views"] if name != "all"), key=lambda name: int(name.split("x")[0]))


def narrowest(case: Found) -> str:
    """The view with the draws of one chain, 1x8."""
    return min((name for name in case["views"] if name != "all"), key=lambda name: int(name.split("x")[0]))


def values(case: Found, view: str, key: str, part: str = "raw") -> np.ndarray:
    """One number per repetition of the view; NaN where it is undefined."""
    each = [v[part][key] for v in case["views"][view] if part in v]
    return np.array([np.nan if value is None else value for value in each], dtype=float)


def mean(case: Found, view: str, key: str, part: str = "raw") -> float:
    found = values(case, view, key, part)
    return float(np.nanmean(found)) if np.isfinite(found).any() else float("nan")


def of_question(found: dict[str, Found], asks: str) -> dict[str, Found]:
    """The cases of a question; `many` belongs to every question."""
    return {name: case for name, case in found.items() if case["asks"] == asks or name == "many"}


def place(asks: str, case: Found) -> float:
    """Position of a case on the axis of its question."""
    if asks == "integrator":
        return float(case["initial"]) + (1e-4 if case["integrator"] == "paper" else 0.0)
    key = {"burn-in": "burn_in_steps", "cycle": "cycle_steps", "temperature": "temperature"}[asks]
    return float(case[key])


def draw_chains(found: dict[str, Found], path: Path) -> None:
    """k samples spread over chains in different ways: likelihood, σ, miscalibration area and calibration curves."""
    many = found["many"]
    ways = [(view, many, view) for view in many["views"] if view != "all"]
    ways += [
        (words.replace(", ", ",\n"), found[name], narrowest(found[name]))
        for name, words in SINGLE.items()
        if name in found
    ]
    with styled():
        drawn, axes = figure(9.6, 6.2, 2, 2)
        panels = [
            (
                axes[0, 0],
                [("force_mll", "raw", "as sampled"), ("force_mll", "recalibrated", "recalibrated")],
                1.0,
                "MLL of forces",
            ),
            (
                axes[0, 1],
                [
                    ("force_sharpness", "raw", "σ"),
                    ("force_epistemic", "raw", "epistemic part"),
                    ("force_rmse", "raw", "errors"),
                ],
                MEV,
                "RMS / (meV/Å)",
            ),
            (
                axes[1, 0],
                [
                    ("force_miscalibration_area", "raw", "as sampled"),
                    ("force_miscalibration_area", "recalibrated", "recalibrated"),
                ],
                1.0,
                "miscalibration area of forces",
            ),
        ]
        for axis, lines, scale, words in panels:
            for index, (key, part, label) in enumerate(lines):
                look = series(index)
                for x, (_, case, view) in enumerate(ways):
                    each = scale * values(case, view, key, part)
                    axis.plot([x] * len(each), each, ".", color=look["color"], alpha=0.35, markersize=5)
                    axis.plot(
                        x, np.nanmean(each), "os^"[index], color=look["color"], markersize=5, label=None if x else label
                    )
            axis.set_xticks(range(len(ways)), [words_ for words_, *_ in ways], fontsize=6.5)
            axis.set_ylabel(words)
            axis.legend()
        curves = axes[1, 1]
        curves.plot([0, 1], [0, 1], color=colour("muted"), linewidth=0.8)
        ends = [way for way in ways if way[1] is not many or way[2] in (narrowest(many), widest(many))]
        for index, (words, case, view) in enumerate(ends):
            curve = np.mean([v["raw"]["force_calibration_curve"] for v in case["views"][view]], axis=0)
            curves.plot(LEVELS, curve, label=words.replace("\n", " "), **series(index))
        curves.set(xlabel="expected fraction", ylabel="observed fraction", xlim=(0, 1), ylim=(0, 1))
        curves.legend()
        axes[0, 0].set_title(f"k = {many['plan']['draws']}: chains x draws of `many`, and single chains", fontsize=8.5)
        save_figure(drawn, path)


def _metric(view: Callable[[Found], str], key: str, scale: float = 1.0) -> Callable[[Found], float]:
    return lambda case: scale * mean(case, view(case), key)


def _spread(key: str) -> Callable[[Found], float]:
    return lambda case: MEV * float(case["agreement"][key])


def _temperature(case: Found) -> float:
    value = case["verdict"].get("kinetic_temperature")
    return float("nan") if value is None else float(value)


Lines = list[tuple[str, Callable[[Found], float]]]
# lines of a panel: label and value
ERRORS: Lines = [("1 chain", _metric(narrowest, "force_mae", MEV)), ("all chains", _metric(widest, "force_mae", MEV))]
SIGMAS: Lines = [
    ("σ", _metric(widest, "force_sharpness", MEV)),
    ("epistemic", _metric(widest, "force_epistemic", MEV)),
    ("errors", _metric(widest, "force_rmse", MEV)),
]
LIKELIHOODS: Lines = [("1 chain", _metric(narrowest, "force_mll")), ("all chains", _metric(widest, "force_mll"))]
COVERAGES: Lines = [
    ("1 chain", _metric(narrowest, "force_coverage_68", 100)),
    ("all chains", _metric(widest, "force_coverage_68", 100)),
]
LAST: dict[str, Lines] = {
    "integrator": [("", _temperature)],
    "cycle": [
        ("within a chain", _spread("spread_within_chains")),
        ("of chain means", _spread("spread_of_chain_means")),
    ],
}
TITLES = ("force error (MAE) / (meV/Å)", "RMS, all chains / (meV/Å)", "MLL of forces, k samples")
LAST_TITLES = {"integrator": "kinetic temperature", "cycle": "spread of draws / (meV/Å)"}


def draw_against(found: dict[str, Found], asks: str, path: Path, label: str) -> None:
    """Errors, σ, likelihood and agreement of the chains against one setting."""
    cases = dict(sorted(of_question(found, asks).items(), key=lambda item: place(asks, item[1])))
    groups: dict[str, list[Found]] = {"": list(cases.values())}
    if asks == "integrator":
        groups = {kind: [c for c in cases.values() if c["integrator"] == kind] for kind in ("baoa", "paper")}
    scatter = [case for case in found.values() if case["asks"] == "scatter"]
    with styled():
        drawn, axes = figure(9.6, 2.9, 1, 4)
        for number, (group, members) in enumerate(groups.items()):
            x = positions(asks, members)
            base = positions(asks, [found["many"]])[0]
            shown = (ERRORS, SIGMAS, LIKELIHOODS, LAST.get(asks, COVERAGES))
            for axis, lines in zip(axes[0], shown):
                for index, (words, value) in enumerate(lines):
                    look = series(index + len(lines) * number)
                    name = f"{group} {words}".strip()
                    axis.plot(
                        x, [value(case) for case in members], marker="os^"[index], markersize=4, label=name, **look
                    )
                    if not number:
                        axis.plot(
                            [base] * len(scatter),
                            [value(case) for case in scatter],
                            "x",
                            color=look["color"],
                            markersize=5,
                        )
        titles = (*TITLES, LAST_TITLES.get(asks, "errors in the 68 % interval, %"))
        for axis, title in zip(axes[0], titles):
            axis.set_title(title, fontsize=8)
            axis.set_xlabel(label)
            axis.legend(fontsize=6.5)
            ticks(axis, asks, list(cases.values()))
        save_figure(drawn, path)


def positions(asks: str, cases: Sequence[Found]) -> list[float]:
    """On the axis; temperatures are logarithmic, with 0 at 1e-3."""
    if asks == "temperature":
        return [float(np.log10(max(case["temperature"], 1e-3))) for case in cases]
    return [float(case["initial"]) if asks == "integrator" else place(asks, case) for case in cases]


def ticks(axis: Any, asks: str, cases: Sequence[Found]) -> None:
    if asks == "temperature":
        axis.set_xticks(positions(asks, cases), [f"{case['temperature']:g}" for case in cases])
        return
    axis.set_xscale("log")
    log_ticks(axis.xaxis, *axis.get_xlim())
