"""Tables of all runs in a folder, as Markdown: mean and half the range over seeds; after recalibration."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from equibayes.bayes.covariance import COVARIANCES
from studies.shared.results import read_json
from studies.shared.tables import ABSENT, markdown

FORMS = {"independent": "components alone", "atoms": "3×3", "full": "all"}
WITHIN = {"calibrated": "1σ", "intervals": "68 % interval"}
PROJECTIONS = ("components", "bond stretching", "fragment net force", "fragment torque")


def runs_in(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*-*-*.json"))]


def tables(folder: Path) -> str:
    """Of the runs, the time of a step, and its growth with the atoms, as far as they exist."""
    runs = runs_in(folder)
    parts = [_likelihood(runs), _coverage(runs)] if runs else []
    for name, heading in (("speed", "set"), ("scaling", "atoms")):
        if found := read_json(folder / f"{name}.json"):
            parts.append(_times(found["step"], heading))
    return "\n\n".join("\n".join(part) for part in parts)


def groups(runs: list[dict[str, Any]]) -> Iterable[tuple[str, str, list[dict[str, Any]]]]:
    """Set, noise, and its runs with all seeds."""
    for name in dict.fromkeys(run["set"] for run in runs):
        for covariance in COVARIANCES:
            own = [run for run in runs if (run["set"], run["covariance"]) == (name, covariance)]
            if own:
                yield name, covariance, own


def values(runs: list[dict[str, Any]], form: str, key: str, what: str = "calibrated") -> list[float]:
    """Of each seed; empty where a set has no such quantity.  what: raw, calibrated, or intervals of 68 % on held-back
    frames"""
    return [row[key] for run in runs if key in (row := run[what]["forms"][form])]


def _likelihood(runs: list[dict[str, Any]]) -> list[str]:
    headings = ["set", "noise", "seeds", "force MAE, meV/Å", "RMS error", "RMS σ"]
    headings += [f"ln p, {words}" for words in FORMS.values()]
    headings += [f"without net force and torque: {FORMS[form]}" for form in ("independent", "full")]
    headings += [f"energy score, meV/Å: {FORMS[form]}" for form in ("independent", "full")]
    headings += ["68 % ellipsoids of atoms"]
    rows = []
    for name, covariance, own in groups(runs):
        row = [name, covariance, str(len(own))]
        row += [
            _range([run["calibrated"][key] for run in own], 1) for key in ("force_mae", "force_rmse", "force_sigma")
        ]
        row += [_range(values(own, form, "ln_p")) for form in FORMS]
        row += [_range(values(own, form, "ln_p_inner")) for form in ("independent", "full")]
        row += [
            _range([1e3 * each for each in values(own, form, "energy_score")], 1) for form in ("independent", "full")
        ]
        row += [_range([100 * each for each in values(own, "full", "ellipsoids_68")], 0)]
        rows.append(row)
    return markdown(headings, rows)


def _coverage(runs: list[dict[str, Any]]) -> list[str]:
    """Share within 1σ, and within intervals that hold 68 % of the force components of held-back frames, %."""
    keys = [f"{each}_68" for each in PROJECTIONS]
    rows = []
    for name, covariance, own in groups(runs):
        for form, what in (("independent", "calibrated"), ("full", "calibrated"), ("full", "intervals")):
            shares = [_range([100 * each for each in values(own, form, key, what)], 0) for key in keys]
            rows.append([name, covariance, FORMS[form], WITHIN[what], *shares])
    return markdown(["set", "noise", "correlations", "within", *PROJECTIONS], rows)


def _times(found: dict[str, dict[str, float]], heading: str) -> list[str]:
    rows, large = [], heading == "atoms"
    for name, own in found.items():
        base = own["isotropic"]
        row = [name, f"{1e3 * base:.2f}", *(f"× {own[each] / base:.2f}" for each in ("atom", "pair"))]
        rows.append(row + [f"{1e6 * own['pair'] / int(name):.1f}"] * large)
    return markdown([heading, "isotropic, ms per step", "atom", "pair"] + ["pair, µs per atom"] * large, rows)


def _range(found: list[float], digits: int = 2) -> str:
    """Mean, and half the range over seeds."""
    if not found:
        return ABSENT
    half = (max(found) - min(found)) / 2
    return f"{np.mean(found):.{digits}f}" + (f" ± {half:.{digits}f}" if len(found) > 1 else "")
