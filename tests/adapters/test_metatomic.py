"""Exported models held to our predictions, by metatomic's own loader, ASE calculator and i-PI driver."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

pytest.importorskip("metatomic.torch", reason="metatomic is not installed: pip install 'equibayes[metatomic]'")

from metatensor.torch import Labels
from metatomic.torch import ModelEvaluationOptions, ModelOutput, System, load_atomistic_model, systems_to_torch
from metatomic_ase import MetatomicCalculator

from equibayes.adapters.metatomic import export
from equibayes.cli.main import main
from equibayes.data.reference import EnergyReference
from equibayes.data.structures import Structure
from equibayes.posterior.calibration import Calibrated, Calibration, Rescaling
from equibayes.posterior.file import Posterior
from tests.samples import ethanol, one_atom_cell, salt, silicon, slab, water
from tests.simulate.posteriors import random_posterior

ALL = [ethanol(), water(), salt(), silicon(), slab(), one_atom_cell(), Structure([8], [[0.0, 0.0, 0.0]])]
OUTPUTS = {
    "energy": ModelOutput(unit="eV"),
    "energy_ensemble": ModelOutput(unit="eV"),
    "energy_uncertainty": ModelOutput(unit="eV"),
}


def model_of(posterior: Posterior, folder: Path) -> torch.nn.Module:
    export(posterior, folder / "model.pt")
    return load_atomistic_model(str(folder / "model.pt"))


def systems_of(model: torch.nn.Module, structures: list[Structure]) -> list[System]:
    """With the neighbour lists that the model asks for."""
    from vesin.metatomic import NeighborList

    systems = systems_to_torch([each.to_atoms() for each in structures], dtype=torch.float64)
    (options,) = model.requested_neighbor_lists()
    for system in systems:
        finder = NeighborList(options, length_unit="angstrom")
        system.add_neighbor_list(options, finder.compute(system))
    return systems


def evaluated(model: torch.nn.Module, structures: list[Structure], **selected: Labels) -> dict[str, np.ndarray]:
    """Values of all outputs, [B, p]."""
    options = ModelEvaluationOptions(length_unit="angstrom", outputs=OUTPUTS, **selected)
    found = model(systems_of(model, structures), options, check_consistency=True)
    return {name: found[name].block().values.detach().numpy() for name in OUTPUTS}


def assert_as_predicted(posterior: Posterior, structures: list[Structure], folder: Path, tolerance: float) -> None:
    found = evaluated(model_of(posterior, folder), structures)
    predictions = posterior.predict(structures, members=True, device="cpu")
    for name, value in (("energy", "energy"), ("energy_uncertainty", "energy_std")):
        np.testing.assert_allclose(found[name][:, 0], [getattr(p, value) for p in predictions], atol=tolerance)
    np.testing.assert_allclose(found["energy_ensemble"], [p.members["energy"] for p in predictions], atol=tolerance)


NETWORKS = {"tiny": {}, "l = 2 without parity": {"l_max": 2, "parity": False}, "l = 2 with parity": {"l_max": 2}}


@pytest.mark.parametrize("name", NETWORKS)
def test_energies_and_sigma_of_a_batch(name: str, tmp_path: Path) -> None:
    """Molecules, crystals, cells smaller than the cutoff and a free atom together."""
    assert_as_predicted(random_posterior(**NETWORKS[name]), ALL, tmp_path, 1e-9)


def test_float32_linearised_and_calibrated(tmp_path: Path) -> None:
    posterior = random_posterior(per_type_energy_shifts_trainable=True)
    generator = torch.Generator().manual_seed(0)
    tangent = 0.05 * torch.randn(posterior.samples.shape, generator=generator, dtype=torch.float64)
    network = replace(posterior.network, model_dtype="float32")
    knots = np.array([-3.0, 0.0, 1.0]), np.array([0.5, 0.1, -0.7])
    rescaling = {"monotone": Rescaling(1.2, 1.3, knots=knots), "scale": Rescaling(1.7, 1.4)}
    for method, each in rescaling.items():
        energy = Calibrated(method, {3: each})
        changed = replace(
            posterior,
            samples=posterior.samples.float(),
            tangent=tangent.float(),
            network=network,
            calibration=Calibration(energy, Calibrated("none", {3: Rescaling()})).to_dict(),
        )
        assert_as_predicted(changed, [ethanol(), salt(), water()], tmp_path, 1e-4)


def test_energy_reference_of_whole_formulas(tmp_path: Path) -> None:
    """Structures of a known formula, and one whose energy is extrapolated."""
    shifts = {z: -float(z) for z in random_posterior().species_of}
    reference = EnergyReference("per_structure", shifts, {"C2H6O": -100.0, "H2O": -50.0})
    assert_as_predicted(replace(random_posterior(), reference=reference), ALL, tmp_path, 1e-9)


def test_forces_and_stress_by_the_calculator_of_metatomic(tmp_path: Path) -> None:
    posterior = random_posterior()
    export(posterior, tmp_path / "model.pt")
    calculator = MetatomicCalculator(str(tmp_path / "model.pt"), check_consistency=True)
    for structure in ALL:
        atoms, expected = structure.to_atoms(), posterior.predict(structure, device="cpu")
        atoms.calc = calculator
        assert atoms.get_potential_energy() == pytest.approx(expected.energy, rel=0, abs=1e-9)
        np.testing.assert_allclose(atoms.get_forces(), expected.forces, atol=1e-9)
        if expected.stress is not None:
            np.testing.assert_allclose(atoms.get_stress(voigt=False), expected.stress, atol=1e-10)


def test_committee_of_ipi(tmp_path: Path) -> None:
    """i-PI's own driver for metatomic derives forces and virials of every sample."""
    from ipi.pes.metatomic import MetatomicDriver
    from ipi.utils.units import unit_to_internal, unit_to_user

    posterior, crystals = random_posterior(), [salt(0), salt(1)]
    export(posterior, tmp_path / "model.pt")
    crystals[0].to_atoms().write(tmp_path / "salt.xyz")
    ensembles = {"energy_ensemble": True, "force_virial_ensemble": True}
    driver = MetatomicDriver(str(tmp_path / "salt.xyz"), str(tmp_path / "model.pt"), **ensembles)
    cells = [unit_to_internal("length", "angstrom", each.cell.T) for each in crystals]
    places = [unit_to_internal("length", "angstrom", each.positions) for each in crystals]
    for structure, (energy, forces, _, extras) in zip(crystals, driver(cells, places)):
        expected, found = posterior.predict(structure, members=True, device="cpu"), json.loads(extras)
        assert unit_to_user("energy", "electronvolt", energy) == pytest.approx(expected.energy, rel=1e-9)
        np.testing.assert_allclose(unit_to_user("force", "ev/ang", forces), expected.forces, atol=1e-8)
        energies = unit_to_user("energy", "electronvolt", np.array(found["committee_pot"]))
        np.testing.assert_allclose(energies, expected.members["energy"], rtol=1e-9)
        each = unit_to_user("force", "ev/ang", np.reshape(found["committee_force"], (3, -1, 3)))
        np.testing.assert_allclose(each, expected.members["forces"], atol=1e-8)


def test_selected_atoms(tmp_path: Path) -> None:
    """Their energies alone, in a batch; the shares of all atoms add up."""
    model, structures = model_of(random_posterior(), tmp_path), [water(), ethanol()]
    whole = evaluated(model, structures)["energy"]
    parts = []
    for atoms in ([[0, 0], [1, 3], [1, 4]], [[0, 1], [0, 2], *[[1, i] for i in (0, 1, 2, 5, 6, 7, 8)]]):
        chosen = Labels(["system", "atom"], torch.tensor(atoms))
        parts.append(evaluated(model, structures, selected_atoms=chosen)["energy"])
    np.testing.assert_allclose(sum(parts), whole, atol=1e-9)
    assert np.abs(parts[0] - whole).min() > 1


def test_verb(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    random_posterior().save(tmp_path / "a.posterior")
    words = ["export", str(tmp_path / "a.posterior"), "-o", str(tmp_path / "a.pt"), "--k", "2", "--device", "cpu"]
    assert main(words) == 0
    assert "metatomic model with 2 samples" in capsys.readouterr().out
    capabilities = load_atomistic_model(str(tmp_path / "a.pt")).capabilities()
    assert sorted(capabilities.atomic_types) == [1, 6, 8, 11, 14, 17]
    assert main(words) == 2
    assert "exists already" in capsys.readouterr().err
    assert main([*words[:3], str(tmp_path / "a.onnx")]) == 2
    assert "must end in .pt" in capsys.readouterr().err
