"""Every metric of an evaluated data set, as a nested dictionary that can be written as JSON.

    {"data": {NAME: {"8": {"force_mae": …, …,
                           "per_atom": {…}, "per_species": {"H": {…}}, "kcal_mol": {…}, "reasons": {…}}}}, …}

`force_…` is taken over force components, `energy_…` over whole structures and, where there are labels, `stress_…` over
the six elements of the stress, all in eV and Å; `gpa` repeats what of these has a unit, in GPa.  `per_atom` takes the
error of an atom as a vector (and that of an energy divided by its atoms), `per_species` splits the components by
element, `kcal_mol` repeats what has a unit in the paper's.  `novel_…_share` are the frames and atoms beyond what was
learned (novelty above 1); `novelty_auc` and `novelty_spearman` compare the novelty of an atom with its error.
`vector_…`, on request, judge covariances: ln p of the forces of a frame per vector (with them and with independent
components), the energy score of a frame, and the share of force errors within the ellipsoids of their atoms.  A metric
without a value is null, and `reasons` says why.  `note` tells of frames that the posterior learned from, if there are
any.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from equibayes.data.elements import symbol
from equibayes.evaluation import calibration_metrics as calibration
from equibayes.evaluation import density, metrics
from equibayes.evaluation.evaluated import Evaluated
from equibayes.evaluation.metrics import OUTLIER_MULTIPLE, Undefined
from equibayes.evaluation.multivariate import Vectors
from equibayes.posterior.novelty import NO_NOVELTY, NOVELTY
from equibayes.units import GPA, KCAL_PER_MOL
from equibayes.version import __version__

LEVELS = (50, 68, 90, 95)
"""Nominal coverages in percent."""
Values = dict[str, Any]
Metric = Callable[[], float]
# how a metric changes when errors are divided by the unit c: the rest have no unit
_CONVERT: dict[str, Callable[[float, float], float]] = {
    **dict.fromkeys(("mae", "rmse", "crps", "sharpness", "median_sigma"), lambda value, c: value / c),
    "mll": lambda value, c: value + math.log(c),
    "nece": lambda value, c: value * c,
}


@dataclass(frozen=True)
class Limits:
    """Errors above which there is an outlier: of a force component and a force vector, eV/Å, of an energy, eV, and of
    an element of the stress, eV/Å³.
    """

    force: float
    vector: float
    energy: float
    stress: float

    @classmethod
    def of(
        cls, force_error: np.ndarray, energy_error: np.ndarray, stress_error: np.ndarray, given: float | None
    ) -> "Limits":
        """From errors [A, 3], [F] and [F, 6], or one number given for all but the stress."""
        vector = np.linalg.norm(force_error, axis=1)
        force, whole, energy = (metrics.outlier_threshold(each, given) for each in (force_error, vector, energy_error))
        return cls(force, whole, energy, metrics.outlier_threshold(stress_error))


def measure_all(results: Sequence[Evaluated], *, threshold: float | None = None, about: Values) -> Values:
    """Metrics of several data sets and numbers of samples; `about` says what was evaluated.

    threshold  as of `measure`
    """
    data: dict[str, dict[str, Values]] = {}
    for result in results:
        data.setdefault(result.name, {})[str(result.k)] = measure(result, threshold)
    return {
        "equibayes": __version__,
        **about,
        "units": {"energy": "eV", "force": "eV/Å", "stress": "eV/Å³", "kcal_mol": "kcal/mol and kcal/(mol Å)"},
        "threshold": threshold,
        "threshold_rule": f"{OUTLIER_MULTIPLE:g} x MAE of each data set" if threshold is None else "the same for all",
        "bin_width": density.BIN_WIDTH,
        "data": data,
    }


def measure(result: Evaluated, threshold: float | None = None) -> Values:
    """Metrics of one data set at one k.

    threshold  error above which a force component (eV/Å) or an energy (eV) is an outlier, such as the paper's
               `metrics.OUTLIER_THRESHOLD`; None: 3 times the MAE, of each quantity on this data set
    """
    known = np.isfinite(result.force_true).all(1)  # a prediction that is not finite is kept, and reported as a reason
    error, sigma, number = result.force_error[known], result.force_sigma[known], result.number[known]
    labelled = np.isfinite(result.energy_true)
    energy_error, energy_sigma = result.energy_error[labelled], result.energy_sigma[labelled]
    with_stress = np.isfinite(result.stress_true).all(1)
    stress_error, stress_sigma = result.stress_error[with_stress], result.stress_sigma[with_stress]
    limits = Limits.of(error, energy_error, stress_error, threshold)
    values: Values = {
        "k": result.k,
        "n_frames": len(result.structures),
        "n_atoms": len(result.number),
        "n_frames_with_energy": int(labelled.sum()),
        "n_atoms_with_forces": int(known.sum()),
        "force_threshold": limits.force if np.isfinite(limits.force) else None,
        "energy_threshold": limits.energy if np.isfinite(limits.energy) else None,
    }
    reasons: dict[str, str] = {}
    _note(values, reasons, component_metrics("force", error, sigma, limits.force))
    _note(values, reasons, component_metrics("energy", energy_error, energy_sigma, limits.energy))
    _note(values, reasons, _shares(result, known, labelled, limits))
    if with_stress.any():
        values["n_frames_with_stress"] = int(with_stress.sum())
        values["stress_threshold"] = limits.stress if np.isfinite(limits.stress) else None
        _note(values, reasons, component_metrics("stress", stress_error, stress_sigma, limits.stress))
        _note(values, reasons, _stress_shares(result, with_stress, limits))
        values["gpa"] = in_unit(values, GPA, "stress")
    _note(values, reasons, _novelty(result, known, limits))
    if result.vectors is not None:
        _note(values, reasons, _vectors(result.vectors))
    if not labelled.any() and any(s.energy is not None for s in result.structures):
        why = "energies of these molecules are known only up to a constant: none was in the training set"
        reasons.update({key: why for key in reasons if key.startswith("energy_")})
    values["per_atom"] = _per_atom(result, error, sigma, labelled, limits)
    values["per_species"] = {
        symbol(int(z)): _plain(component_metrics("force", error[number == z], sigma[number == z], limits.force))
        | {"n_atoms": int((number == z).sum())}
        for z in np.unique(number)
    }
    values["kcal_mol"] = in_unit(values, KCAL_PER_MOL, "force", "energy")
    values["reasons"] = reasons
    if result.note:
        values["note"] = result.note
    return values


def component_metrics(kind: str, error: np.ndarray, sigma: np.ndarray, threshold: float) -> dict[str, Metric]:
    """Metrics of errors and their σ, of any shape; keys begin with `kind`."""
    return {
        f"{kind}_mae": lambda: metrics.mean_absolute_error(error),
        f"{kind}_rmse": lambda: metrics.root_mean_square_error(error),
        f"{kind}_mll": lambda: metrics.mean_log_likelihood(error, sigma),
        f"{kind}_auc": lambda: metrics.outlier_auc(error, sigma, threshold),
        f"{kind}_ece": lambda: density.expected_calibration_error(error, sigma),
        f"{kind}_nece": lambda: density.normalized_calibration_error(error, sigma),
        f"{kind}_miscalibration_area": lambda: calibration.miscalibration_area(calibration.places(error, sigma)),
        f"{kind}_ence": lambda: calibration.ence(error, sigma),
        f"{kind}_crps": lambda: metrics.crps(error, sigma),
        f"{kind}_spearman": lambda: metrics.spearman(error, sigma),
        f"{kind}_sharpness": lambda: metrics.sharpness(sigma),
        f"{kind}_median_sigma": lambda: metrics.median_sigma(sigma),
        f"{kind}_most_uncertain_tenth": lambda: metrics.error_of_most_uncertain(error, sigma),
        **{
            f"{kind}_coverage_{level}": partial(metrics.interval_coverage, error, sigma, level / 100)
            for level in LEVELS
        },
    }


def in_unit(values: Mapping[str, Any], unit: float, *quantities: str) -> Values:
    """Those metrics of some quantities that have a unit, with errors in units of `unit` eV (or eV/Å, eV/Å³)."""
    converted: Values = {}
    for key, value in values.items():
        quantity, _, kind = key.partition("_")
        if quantity in quantities and kind in _CONVERT:
            converted[key] = None if value is None else _CONVERT[kind](value, unit)
    return converted


def _outlier_share(error: np.ndarray, threshold: float) -> float:
    if not error.size:
        raise Undefined("no labels")
    return float((~(np.abs(error) <= threshold)).mean())


def _epistemic_share(part: np.ndarray, whole: np.ndarray) -> float:
    if not np.any(whole):
        raise Undefined("σ is 0")
    return (metrics.sharpness(part) / metrics.sharpness(whole)) ** 2


def _shares(result: Evaluated, known: np.ndarray, labelled: np.ndarray, limits: Limits) -> dict[str, Metric]:
    return {
        "force_outlier_share": lambda: _outlier_share(result.force_error[known], limits.force),
        "energy_outlier_share": lambda: _outlier_share(result.energy_error[labelled], limits.energy),
        "force_epistemic_share": lambda: _epistemic_share(result.force_epistemic, result.force_sigma),
        "energy_epistemic_share": lambda: _epistemic_share(result.energy_epistemic, result.energy_sigma),
    }


def _stress_shares(result: Evaluated, labelled: np.ndarray, limits: Limits) -> dict[str, Metric]:
    epistemic, whole = result.stress_epistemic[labelled], result.stress_sigma[labelled]
    return {
        "stress_outlier_share": lambda: _outlier_share(result.stress_error[labelled], limits.stress),
        "stress_epistemic_share": lambda: _epistemic_share(epistemic, whole),
    }


def _novelty(result: Evaluated, known: np.ndarray, limits: Limits) -> dict[str, Metric]:
    """Of novelty itself, and of the lengths of force errors in its light."""

    def values(of: np.ndarray | None) -> np.ndarray:
        if of is None:
            raise Undefined(NO_NOVELTY)
        return of

    length = np.linalg.norm(result.force_error[known], axis=1)
    return {
        "novel_frame_share": lambda: float((values(result.frame_novelty) >= NOVELTY[0]).mean()),
        "novel_atom_share": lambda: float((values(result.novelty) >= NOVELTY[0]).mean()),
        "novelty_auc": lambda: metrics.outlier_auc(length, values(result.novelty)[known], limits.vector),
        "novelty_spearman": lambda: metrics.spearman(length, values(result.novelty)[known]),
    }


def _vectors(found: Vectors) -> dict[str, Metric]:
    """Of covariances: the forces of a frame as one vector, and that of an atom."""
    known = np.isfinite(found.log_likelihood)

    def mean(of: np.ndarray) -> float:
        if not known.any():
            raise Undefined("no labels")
        return float(of[known].mean())

    return {
        "vector_mll": lambda: mean(found.log_likelihood),
        "vector_mll_independent": lambda: mean(found.independent),
        "vector_energy_score": lambda: mean(found.energy_score),
        **{f"vector_coverage_{level}": partial(found.coverage, level / 100) for level in LEVELS},
    }


def _per_atom(result: Evaluated, error: np.ndarray, sigma: np.ndarray, labelled: np.ndarray, limits: Limits) -> Values:
    """Forces as vectors: length of the error against √(σx² + σy² + σz²); energies divided by the number of atoms."""
    length, width = np.linalg.norm(error, axis=1), np.linalg.norm(sigma, axis=1)
    size = np.bincount(result.frame, minlength=len(result.energy_true))[labelled]
    shared = result.energy_error[labelled] / size
    place = lambda: calibration.places_of_vectors(error, sigma)  # noqa: E731
    values = _plain(
        {
            "force_mae": lambda: metrics.mean_absolute_error(length),
            "force_rmse": lambda: metrics.root_mean_square_error(length),
            "force_mll": lambda: 3 * metrics.mean_log_likelihood(error, sigma),
            "force_auc": lambda: metrics.outlier_auc(length, width, limits.vector),
            "force_spearman": lambda: metrics.spearman(length, width),
            "force_miscalibration_area": lambda: calibration.miscalibration_area(place()),
            "energy_mae": lambda: metrics.mean_absolute_error(shared),
            "energy_rmse": lambda: metrics.root_mean_square_error(shared),
        }
    )
    levels = np.array(LEVELS) / 100
    shares = _attempt(lambda: calibration.calibration_curve(place(), levels))[0]
    for number, level in enumerate(LEVELS):
        values[f"force_coverage_{level}"] = None if shares is None else float(shares[number])
    return values


def _note(values: Values, reasons: dict[str, str], wanted: Mapping[str, Metric]) -> None:
    for key, metric in wanted.items():
        values[key], reason = _attempt(metric)
        if reason:
            reasons[key] = reason


def _plain(wanted: Mapping[str, Metric]) -> Values:
    return {key: _attempt(metric)[0] for key, metric in wanted.items()}


def _attempt(metric: Callable[[], Any]) -> tuple[Any, str]:
    try:
        return metric(), ""
    except Undefined as undefined:
        return None, str(undefined)
