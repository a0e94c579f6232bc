"""A posterior as an ASE calculator: energies, forces and stress with their uncertainties.

    atoms.calc = equibayes.Calculator("ethanol.posterior")
    atoms.get_forces()                                # eV/Å, the mean over the samples
    atoms.calc.results["forces_uncertainty"]          # [n, 3] eV/Å, standard deviations

| result                                                        | shape     | unit  |                                            |
|---------------------------------------------------------------|-----------|-------|--------------------------------------------|
| energy, free_energy                                           |           | eV    | the same                                   |
| forces                                                        | [n, 3]    | eV/Å  |                                            |
| stress                                                        | [6]       | eV/Å³ | Voigt, ASE's sign; periodic cells only     |
| energy_uncertainty, energy_epistemic, energy_aleatoric        |           | eV    | total, spread of the samples, noise        |
| forces_uncertainty, forces_epistemic, forces_aleatoric        | [n, 3]    | eV/Å  |                                            |
| stress_uncertainty, stress_epistemic                          | [6]       | eV/Å³ | equal: the model states no noise of stress |
| energy_ensemble [k], forces_ensemble [n, 3, k], stress_ensemble [6, k] | | | with `members=True`: every sample           |

All σ are calibrated where the posterior file is (but stress, which no calibration knows).
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
"""Å beyond the cutoff to which neighbours are remembered."""

_MEANS = ("energy", "free_energy", "forces", "stress")
_SIGMAS = tuple(f"{what}_{part}" for what in ("energy", "forces") for part in ("uncertainty", "epistemic", "aleatoric"))
_STRESS_SIGMAS = ("stress_uncertainty", "stress_epistemic")
_MEMBERS = ("energy_ensemble", "forces_ensemble", "stress_ensemble")


class Calculator(AseCalculator):
    """See the table at the top of this file."""

    ignored_changes = {"initial_charges", "initial_magmoms"}  # noqa: RUF012 (declared so by ASE)

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
        """posterior  a file, or one already loaded
        device     "cpu" or "cuda" (default: cuda if there is one)
        dtype      "float32" or "float64" (default: that of the network)
        k          use the first k samples (default: all)
        members    also give every sample's result
        skin       Å beyond the cutoff to which neighbours are remembered; 0 searches them anew at each step
        """
        super().__init__()
        loaded = posterior if isinstance(posterior, Posterior) else load(posterior)
        self.posterior = loaded if k is None else loaded.subset(k)
        self.device, self.dtype, self.members, self.skin = device or default_device(), dtype, members, skin
        # a list of its own: ASE's is shared by all calculators of a class
        self.implemented_properties = [*_MEANS, *_SIGMAS, *_STRESS_SIGMAS, *(_MEMBERS if members else ())]
        self._evaluator = self._prepare()

    @property
    def fused(self) -> bool:
        """Whether the fused engine evaluate, on a GPU."""
        return self._evaluator.ready.fused

    def forget(self) -> None:
        """Forget results and neighbours."""
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
        """Results, as in the table, of several atoms objects in as few passes as memory allows.

        The i-th keeps its own neighbour list from call to call, so that replicas may move on together.
        """
        return [results_of(each) for each in self._evaluator(_structures(replicas), members=self.members)]

    def export_properties(self) -> Properties:
        """Those that ASE knows; its own would stop at the uncertainties."""
        return Properties({name: value for name, value in self.results.items() if name in all_outputs})

    def _prepare(self) -> Evaluator:
        return Evaluator(self.posterior, self.device, self.dtype, self.skin)

    def __deepcopy__(self, memo: dict[int, Any]) -> "Calculator":
        """Weights, which nobody changes, are shared; results and neighbour lists are not."""
        twin = copy(self)
        twin.atoms = None if self.atoms is None else self.atoms.copy()
        twin.results = {name: np.copy(v) if isinstance(v, np.ndarray) else v for name, v in self.results.items()}
        twin.parameters = copy(self.parameters)
        twin.implemented_properties = list(self.implemented_properties)
        twin._evaluator = self._evaluator.twin()
        return twin

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__.copy()
        del state["_evaluator"]  # made again where it is unpickled
        state.pop("get_spin_polarized", None)  # a bound method that ASE puts there
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
    """Geometry alone: positions are copied, for a list remembers them while the atoms move on."""
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
