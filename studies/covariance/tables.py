"""Tables of all runs in a folder, as Markdown: mean and range over seeds."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from equibayes.bayes.covariance import COVARIANCES

FORMS = ("independent", "atoms", "full")
PROJECTIONS = ("components", "bond stretching", "fragment net force", "fragment torque")


def tables(folder: Path) -> str:
    """Of the runs, the time of a step, and its growth with the atoms, as far as they exist."""
    runs = [json.loads(path.read_text()) for path in sorted(folder.glob("*-*-*.json"))]
    parts = []
    if runs:
        parts += [_likelihood(runs), _coverage(runs)]
    for name in ("speed", "scaling"):
        if (path := folder / f"{name}.json").is_file():
            parts.append(_times(json.loads(path.read_text())["step"]))
    return "\n\n".join(parts)


def _groups(runs: list[dict[str, Any]]) -> Iterable[tuple[str, str, list[dict[str, Any]]]]:
    for name in dict.fromkeys(run["set"] for run in runs):
        for covariance in COVARIANCES:
            own = [run for run in runs if (run["set"], run["covariance"]) == (name, covariance)]
            if own:
                yield name, covariance, own


def _likelihood(runs: list[dict[str, Any]]) -> str:
    lines = [
        "| set | noise | seeds | force MAE, meV/Å | form | ln p per vector, raw | recalibrated | without net force and "
        "torque | energy score, meV/Å |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name, covariance, own in _groups(runs):
        for form in FORMS:
            rows = [run["calibrated"]["forms"][form] for run in own]
            cells = [
                name,
                covariance,
                str(len(own)),
                _range([run["calibrated"]["force_mae"] for run in own], 1),
                form,
                _range([run["raw"]["forms"][form]["ln_p"] for run in own]),
                _range([row["ln_p"] for row in rows]),
                _range([row["ln_p_inner"] for row in rows]),
                _range([1e3 * row["energy_score"] for row in rows], 1),
            ]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _coverage(runs: list[dict[str, Any]]) -> str:
    """Share within 1σ, %, recalibrated."""
    lines = [
        f"| set | noise | form | ellipsoids of atoms, 68 % | {' | '.join(PROJECTIONS)} |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, covariance, own in _groups(runs):
        for form in FORMS:
            rows = [run["calibrated"]["forms"][form] for run in own]
            keys = ["ellipsoids_68", *(f"{each}_68" for each in PROJECTIONS)]
            cells = [_range([100 * row[key] for row in rows], 0) if key in rows[0] else "–" for key in keys]
            lines.append(f"| {name} | {covariance} | {form} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _times(found: dict[str, dict[str, float]]) -> str:
    lines = ["| | isotropic, ms | atom | pair |", "|---|---|---|---|"]
    for name, own in found.items():
        base = own["isotropic"]
        ratios = [f"× {own[each] / base:.2f}" for each in ("atom", "pair")]
        lines.append(f"| {name} | {1e3 * base:.2f} | {' | '.join(ratios)} |")
    return "\n".join(lines)


def _range(values: list[float], digits: int = 2) -> str:
    """Mean, and half the range over seeds."""
    mean, half = np.mean(values), (max(values) - min(values)) / 2
    return f"{mean:.{digits}f}" + (f" ± {half:.{digits}f}" if len(values) > 1 else "")
