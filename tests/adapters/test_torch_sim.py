"""The model as torch-sim uses it: its own checks, batches of structures, relaxation, dynamics and reports."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from ase import Atoms, units

torch_sim = pytest.importorskip("torch_sim", reason="torch-sim is not installed: pip install 'equibayes[torchsim]'")

from ase.optimize import FIRE
from torch_sim.models.interface import validate_model_outputs

from equibayes.adapters.torch_sim import OF_ATOMS, OF_SYSTEMS, TorchSimModel
from equibayes.data.reference import EnergyReference
from equibayes.posterior.file import load
from equibayes.simulate.calculator import Calculator
from tests.samples import ethanol, salt, silicon, water
from tests.simulate.posteriors import ETHANOL, ethanol_start, random_posterior

CPU = torch.device("cpu")


def state_of(structures: list[Atoms]) -> "torch_sim.SimState":
    return torch_sim.io.atoms_to_state(structures, CPU, torch.float64)


def ethanols(count: int) -> list[Atoms]:
    """Distorted by 0.03 Å, each in its own way."""
    found = [ethanol_start() for _ in range(count)]
    for seed, atoms in enumerate(found):
        atoms.rattle(0.03, seed=seed)
    return found


def test_it_passes_the_checks_of_torch_sim() -> None:
    """With silicon and iron, as their validation has it."""
    posterior = random_posterior()
    names = ["H", "C", "O", "Na", "Si", "Fe"]
    same = dict.fromkeys(names, 1.0)
    network = replace(posterior.network, type_names=names, per_type_energy_scales=same, avg_num_neighbors=8.0)
    known = EnergyReference("given", {14: -1.0, 26: -2.0})
    model = TorchSimModel(replace(posterior, network=network, reference=known), device="cpu")
    validate_model_outputs(model, CPU, torch.float64)


@pytest.mark.parametrize(
    "structures", [[ethanol(), water(), ethanol(1)], [salt(), silicon()]], ids=["free", "crystals"]
)
def test_a_batch_gives_what_the_posterior_predicts(structures: list) -> None:
    posterior = random_posterior()
    found = TorchSimModel(posterior, device="cpu")(state_of([each.to_atoms() for each in structures]))
    expected = posterior.predict(structures, device="cpu")
    for name in OF_SYSTEMS:
        np.testing.assert_allclose(found[name], [getattr(each, name) for each in expected], rtol=1e-9, atol=1e-9)
    for name in OF_ATOMS:
        np.testing.assert_allclose(found[name], np.concatenate([getattr(e, name) for e in expected]), atol=1e-9)
    for stress, each in zip(found["stress"], expected):
        if each.stress is None:
            assert stress.isnan().all()
        else:
            np.testing.assert_allclose(stress, each.stress, atol=1e-10)


def test_structures_relax_together_as_they_do_alone() -> None:
    """Each to the energy that ASE's optimiser finds, to 1 meV."""
    model, start = TorchSimModel(ETHANOL, device="cpu"), ethanols(3)
    converged = torch_sim.generate_force_convergence_fn(0.01, include_cell_forces=False)
    state = torch_sim.optimize(
        start,
        model,
        optimizer=torch_sim.optimizers.fire,
        convergence_fn=converged,
        max_steps=300,
        steps_between_swaps=1,
    )
    assert float(model(state)["forces"].abs().max()) < 0.01
    for energy, atoms in zip(state.energy, start):
        atoms.calc = Calculator(ETHANOL, device="cpu")
        FIRE(atoms, logfile=None).run(fmax=0.01, steps=300)
        assert float(energy) == pytest.approx(atoms.get_potential_energy(), rel=0, abs=1e-3)


def test_dynamics_conserve_energy_and_report_sigma(tmp_path: Path) -> None:
    model, files = TorchSimModel(ETHANOL, device="cpu"), [str(tmp_path / f"{i}.h5md") for i in range(2)]
    columns = {
        "total": lambda state, model: (
            state.energy + torch_sim.calc_kinetic_energy(masses=state.masses, velocities=state.velocities)
        ),
        "sigma": lambda state, model: model(state)["forces_std"],
    }
    reporter = torch_sim.TrajectoryReporter(files, state_frequency=10, prop_calculators={10: columns})
    torch_sim.integrate(
        ethanols(2), model, integrator=torch_sim.integrators.nve, n_steps=40, temperature=300, timestep=0.0005,
        trajectory_reporter=reporter,
    )  # fmt: skip
    posterior = load(ETHANOL)
    for name in files:
        with torch_sim.TorchSimTrajectory(name, mode="r") as trajectory:
            total = trajectory.get_array("total")
            assert np.ptp(total) < 5e-3 * units.eV
            last = posterior.predict(trajectory.get_atoms(-1), device="cpu")
            np.testing.assert_allclose(trajectory.get_array("sigma")[-1], last.forces_std, atol=1e-5)


def test_reports_cost_no_second_evaluation(monkeypatch: pytest.MonkeyPatch) -> None:
    model = TorchSimModel(random_posterior(), device="cpu")
    state, calls = state_of([ethanol().to_atoms(), water().to_atoms()]), []
    evaluate = model._evaluator
    monkeypatch.setattr(model, "_evaluator", lambda structures: calls.append(len(structures)) or evaluate(structures))
    whole = model(state)
    parts = [model(each) for each in state.split()]
    assert calls == [2]
    torch.testing.assert_close(torch.cat([each["forces_std"] for each in parts]), whole["forces_std"], rtol=0, atol=0)
