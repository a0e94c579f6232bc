"""The tables of the report; a metric without a value is shown as a dash."""

from collections.abc import Callable, Sequence
from functools import partial
from math import floor, log10
from typing import Any

from equibayes.evaluation.columns import ABSENT, Column, select
from equibayes.evaluation.figures.curves import ENERGY, FORCE, Quantity
from equibayes.evaluation.figures.sets import species_rows
from equibayes.evaluation.figures.style import MEV
from equibayes.evaluation.metrics import OUTLIER_MULTIPLE
from equibayes.evaluation.report import words
from equibayes.evaluation.report.markup import Html, table
from equibayes.evaluation.report.numbers import Numbers
from equibayes.evaluation.tables import LEVELS
from equibayes.posterior.file import Posterior

Shown = tuple[str, Callable[[Numbers], float | None], str]
"""Heading, number, format."""


def _metrics(keys: str) -> list[Shown]:
    def value(column: Column, numbers: Numbers) -> float | None:
        return column.value(numbers.values)

    return [(column.heading, partial(value, column), column.format) for column in select(keys)]


FORCES: list[Shown] = _metrics(
    "n_frames force_mae force_rmse force_sharpness force_crps kcal_mol.force_mae kcal_mol.force_rmse kcal_mol.force_mll"
)
ENERGIES: list[Shown] = _metrics(
    "energy_mae per_atom.energy_mae energy_rmse energy_sharpness kcal_mol.energy_mae kcal_mol.energy_mll "
    "energy_coverage_68 energy_coverage_95"
)


STRESS: list[Shown] = _metrics(
    "n_frames_with_stress gpa.stress_mae gpa.stress_rmse gpa.stress_sharpness gpa.stress_crps gpa.stress_mll stress_auc "
    "stress_coverage_50 stress_coverage_68 stress_coverage_90 stress_coverage_95 stress_epistemic_share"
)
VECTORS: list[Shown] = _metrics(
    "vector_mll vector_mll_independent vector_energy_score vector_coverage_50 vector_coverage_68 vector_coverage_90 "
    "vector_coverage_95"
)
NOVELTY: list[Shown] = _metrics("novel_frame_share novel_atom_share novelty_auc per_atom.force_auc novelty_spearman")


def calibration_columns(own: Quantity) -> list[Shown]:
    key = own.key
    return [
        *_metrics(" ".join(f"{key}_coverage_{level}" for level in LEVELS)),
        ("σ too small by a factor of", lambda n: n.too_small_68, ".2f"),
        *_metrics(f"{key}_miscalibration_area {key}_ence {key}_ece kcal_mol.{key}_nece"),
    ]


def outlier_columns(own: Quantity) -> list[Shown]:
    key = own.key
    return [
        (f"error above, {own.unit}", lambda n: n.threshold * MEV if n.components else None, ".1f"),
        (own.many, lambda n: n.components, ".0f"),
        ("outliers", lambda n: n.outliers, ".0f"),
        ("outliers, %", lambda n: 100 * n.outliers / n.components if n.components else None, ".2f"),
        *_metrics(f"{key}_auc" + (" per_atom.force_auc" if own is FORCE else "")),
        ("in the top tenth, %", lambda n: None if n.found is None else 100 * n.found, ".1f"),
        *_metrics(f"{key}_spearman"),
    ]


def forces(numbers: Sequence[Numbers]) -> Html:
    return _table("Force components: errors, and σ as root mean square", numbers, FORCES)


def energies(numbers: Sequence[Numbers]) -> Html:
    caption = "Energies of structures: errors, σ, and the % within the intervals that should contain 68 and 95 %"
    return _table(caption, numbers, ENERGIES)


def stress(numbers: Sequence[Numbers]) -> Html:
    caption = "The six elements of the stress: errors, σ as root mean square, % of errors within the intervals"
    return _table(caption, [each for each in numbers if each.get("stress_mae") is not None], STRESS)


def novelty(numbers: Sequence[Numbers]) -> Html:
    caption = "Novelty: % beyond what was learned, and how well it finds atoms with large errors, beside σ"
    return _table(caption, numbers, NOVELTY)


def vectors(numbers: Sequence[Numbers]) -> Html | None:
    """Where covariances were asked for."""
    judged = [each for each in numbers if each.get("vector_mll") is not None]
    caption = "Forces as vectors: ln p of all forces of a frame, per vector, with covariances and with independent components; "
    caption += "energy score of a frame; % of force errors within the ellipsoids of their atoms"
    return _table(caption, judged, VECTORS) if judged else None


def calibration(numbers: Sequence[Numbers]) -> Html:
    caption = "{}: % of errors within the intervals that should contain 50 … 95 %; calibration errors"
    return _by_quantity(caption, numbers, calibration_columns)


def outliers(numbers: Sequence[Numbers]) -> Html:
    limit = f"{OUTLIER_MULTIPLE:g} times their MAE" if numbers[0].relative else words.outlier_limit(numbers[0])
    return _by_quantity(f"{{}} with an error above {limit}", numbers, outlier_columns)


def _by_quantity(caption: str, numbers: Sequence[Numbers], columns: Callable[[Quantity], list[Shown]]) -> Html:
    """One table of the sets that are judged by forces, one of those judged by energies."""
    tables = []
    for own in (FORCE, ENERGY):
        these = [each for each in numbers if each.quantity is own]
        if these:
            tables.append(_table(caption.format(own.many.capitalize()), these, columns(own)))
    return Html("".join(tables))


def species(sets: Sequence[Numbers]) -> Html | None:
    rows = []
    for each in sets:
        for name, atoms, *values in species_rows(each.result):
            cells = [_column([value * MEV], ".1f")[0] for value in values]
            rows.append([each.name, name, str(atoms), *cells, f"{values[0] / values[1]:.2f}" if values[1] else ABSENT])
    headings = ["data", "species", "atoms", "RMS error, meV/Å", "RMS σ, meV/Å", "epistemic part, meV/Å", "error / σ"]
    return table("Force components by species", headings, rows, words=(0, 1)) if rows else None


def diagnostics(posterior: Posterior) -> Html | None:
    """R-hat, effective sample size, drifts and temperatures, each with what it should be."""
    found = posterior.verdict
    if not found:
        return None
    agreement = "1; below 1.1 the chains agree; undefined with fewer than 20 draws per chain"
    lines = [
        ("R-hat of predicted forces", "r_hat_forces", ".3f", agreement),
        ("effective sample size, forces", "ess_forces", ".0f", "large: at least some tens per chain"),
        ("R-hat of the log posterior", "r_hat_log_posterior", ".3f", "1"),
        ("effective sample size, log posterior", "ess_log_posterior", ".0f", "large"),
        ("temperature of the momenta", "kinetic_temperature", ".3f", "the temperature of the run, usually 1"),
        ("heating by minibatches, at most", "temperature_rise_bound", ".3g", "well below 1"),
    ]
    rows = [
        [name, format(found[key], form) if isinstance(found.get(key), (int, float)) else ABSENT, right]
        for name, key, form, right in lines
    ]
    rows += _drifts(found.get("stationarity") or {})
    failed = found.get("failed_chains") or []
    rows.append(["chains abandoned", ", ".join(map(str, failed)) or "none", "none"])
    events = found.get("events") or []
    rows.append(["interventions of the guard", str(len(events)), "none or few"])
    return table("Diagnostics of the chains, without unit", ["quantity", "value", "expected"], rows, words=(0, 2))


def _drifts(found: dict[str, Any]) -> list[list[str]]:
    """Drifts over the ends of cycles, with their standard deviation in equilibrium; nothing where it is unknown."""
    if found.get("moving") is None:
        return []
    rows = [
        [
            "drift of u per cycle, nats",
            f"{found['potential_drift']:.4g}",
            f"0 ± {found['potential_drift_error']:.2g} (u itself scatters by {found['potential_scatter']:.3g})",
        ]
    ]
    if found["force_change_growth"] is not None:
        grown = f"{found['force_change_growth']:.3f} ± {found['force_change_growth_error']:.2g}"
        rows.append(["change of predicted forces per cycle, each relative to the one before", grown, "1"])
    for name, group in found["weights_by_group"].items():
        value = f"{group['last']:.3g}, {group['drift']:+.2g} per cycle" + (" (drifts)" if group["moving"] else "")
        rows.append([f"θ² per weight of {name}, in units of the prior", value, "constant"])
    return rows


def _table(caption: str, numbers: Sequence[Numbers], columns: list[Shown]) -> Html:
    # all k of a set together, in the order in which the sets came
    order = list(dict.fromkeys(n.name for n in numbers))
    ranked = sorted(numbers, key=lambda n: (order.index(n.name), n.k))
    cells = [_column([find(n) for n in ranked], form) for _, find, form in columns]
    rows = [[n.name, str(n.k), *row] for n, row in zip(ranked, zip(*cells))]
    return table(caption, ["data", "k", *(heading for heading, _, _ in columns)], rows)


def _column(values: Sequence[float | None], form: str) -> list[str]:
    """All with the same number of places; more than asked for where even the largest would lose its digits."""
    largest = max((abs(v) for v in values if v), default=0.0)
    places = int(form[1])
    if places and largest:
        places = min(max(places, 1 - floor(log10(largest))), 7)
    return [ABSENT if value is None else f"{value:.{places}f}".replace("-", "−") for value in values]
