"""Predictions and labels as flat arrays: the input of every metric, table and figure."""

import warnings
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from equibayes.data.dataset import Dataset
from equibayes.data.resident import has_stress
from equibayes.data.structures import Structure
from equibayes.errors import InputError, InputWarning
from equibayes.evaluation.multivariate import Vectors, vectors_of
from equibayes.plural import counted
from equibayes.posterior.calibration import Calibration
from equibayes.posterior.file import Posterior
from equibayes.posterior.marks import frame_mark
from equibayes.posterior.predict import predict_each
from equibayes.posterior.prediction import Prediction
from equibayes.posterior.seen import marks_of, unseen
from equibayes.posterior.sigma import Sigma
from equibayes.posterior.stress import six_elements


def no_stress() -> np.ndarray:
    return np.full((0, 6), np.nan)


@dataclass(frozen=True, eq=False)
class Evaluated:
    """One data set under one posterior with k samples.  eV, eV/Å, eV/Å³.  F frames with A atoms in all.

    energy_true, energy_mean, energy_sigma, energy_epistemic, energy_aleatoric  [F]; true is NaN without label
    force_true, force_mean, force_sigma, force_epistemic, force_aleatoric       [A, 3]; true is NaN without label
    stress_true, stress_mean, stress_sigma, stress_epistemic, stress_aleatoric  [F, 6] xx, yy, zz, yz, xz, xy; true is
                                NaN without label, all without volume; [0, 6] where no frame has a label
    number [A] atomic numbers;  frame [A] which frame an atom belongs to
    novelty [A]                 how far each atom is from all that was learned; None: not known
    note                        about frames that the posterior learned from
    vectors                     what the covariances of the forces say; None where they were not asked for
    """

    name: str
    k: int
    structures: Sequence[Structure]
    energy_true: np.ndarray
    energy_mean: np.ndarray
    energy_sigma: np.ndarray
    energy_epistemic: np.ndarray
    energy_aleatoric: np.ndarray
    force_true: np.ndarray
    force_mean: np.ndarray
    force_sigma: np.ndarray
    force_epistemic: np.ndarray
    force_aleatoric: np.ndarray
    number: np.ndarray
    frame: np.ndarray
    note: str = ""
    stress_true: np.ndarray = field(default_factory=no_stress)
    stress_mean: np.ndarray = field(default_factory=no_stress)
    stress_sigma: np.ndarray = field(default_factory=no_stress)
    stress_epistemic: np.ndarray = field(default_factory=no_stress)
    stress_aleatoric: np.ndarray = field(default_factory=no_stress)
    novelty: np.ndarray | None = None
    vectors: Vectors | None = None

    @property
    def energy_error(self) -> np.ndarray:
        """[F] eV, prediction minus label."""
        return self.energy_mean - self.energy_true

    @property
    def force_error(self) -> np.ndarray:
        """[A, 3] eV/Å, prediction minus label."""
        return self.force_mean - self.force_true

    @property
    def stress_error(self) -> np.ndarray:
        """[F, 6] eV/Å³, prediction minus label."""
        return self.stress_mean - self.stress_true

    @property
    def frame_novelty(self) -> np.ndarray | None:
        """[F], the largest of each frame's atoms."""
        if self.novelty is None:
            return None
        largest = np.zeros(len(self.structures))
        np.maximum.at(largest, self.frame, self.novelty)
        return largest

    @property
    def energies_adrift(self) -> int:
        """Frames whose label is left out: their energy is defined only up to a constant (see data/reference.py)."""
        return sum(s.energy is not None and np.isnan(e) for s, e in zip(self.structures, self.energy_true))


def evaluate(
    posterior: Posterior, data: Dataset, *, device: torch.device | str | None = None, include_training: bool = False
) -> Evaluated:
    """Predict the frames of a data set; missing labels become NaN.

    include_training  also the frames that the posterior learned from, which are otherwise left out with a warning
    """
    frames, note = to_evaluate(marks_of(posterior), data, include_training)
    if note and not include_training:
        warnings.warn(f"{data.name}: {note}", InputWarning, stacklevel=2)
    (result,) = evaluate_each(posterior, frames, [len(posterior)], device=device)
    return replace(result, note=note)


def to_evaluate(learned: Collection[str], data: Dataset, include_training: bool = False) -> tuple[Dataset, str]:
    """The frames to evaluate, and a note about those that were learned from; learned: their marks."""
    if not include_training:
        return unseen(learned, data, "; or add --include-training (include_training=True)")
    count = sum(frame_mark(structure) in learned for structure in data)
    return (
        data,
        f"includes {counted(count, 'frame')} that the posterior learned from, where its errors are smaller"
        * bool(count),
    )


def evaluate_each(
    posterior: Posterior,
    data: Dataset,
    ks: Sequence[int],
    *,
    device: torch.device | str | None = None,
    progress: Callable[[Iterable[Structure]], Iterable[Structure]] = iter,
    covariance: bool = False,
) -> list[Evaluated]:
    """All frames with the first k samples, for each k of `ks`, in one pass; `progress` wraps the frames for display.

    covariance: with what the covariances of the forces say
    """
    check_labelled(data)
    predictions = list(predict_each(posterior, progress(data.structures), ks, covariance=covariance, device=device))
    return [collect(data.name, k, data.structures, each) for k, each in zip(ks, zip(*predictions))]


def check_labelled(data: Dataset) -> None:
    """An `InputError` where there are no labels to compare predictions with."""
    if not len(data):
        raise InputError(f"{data.name}: holds no frames to evaluate; name others")
    if not data.labelled:
        remedy = "name their keys (--energy-key, --forces-key)"
        raise InputError(f"{data.name}: has neither energies nor forces to compare with; {remedy}")


def collect(name: str, k: int, structures: Sequence[Structure], predictions: Sequence[Prediction]) -> Evaluated:
    """Combine predictions and labels."""
    parts = {"mean": "", "sigma": "_std", "epistemic": "_epistemic", "aleatoric": "_aleatoric"}
    predicted: dict[str, Any] = {}
    for part, end in parts.items():
        predicted[f"energy_{part}"] = np.array([getattr(p, f"energy{end}") for p in predictions])
        predicted[f"force_{part}"] = np.concatenate([getattr(p, f"forces{end}") for p in predictions])
    if has_stress(structures):
        predicted["stress_true"] = _six(s.stress_label for s in structures)
        predicted |= {
            f"stress_{part}": _six(getattr(p, f"stress{end}") for p in predictions) for part, end in parts.items()
        }
    # an energy that is defined only up to a constant cannot be compared with a label
    energies = [s.energy if p.energy_known else None for s, p in zip(structures, predictions)]
    forces = [np.full((len(s), 3), np.nan) if s.forces is None else s.forces for s in structures]
    novelty = [p.novelty for p in predictions if p.novelty is not None]
    return Evaluated(
        name=name,
        k=k,
        structures=structures,
        energy_true=np.array(energies, dtype=np.float64),
        force_true=np.concatenate(forces),
        number=np.concatenate([s.numbers for s in structures]),
        frame=np.repeat(np.arange(len(structures)), [len(s) for s in structures]),
        novelty=np.concatenate(novelty) if novelty else None,
        vectors=vectors_of(structures, predictions),
        **predicted,
    )


def _six(stresses: Iterable[np.ndarray | None]) -> np.ndarray:
    """[F, 6] from [3, 3] each; NaN where there is none."""
    return np.array([np.full(6, np.nan) if each is None else six_elements(each) for each in stresses])


def recalibrated(result: Evaluated, calibration: Calibration) -> Evaluated:
    """The same result with a calibration applied, without predicting again and without covariances."""
    energy = calibration.energy.apply(Sigma(result.energy_epistemic, result.energy_aleatoric), result.k)
    forces = calibration.forces.apply(Sigma(result.force_epistemic, result.force_aleatoric), result.k, result.number)
    stress = calibration.stress.apply(Sigma(result.stress_epistemic, result.stress_aleatoric), result.k)
    return replace(
        result,
        vectors=None,
        stress_sigma=stress.total,
        stress_epistemic=stress.epistemic,
        stress_aleatoric=stress.aleatoric,
        energy_sigma=energy.total,
        energy_epistemic=energy.epistemic,
        energy_aleatoric=energy.aleatoric,
        force_sigma=forces.total,
        force_epistemic=forces.epistemic,
        force_aleatoric=forces.aleatoric,
    )
