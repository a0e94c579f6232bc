"""What covariances of forces are worth on frames that nothing was learned from."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.stats import chi2

from equibayes.data import Dataset
from equibayes.data.structures import Structure
from equibayes.evaluation.multivariate import energy_score, log_likelihood, without
from equibayes.posterior.force_covariance import rigid_of
from equibayes.posterior.prediction import Prediction
from studies.covariance.fragments import projections

LEVELS = {"68": 0.6827, "95": 0.9545}
WIDTHS = {"68": 1.0, "95": 2.0}


def measured(judged: Dataset, predictions: Sequence[Prediction], width: float | None = None) -> dict[str, Any]:
    """By form of the covariance: independent components, single atoms, all of it.

    width: of intervals that hold 68 % of the force components, in σ; None: 1
    """
    widths = WIDTHS if width is None else WIDTHS | {"68": width}
    forms: dict[str, list[dict[str, Any]]] = {"independent": [], "atoms": [], "full": []}
    for structure, prediction in zip(judged, predictions):
        for form, matrix in covariances(prediction).items():
            forms[form].append(of_one(structure, prediction.forces, matrix, widths))
    error = np.concatenate([p.forces - s.forces for s, p in zip(judged, predictions)])
    return {
        "force_mae": 1e3 * float(np.abs(error).mean()),
        "force_rmse": 1e3 * float(np.sqrt(np.square(error).mean())),
        "force_sigma": 1e3 * float(np.sqrt(np.mean([np.square(p.forces_std).mean() for p in predictions]))),
        "forms": {form: _mean(rows) for form, rows in forms.items()},
    }


def covariances(prediction: Prediction) -> dict[str, np.ndarray]:
    """[3n, 3n] each."""
    assert prediction.forces_covariance is not None
    count = prediction.forces.size
    whole = prediction.forces_covariance.total.reshape(count, count)
    same_atom = np.kron(np.eye(count // 3), np.ones((3, 3)))
    return {"independent": np.diag(np.square(prediction.forces_std).ravel()), "atoms": whole * same_atom, "full": whole}


def of_one(
    structure: Structure, forces: np.ndarray, matrix: np.ndarray, widths: dict[str, float] = WIDTHS
) -> dict[str, Any]:
    """Per vector: ln likelihood, also without net force and torque; which ellipsoids and projections hold the error."""
    error, count = forces - structure.forces, len(structure)
    rigid, _ = rigid_of(structure, 1e-3)
    own = np.einsum("iaib->iab", matrix.reshape(count, 3, count, 3))
    distance = np.einsum("ia,iab,ib->i", error, np.linalg.inv(own), error)
    inner_error, inner = without(rigid, error.ravel(), matrix) if rigid is not None else (error.ravel(), matrix)
    found: dict[str, Any] = {
        "ln_p": log_likelihood(error.ravel(), matrix) / count,
        "ln_p_inner": log_likelihood(inner_error, inner) / count,
        "energy_score": energy_score(error.ravel(), matrix),
        **{f"ellipsoids_{name}": distance <= chi2.ppf(level, 3) for name, level in LEVELS.items()},
    }
    for what, weights in projections(structure).items():
        if len(weights):
            flat = weights.reshape(len(weights), -1)
            z = np.abs(flat @ error.ravel()) / np.sqrt(np.einsum("mi,ij,mj->m", flat, matrix, flat, optimize=True))
            for name, width in widths.items():
                found[f"{what}_{name}"] = z <= width
    return found


def _mean(rows: list[dict[str, Any]]) -> dict[str, float]:
    """Over frames, atoms or projections."""
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: float(np.concatenate([np.atleast_1d(r[name]) for r in rows if name in r]).mean()) for name in names}
