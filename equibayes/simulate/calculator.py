"""A posterior as an ASE calculator: energies, forces and stress with their uncertainties.

    atoms.calc = equibayes.Calculator("ethanol.posterior")
    atoms.get_forces()                                # eV/Å, the mean over the samples
    atoms.calc.results["forces_uncertainty"]          # [n, 3] eV/Å, standard deviations

| result                             | shape  | unit  |                                                        |
|------------------------------------|--------|-------|--------------------------------------------------------|
| energy, free_energy                |        | eV    | equal                                                  |
| energies                           | [n]    | eV    | per atom; on request, `atoms.get_potential_energies()` |
| energy_known                       |        |       | False: defined only up to a constant                   |
| forces                             | [n, 3] | eV/Å  |                                                        |
| stress                             | [6]    | eV/Å³ | Voigt, ASE's sign; periodic cells only                 |
| energy_std, _epistemic, _aleatoric |        | eV    | total, spread of the samples, noise                    |
| forces_std, _epistemic, _aleatoric | [n, 3] | eV/Å  |                                                        |
| stress_std, _epistemic, _aleatoric | [6]    | eV/Å³ | noise 0 where the posterior did not learn stress       |
| pressure_std, _epistemic, _alea…   |        | eV/Å³ | σ of −(Sxx + Syy + Szz)/3                              |
| forces_covariance                  | n3n3   | eV²/Å² | with `covariance=True`: [n, 3, n, 3]                  |
| energy_, forces_, stress_ensemble  | …, k   |       | with `members=True`: samples last                      |
| novelty                            | [n]    |       | per atom: 1 is the edge of what was learned            |
| trust_level                        |        |       | the state of trust.py                                  |
| max_devi_f                         |        | eV/Å  | with trust levels: the largest deviation               |

Files of early versions have no novelty (`equibayes calibrate --novelty` adds it); without it, `trust_level` needs trust
levels.  `energy_uncertainty`, `forces_uncertainty` and `stress_uncertainty` are other names of `*_std`.
All σ are calibrated if the posterior file is.
"""

import warnings
from collections.abc import Sequence
from copy import copy
from pathlib import Path
from typing import Any

import numpy as np
from ase import Atoms
from ase.calculators.calculator import Calculator as AseCalculator
from ase.calculators.calculator import PropertyNotImplementedError, all_changes
from ase.outputs import Properties, all_outputs

from equibayes.data.stress import full_to_voigt
from equibayes.data.structures import Structure
from equibayes.device import choose_device
from equibayes.errors import InputError, TrustWarning
from equibayes.posterior.file import Posterior, load
from equibayes.posterior.novelty import NOVELTY
from equibayes.posterior.prediction import Prediction
from equibayes.simulate.evaluator import Evaluator
from equibayes.simulate.trust import DEVIATIONS, Deviation, Trust, check_deviation

SKIN = 0.5
"""Å beyond the cutoff for which neighbours are stored."""

_MEANS = ("energy", "free_energy", "energies", "energy_known", "forces", "stress")
_PARTS = {"std": "std", "uncertainty": "std", "epistemic": "epistemic", "aleatoric": "aleatoric"}
"""The end of a name in the results, and in a `Prediction`."""
_SIGMAS = tuple(f"{what}_{part}" for what in ("energy", "forces") for part in _PARTS)
_STRESS_SIGMAS = tuple(f"{what}_{part}" for what in ("stress", "pressure") for part in _PARTS)
_MEMBERS = ("energy_ensemble", "forces_ensemble", "stress_ensemble")


class Calculator(AseCalculator):
    """See the table at the top of this file."""

    ignored_changes = {"initial_charges", "initial_magmoms"}  # noqa: RUF012 (as declared by ASE)
    bias: float | None = None
    """Strength of a bias towards uncertainty (see bias.py)."""

    def __init__(
        self,
        posterior: str | Path | Posterior,
        *,
        device: str | None = None,
        dtype: str | None = None,
        k: int | None = None,
        members: bool = False,
        covariance: bool = False,
        skin: float = SKIN,
        trust_lo: float | str | None = None,
        trust_hi: float | str | None = None,
        novelty: tuple[float | None, float | None] = NOVELTY,
        deviation: str = "total",
    ) -> None:
        """posterior  a file, or a loaded posterior
        device     "cpu" or "cuda" (default: cuda if there is one)
        dtype      "float32" or "float64" (default: that of the network)
        k          use the first k samples (default: all)
        members    also return the result of every sample
        covariance also return how errors of the forces go together (see posterior/force_covariance.py)
        skin       Å beyond the cutoff for which neighbours are stored; 0 searches them at each step
        trust_lo   eV/Å, or "3x" for three times the force error on held-back frames: from this σ on there is a
                   `TrustWarning`, once for each set of atoms and level, and `trust_level` in the results
        trust_hi   upper level, likewise; the states are those of molecular dynamics (see trust.py)
        novelty    lower and upper level of novelty, likewise; (None, None): for none
        deviation  "total" or "epistemic": which σ is compared with them
        """
        super().__init__()
        loaded = posterior if isinstance(posterior, Posterior) else load(posterior)
        self.posterior = loaded if k is None else loaded.subset(k)
        self.device, self.dtype, self.members, self.skin = str(choose_device(device)), dtype, members, skin
        self.covariance = covariance
        check_deviation(deviation)
        self.trust, self.deviation = Trust.of(trust_lo, trust_hi, self.posterior, novelty), deviation
        self._warned: set[tuple[bytes, str]] = set()
        # per instance: ASE's list is shared by all calculators of a class
        self.implemented_properties = [*_MEANS, *_SIGMAS, *_STRESS_SIGMAS, *(_MEMBERS if members else ())]
        self.implemented_properties += ["forces_covariance"] * covariance
        self._begun: str | None = None
        self._evaluator = self._prepare()
        novel = self._evaluator.ready.novelty is not None
        self._judges = self.trust.of_sigma or (novel and self.trust.of_novelty)
        names = {"novelty": novel, "trust_level": self._judges, "max_devi_f": self.trust.of_sigma}
        self.implemented_properties += [name for name, there in names.items() if there]

    @property
    def engine(self) -> str:
        """What computes the network, as recorded by simulations."""
        return self._evaluator.ready.predictor.engine

    def continue_with(self, engine: str) -> None:
        """Use the engine that a simulation began with, unless the user asks for another or it cannot be used here."""
        if engine and engine != self.engine:
            self._begun = engine
            self._evaluator = self._prepare()
            self.reset()

    @property
    def fused(self) -> bool:
        """Whether a fused engine is used."""
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
        """Called by ASE; everything but the energies of single atoms is computed at once."""
        super().calculate(atoms, properties, system_changes)
        (structure,) = _structures([self.atoms])
        (prediction,) = self._evaluator([structure], members=self.members)
        self.results = self._judged(structure, prediction)
        if "energies" in properties:
            self.results["energies"] = self._evaluator.atomic_energies(structure)
        if any("stress" in name for name in properties) and "stress" not in self.results:
            raise PropertyNotImplementedError("stress needs a cell that is periodic in all three directions")

    def evaluate_many(self, replicas: Sequence[Atoms]) -> list[dict[str, Any]]:
        """Results of several replicas, as in the table, in as few passes as memory allows.

        The i-th replica keeps its neighbour list from call to call.
        """
        structures = _structures(replicas)
        found = self._evaluator(structures, members=self.members)
        return [self._judged(structure, each) for structure, each in zip(structures, found)]

    def export_properties(self) -> Properties:
        """The properties known to ASE, whose own method raises on the uncertainties."""
        return Properties({name: value for name, value in self.results.items() if name in all_outputs})

    def _judged(self, structure: Structure, prediction: Prediction) -> dict[str, Any]:
        """Results, with the trust level where it can be told; a new doubt is told once."""
        results = results_of(prediction)
        if self._judges:
            if not self.trust.of_sigma and self.trust.knows(prediction.novelty, prediction.forces_std):
                return results | {"trust_level": "trusted"}
            deviation = Deviation.of(results[DEVIATIONS[self.deviation]], prediction.novelty)
            state = self.trust.judge(deviation)
            results |= {"trust_level": state} | ({"max_devi_f": deviation.largest} if self.trust.of_sigma else {})
            new = (structure.numbers.tobytes(), state)
            if state != "trusted" and new not in self._warned:
                self._warned.add(new)
                why = self.trust.sentence(deviation, structure.numbers)
                remedy = "label such frames and learn from them" if state == "candidate" else "do not use this result"
                warnings.warn(f"{state}: {why}; {remedy}", TrustWarning, stacklevel=2)
        return results

    def _prepare(self) -> Evaluator:
        return Evaluator(
            self.posterior, self.device, self.dtype, self.skin, begun=self._begun, covariance=self.covariance
        )

    def __deepcopy__(self, memo: dict[int, Any]) -> "Calculator":
        """Weights are shared, since they never change; results and neighbour lists are not."""
        twin = copy(self)
        twin.atoms = None if self.atoms is None else self.atoms.copy()
        twin.results = {name: np.copy(v) if isinstance(v, np.ndarray) else v for name, v in self.results.items()}
        twin.parameters = copy(self.parameters)
        twin.implemented_properties = list(self.implemented_properties)
        twin._evaluator = self._evaluator.twin()
        twin._warned = set(self._warned)
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
    results["energy_known"] = prediction.energy_known
    if prediction.novelty is not None:
        results["novelty"] = prediction.novelty
    for name, part in _PARTS.items():
        results[f"energy_{name}"] = getattr(prediction, f"energy_{part}")
        results[f"forces_{name}"] = getattr(prediction, f"forces_{part}")
    if prediction.stress is not None:
        results["stress"] = full_to_voigt(prediction.stress)
        for name, part in _PARTS.items():
            results[f"stress_{name}"] = full_to_voigt(getattr(prediction, f"stress_{part}"))
            results[f"pressure_{name}"] = getattr(prediction, f"pressure_{part}")
    if prediction.forces_covariance is not None:
        results["forces_covariance"] = prediction.forces_covariance.total
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
