"""A posterior as an ASE calculator: energies, forces and stress with their uncertainties.

    atoms.calc = equibayes.Calculator("ethanol.posterior")
    atoms.get_forces()                                # eV/Å, the mean over the samples
    atoms.calc.results["forces_uncertainty"]          # [n, 3] eV/Å, standard deviations

| result                                                 | shape  | unit  |                                        |
|--------------------------------------------------------|--------|-------|----------------------------------------|
| energy, free_energy                                    |        | eV    | the same                               |
| forces                                                 | [n, 3] | eV/Å  |                                        |
| stress                                                 | [6]    | eV/Å³ | Voigt, ASE's sign; periodic cells only |
| energy_uncertainty, energy_epistemic, energy_aleatoric |        | eV    | total, spread of the samples, noise    |
| forces_uncertainty, forces_epistemic, forces_aleatoric | [n, 3] | eV/Å  |                                        |
| stress_uncertainty, stress_epistemic                   | [6]    | eV/Å³ | equal: stress has no noise             |
| energy_ensemble, forces_ensemble, stress_ensemble      | …, k   |       | with `members=True`: samples last      |

All σ except that of stress are calibrated if the posterior file is.
"""

from collections.abc import Sequence
from copy import copy
from pathlib import Path
from typing import Any

import numpy as np
from ase import Atoms
from ase.calculators.calculator import Calculator as AseCalculator
from ase.calculators.calculator import PropertyNotImplementedError, all_changes
from ase.outputs import Properties, all_outputs

from equibayes.data.structures import Structure, full_to_voigt
from equibayes.errors import InputError
from equibayes.posterior.file import Posterior, load
from equibayes.posterior.predict import Prediction
from equibayes.simulate.evaluator import Evaluator

SKIN = 0.5
"""Å beyond the cutoff for which neighbours are stored."""

_MEANS = ("energy", "free_energy", "forces", "stress")
_SIGMAS = tuple(f"{what}_{part}" for what in ("energy", "forces") for part in ("uncertainty", "epistemic", "aleatoric"))
_STRESS_SIGMAS = ("stress_uncertainty", "stress_epistemic")
_MEMBERS = ("energy_ensemble", "forces_ensemble", "stress_ensemble")


class Calculator(AseCalculator):
    """See the table at the top of this file."""

    ignored_changes = {"initial_charges", "initial_magmoms"}  # noqa: RUF012 (as declared by ASE)

    def __init__(
        self,
        posterior: str | Path | Posterior,
        *,
        device: str | None = None,
        dtype: str | None = None,
        k: int | None = None,
        members: bool = False,
        skin: float = SKIN,
    ) -> None:
        """posterior  a file, or a loaded posterior
        device     "cpu" or "cuda" (default: cuda if there is one)
        dtype      "float32" or "float64" (default: that of the network)
        k          use the first k samples (default: all)
        members    also return the result of every sample
        skin       Å beyond the cutoff for which neighbours are stored; 0 searches them at each step
        """
        super().__init__()
        loaded = posterior if isinstance(posterior, Posterior) else load(posterior)
        self.posterior = loaded if k is None else loaded.subset(k)
        self.device, self.dtype, self.members, self.skin = device or default_device(), dtype, members, skin
        # per instance: ASE's list is shared by all calculators of a class
        self.implemented_properties = [*_MEANS, *_SIGMAS, *_STRESS_SIGMAS, *(_MEMBERS if members else ())]
        self._evaluator = self._prepare()

    @property
    def fused(self) -> bool:
        """Whether the fused engine is used, on a GPU."""
        return self._evaluator.ready.fused

    def forget(self) -> None:
        """Discard results and neighbour lists."""
        self._evaluator.forget()
        self.reset()

    def calculate(
        self,
        atoms: Atoms | None = None,
        properties: Sequence[str] = ("energy",),
        system_changes: Sequence[str] = tuple(all_changes),
    ) -> None:
        """Called by ASE; everything is computed at once."""
        super().calculate(atoms, properties, system_changes)
        (structure,) = _structures([self.atoms])
        (prediction,) = self._evaluator([structure], members=self.members)
        self.results = results_of(prediction)
        if any("stress" in name for name in properties) and "stress" not in self.results:
            raise PropertyNotImplementedError("stress needs a cell that is periodic in all three directions")

    def evaluate_many(self, replicas: Sequence[Atoms]) -> list[dict[str, Any]]:
        """Results of several replicas, as in the table, in as few passes as memory allows.

        The i-th replica keeps its neighbour list from call to call.
        """
        return [results_of(each) for each in self._evaluator(_structures(replicas), members=self.members)]

    def export_properties(self) -> Properties:
        """The properties known to ASE, whose own method raises on the uncertainties."""
        return Properties({name: value for name, value in self.results.items() if name in all_outputs})

    def _prepare(self) -> Evaluator:
        return Evaluator(self.posterior, self.device, self.dtype, self.skin)

    def __deepcopy__(self, memo: dict[int, Any]) -> "Calculator":
        """Weights are shared, since they never change; results and neighbour lists are not."""
        twin = copy(self)
        twin.atoms = None if self.atoms is None else self.atoms.copy()
        twin.results = {name: np.copy(v) if isinstance(v, np.ndarray) else v for name, v in self.results.items()}
        twin.parameters = copy(self.parameters)
        twin.implemented_properties = list(self.implemented_properties)
        twin._evaluator = self._evaluator.twin()
        return twin

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__.copy()
        del state["_evaluator"]  # rebuilt when unpickled
        state.pop("get_spin_polarized", None)  # a bound method set by ASE
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._evaluator = self._prepare()


def results_of(prediction: Prediction) -> dict[str, Any]:
    """A prediction under the names of the table at the top of this file."""
    results: dict[str, Any] = {"energy": prediction.energy, "free_energy": prediction.energy}
    results["forces"] = prediction.forces
    for ours, theirs in (("std", "uncertainty"), ("epistemic", "epistemic"), ("aleatoric", "aleatoric")):
        results[f"energy_{theirs}"] = getattr(prediction, f"energy_{ours}")
        results[f"forces_{theirs}"] = getattr(prediction, f"forces_{ours}")
    if prediction.stress is not None and prediction.stress_std is not None:
        results["stress"] = full_to_voigt(prediction.stress)
        for name in _STRESS_SIGMAS:
            results[name] = full_to_voigt(prediction.stress_std)
    if prediction.members is not None:
        results["energy_ensemble"] = prediction.members["energy"]
        results["forces_ensemble"] = np.moveaxis(prediction.members["forces"], 0, -1)
        if "stress" in prediction.members:
            results["stress_ensemble"] = np.stack([full_to_voigt(s) for s in prediction.members["stress"]], axis=-1)
    return results


def _structures(replicas: Sequence[Atoms | None]) -> list[Structure]:
    """Geometry only; copied, since neighbour lists keep it while the atoms move."""
    structures = []
    for atoms in replicas:
        if atoms is None or len(atoms) == 0:
            raise InputError("no atoms to calculate")
        structures.append(
            Structure(atoms.numbers.copy(), atoms.positions.copy(), atoms.cell.array.copy(), atoms.pbc.copy())
        )
    return structures


def default_device() -> str:
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"
