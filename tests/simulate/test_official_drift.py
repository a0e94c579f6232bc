"""Energy conservation in float32 beside the official NequIP package: the same weights, the same start, the same
integrator.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from ase.calculators.calculator import Calculator as AseCalculator

from equibayes.bayes.model import StochasticModel
from equibayes.data import bundled_ethanol
from equibayes.data.elements import atomic_number
from equibayes.data.reference import EnergyReference
from equibayes.data.structures import Structure
from equibayes.engine.native.compile import why_no_compiler
from equibayes.engine.select import VARIABLE
from equibayes.network.official import convert_official
from equibayes.posterior.file import Posterior
from equibayes.simulate.calculator import Calculator
from tests.official import build, evaluate_official, settings
from tests.simulate.test_integrators import shadow_energies

ARGUMENTS = settings(model_dtype="float32")
TIMESTEP = 0.05  # fs; so short that what is left is rounding, not the integrator
STEPS = 60


class Official(AseCalculator):
    """The package's own evaluation of its own model."""

    implemented_properties = ["energy", "forces"]  # noqa: RUF012

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model

    def calculate(self, atoms: Any = None, properties: Any = (), system_changes: Any = ()) -> None:
        super().calculate(atoms, properties, system_changes)
        structure = Structure.from_atoms(self.atoms.copy())
        found = evaluate_official(self.model, structure, ARGUMENTS["type_names"], ARGUMENTS["r_max"])
        self.results = {"energy": found["energy"], "forces": found["forces"]}


def as_posterior(model: torch.nn.Module) -> Posterior:
    """One sample: the official weights for the means, the start for the deviations."""
    converted = convert_official(ARGUMENTS, model.state_dict())
    config = replace(converted.config, model_dtype="float32")
    stochastic = StochasticModel(config)
    samples = stochastic.layout.start(1, 0)
    samples[:, : converted.weights.shape[1]] = converted.weights.float()
    one = torch.zeros(1, dtype=torch.int64)
    shifts = {atomic_number(name): shift for name, shift in converted.shifts.items()}
    return Posterior(samples, one, one, config, EnergyReference("given", shifts))


def test_energy_is_conserved_no_worse_than_by_the_official_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """Change of the conserved energy from step to step in float32, mean over several starts; all keep their geometry
    in float64.

    Found: 0.30 ± 0.004 µeV for nine atoms, against 0.32 ± 0.02 µeV there (six starts, 100 steps); with geometry in
    float32 it was 0.54.  By the compiled engine 0.33 ± 0.04 in the five starts of this test, by the reference 0.32.
    """
    model = build(**ARGUMENTS)
    calculators: dict[str, AseCalculator] = {"official": Official(model)}
    for engine in ["reference"] if why_no_compiler() else ["reference", "native"]:
        monkeypatch.setenv(VARIABLE, engine)
        calculators[engine] = Calculator(as_posterior(model), device="cpu")
        assert calculators[engine].engine.startswith(engine)
    noise: dict[str, list[float]] = {name: [] for name in calculators}
    for frame in bundled_ethanol("test")[0:500:100]:
        starts = {}
        for name, calculator in calculators.items():
            atoms = frame.to_atoms()
            atoms.calc = calculator
            starts[name] = (atoms.get_potential_energy(), atoms.get_forces())
            noise[name].append(float(np.std(np.diff(shadow_energies(atoms, STEPS, TIMESTEP)))))
        for energy, forces in starts.values():
            assert energy == pytest.approx(starts["official"][0], abs=1e-4)
            np.testing.assert_allclose(forces, starts["official"][1], atol=1e-4)
    official = np.array(noise.pop("official"))
    for values in noise.values():
        ours = np.array(values)
        # of the difference of two means; the spread over starts is about a sixth of the mean
        error = float(np.sqrt((ours.var(ddof=1) + official.var(ddof=1)) / len(ours)))
        assert error < 0.15 * official.mean(), "too few starts to tell"
        assert ours.mean() < official.mean() + error, noise
        assert ours.mean() < 1e-6, "eV"
