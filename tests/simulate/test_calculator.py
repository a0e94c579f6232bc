"""The ASE calculator held to what ASE's own parts expect of one."""

import copy
import pickle
from dataclasses import replace

import numpy as np
import pytest
import torch
from ase import Atoms
from ase.build import bulk, molecule
from ase.calculators.calculator import PropertyNotImplementedError
from ase.calculators.fd import calculate_numerical_forces, calculate_numerical_stress
from ase.io import read as ase_read

import equibayes
from equibayes.data.reference import EnergyReference
from equibayes.data.stress import full_to_voigt
from equibayes.engine import select
from equibayes.errors import InputError
from equibayes.posterior.calibration import Calibrated, Calibration, Rescaling
from equibayes.posterior.file import Posterior
from equibayes.simulate.calculator import Calculator
from equibayes.simulate.trust import Deviation
from tests.samples import salt, slab, water
from tests.simulate.posteriors import random_posterior

POSTERIOR, SOLID = random_posterior(), random_posterior(stress_head=True)


def ethanol_atoms(seed: int = 0) -> Atoms:
    atoms = molecule("CH3CH2OH")
    atoms.rattle(0.1, seed=seed)
    atoms.calc = Calculator(POSTERIOR, device="cpu")
    return atoms


def salt_atoms(**options: object) -> Atoms:
    atoms = salt().to_atoms()
    atoms.calc = Calculator(POSTERIOR, device="cpu", **options)
    return atoms


def test_from_a_file(tmp_path) -> None:
    POSTERIOR.save(tmp_path / "a.posterior")
    calculator = equibayes.Calculator(tmp_path / "a.posterior", device="cpu")
    assert ethanol_atoms().get_potential_energy() == calculator.get_potential_energy(ethanol_atoms())


@pytest.mark.parametrize("structure", [water(), salt(), slab()], ids=["molecule", "crystal", "slab"])
@pytest.mark.parametrize("posterior", [POSTERIOR, SOLID], ids=["plain", "stress"])
def test_results_are_those_of_predict(posterior, structure) -> None:
    atoms, expected = structure.to_atoms(), posterior.predict(structure, members=True)
    calculator = Calculator(posterior, device="cpu", members=True)
    calculator.calculate(atoms)
    found = calculator.results
    for what in ("energy", "forces"):
        np.testing.assert_allclose(found[what], getattr(expected, what), rtol=1e-10, atol=1e-10)
        for part in ("std", "uncertainty", "epistemic", "aleatoric"):  # the same names in both
            np.testing.assert_allclose(found[f"{what}_{part}"], getattr(expected, f"{what}_{part}"), rtol=1e-8)
    assert found["energy_known"] is expected.energy_known
    assert found["free_energy"] == found["energy"]
    assert found["forces_ensemble"].shape == (len(atoms), 3, 3), "members last"
    np.testing.assert_allclose(found["forces_ensemble"].mean(-1), found["forces"], atol=1e-12)
    np.testing.assert_allclose(found["forces_ensemble"].std(-1), found["forces_epistemic"], atol=1e-12)
    np.testing.assert_allclose(found["energy_ensemble"].std(-1), found["energy_epistemic"], atol=1e-9)
    if expected.stress is None:
        assert not any("stress" in name or "pressure" in name for name in found)
    else:
        np.testing.assert_allclose(found["stress"], full_to_voigt(expected.stress), rtol=1e-9)
        for part in ("std", "uncertainty", "epistemic", "aleatoric"):
            sigma = full_to_voigt(getattr(expected, f"stress_{part}"))
            np.testing.assert_allclose(found[f"stress_{part}"], sigma, rtol=1e-9)
        for part in ("std", "epistemic", "aleatoric"):
            assert found[f"pressure_{part}"] == pytest.approx(getattr(expected, f"pressure_{part}"), rel=1e-9)
        np.testing.assert_allclose(found["stress_ensemble"].std(-1), found["stress_epistemic"], atol=1e-12)


def test_numeric_forces() -> None:
    atoms = ethanol_atoms()
    np.testing.assert_allclose(atoms.get_forces(), calculate_numerical_forces(atoms, eps=1e-4), atol=1e-6)
    assert np.abs(atoms.get_forces()).max() > 0.1, "else nothing was tested"


def test_numeric_stress() -> None:
    atoms = salt_atoms()
    np.testing.assert_allclose(atoms.get_stress(), calculate_numerical_stress(atoms, eps=1e-5), atol=1e-8)
    assert np.abs(atoms.get_stress()).max() > 1e-4


def test_energy_scales_reach_forces_stress_and_spread() -> None:
    """Scales three times as large: energies above the reference, forces, stress and their spread are, variances nine
    times.
    """
    scales = {name: 3 * scale for name, scale in POSTERIOR.network.per_type_energy_scales.items()}
    larger = replace(POSTERIOR, network=replace(POSTERIOR.network, per_type_energy_scales=scales))
    one, three = salt_atoms(), salt_atoms()
    three.calc = Calculator(larger, device="cpu")
    above = [atoms.get_potential_energy() - POSTERIOR.reference.total(atoms.numbers) for atoms in (one, three)]
    assert above[1] == pytest.approx(3 * above[0])
    for name in ("forces", "stress", "forces_epistemic", "stress_epistemic", "energy_epistemic"):
        np.testing.assert_allclose(three.calc.results[name], 3 * one.calc.results[name], rtol=1e-9, atol=1e-13)
    np.testing.assert_allclose(three.calc.results["forces_aleatoric"], one.calc.results["forces_aleatoric"])


def test_changes_of_the_atoms_are_noticed() -> None:
    atoms = salt_atoms()
    before = atoms.get_potential_energy()
    assert not atoms.calc.calculation_required(atoms, ["forces", "stress"]), "everything is there after one call"
    for change in (
        lambda: atoms.positions.__setitem__((0, 0), atoms.positions[0, 0] + 1e-3),
        lambda: atoms.set_cell(atoms.cell * 1.001, scale_atoms=True),
        lambda: atoms.numbers.__setitem__(0, 17),
        lambda: atoms.set_pbc([True, True, False]),
    ):
        change()
        after = atoms.get_potential_energy()
        assert after != before
        fresh = Calculator(POSTERIOR, device="cpu", skin=0.0).get_potential_energy(atoms)
        assert after == pytest.approx(fresh, abs=1e-9)
        before = after
    atoms.set_initial_charges([0.1] * len(atoms))
    assert not atoms.calc.calculation_required(atoms, ["energy"]), "charges mean nothing to this model"


def test_copies_go_their_own_way() -> None:
    atoms = ethanol_atoms()
    atoms.get_forces()
    twin = copy.deepcopy(atoms)
    assert twin.calc is not atoms.calc
    assert twin.calc.posterior is atoms.calc.posterior, "weights are shared"
    twin.positions[0] += 0.3
    expected = atoms.calc.results["forces"].copy()
    twin.get_forces()
    assert np.array_equal(atoms.calc.results["forces"], expected)
    assert np.array_equal(atoms.get_forces(), expected)
    assert not np.array_equal(twin.get_forces(), expected)


def test_pickle() -> None:
    atoms = ethanol_atoms()
    expected = atoms.get_forces()
    again = pickle.loads(pickle.dumps(atoms))
    assert np.array_equal(again.calc.results["forces_uncertainty"], atoms.calc.results["forces_uncertainty"])
    again.positions += 0.0
    again.calc.reset()
    assert np.array_equal(again.get_forces(), expected)


def test_properties_belong_to_the_instance() -> None:
    plain, with_members = Calculator(POSTERIOR, device="cpu"), Calculator(POSTERIOR, device="cpu", members=True)
    assert "forces_ensemble" in with_members.implemented_properties
    assert "forces_ensemble" not in plain.implemented_properties
    plain.implemented_properties.append("dipole")
    assert "dipole" not in Calculator(POSTERIOR, device="cpu").implemented_properties
    sigma = plain.get_property("forces_uncertainty", ethanol_atoms())
    assert sigma.shape == (9, 3)
    assert (sigma > 0).all()


def test_stress_needs_a_volume() -> None:
    with pytest.raises(PropertyNotImplementedError, match="periodic"):
        ethanol_atoms().get_stress()


def test_unknown_species_is_one_line() -> None:
    atoms = molecule("CH3Cl")
    atoms.numbers[0] = 9
    with pytest.raises(InputError, match=r"species F unknown to this model, which knows H, C, O, Na, Si, Cl"):
        Calculator(POSTERIOR, device="cpu").get_potential_energy(atoms)
    atoms.positions[0] = np.nan
    with pytest.raises(InputError, match="not finite"):
        Calculator(POSTERIOR, device="cpu").get_potential_energy(Atoms("H2", [[0, 0, 0], [np.nan, 0, 0]]))


def test_bad_options() -> None:
    with pytest.raises(InputError, match="k=9"):
        Calculator(POSTERIOR, k=9)
    with pytest.raises(InputError, match="dtype=float16"):
        Calculator(POSTERIOR, dtype="float16", device="cpu")
    with pytest.raises(InputError, match="skin=-1"):
        Calculator(POSTERIOR, skin=-1.0, device="cpu").get_potential_energy(molecule("H2O"))


def test_options() -> None:
    """k takes the first samples; dtype is that of the arithmetic."""
    atoms = water().to_atoms()
    results = [Calculator(POSTERIOR, device="cpu", **o).get_forces(atoms) for o in ({}, {"k": 2}, {"dtype": "float32"})]
    expected = POSTERIOR.subset(2).predict(water()).forces
    np.testing.assert_allclose(results[1], expected, atol=1e-12)
    difference = np.abs(results[2] - results[0]).max()
    assert 1e-12 < difference < 1e-4


def calibrated() -> Posterior:
    part = Calibrated("scale", {3: Rescaling(factor=2.0, spread=1.5)})
    return replace(POSTERIOR, calibration=Calibration(part, part).to_dict())


def test_calibrated_if_the_file_is() -> None:
    atoms = water().to_atoms()
    raw, ready = (Calculator(each, device="cpu") for each in (POSTERIOR, calibrated()))
    for calculator in (raw, ready):
        calculator.calculate(atoms)
    np.testing.assert_allclose(ready.results["forces_epistemic"], 3 * raw.results["forces_epistemic"])
    np.testing.assert_allclose(ready.results["energy_aleatoric"], 2 * raw.results["energy_aleatoric"])
    assert np.array_equal(ready.results["forces"], raw.results["forces"])


def test_many_replicas_at_once() -> None:
    """Different molecules and cells in one call, the same numbers as one by one; lists follow replicas that move on."""
    replicas = [ethanol_atoms(1), salt_atoms(), ethanol_atoms(2), water().to_atoms()]
    calculator = Calculator(POSTERIOR, device="cpu")
    for _ in range(2):
        for atoms, found in zip(replicas, calculator.evaluate_many(replicas)):
            alone = Calculator(POSTERIOR, device="cpu")
            alone.calculate(atoms)
            assert found.keys() == alone.results.keys()
            np.testing.assert_allclose(found["forces"], alone.results["forces"], atol=1e-11)
            np.testing.assert_allclose(found["energy_uncertainty"], alone.results["energy_uncertainty"], rtol=1e-9)
            atoms.positions += 0.02 * np.sin(atoms.positions)
    assert calculator.evaluate_many([]) == []


def test_many_passes_where_memory_is_short(monkeypatch) -> None:
    replicas = [ethanol_atoms(seed) for seed in range(5)]
    calculator = Calculator(POSTERIOR, device="cpu")
    whole = calculator.evaluate_many(replicas)
    passes = []
    forward = POSTERIOR.model.forward
    monkeypatch.setattr(
        POSTERIOR.model, "forward", lambda w, g, **o: (passes.append(g.num_structures), forward(w, g, **o))[1]
    )
    monkeypatch.setitem(select.EDGES_AT_ONCE, "cpu", 3 * 160)  # edges of 3 samples: two molecules of 9 × 8
    parts = calculator.evaluate_many(replicas)
    assert passes == [2, 2, 1]
    for one, other in zip(whole, parts):
        np.testing.assert_allclose(one["forces"], other["forces"], atol=1e-12)


def test_relaxes_with_bfgs(tmp_path) -> None:
    from ase.optimize import BFGS

    atoms = ethanol_atoms()
    start, force = atoms.get_potential_energy(), np.abs(atoms.get_forces()).max()
    path = str(tmp_path / "relax.traj")
    BFGS(atoms, logfile=None, trajectory=path).run(fmax=0.02, steps=60)
    assert atoms.get_potential_energy() < start
    assert np.abs(atoms.get_forces()).max() < 0.5 * force
    last = ase_read(path)
    assert last.get_potential_energy() == pytest.approx(atoms.get_potential_energy())


def test_phonons_of_silicon(tmp_path) -> None:
    """ASE's own finite differences on a periodic cell; acoustic modes vanish at Γ."""
    from ase.phonons import Phonons

    crystal = bulk("Si")
    phonons = Phonons(crystal, Calculator(POSTERIOR, device="cpu"), supercell=(2, 2, 2), delta=0.01, name=str(tmp_path))
    phonons.run()
    phonons.read(acoustic=True)
    frequencies = phonons.band_structure([[0.0, 0.0, 0.0], [0.5, 0.5, 0.0]])
    assert frequencies.shape == (2, 6)
    assert np.abs(np.sort(np.abs(frequencies[0]))[:3]).max() < 1e-3 * np.abs(frequencies).max()


def test_nudged_elastic_band() -> None:
    """Images with copies of one calculator, as NEB scripts make them."""
    from ase.mep import NEB

    first, last = ethanol_atoms(1), ethanol_atoms(2)
    images = [first, *(first.copy() for _ in range(2)), last]
    for image in images[1:3]:
        image.calc = copy.deepcopy(first.calc)
    band = NEB(images, method="improvedtangent")
    band.interpolate()
    forces = band.get_forces()
    assert np.isfinite(forces).all()
    assert forces.shape == (2 * 9, 3)


def test_writers_keep_means_and_do_not_stop(tmp_path) -> None:
    from ase.io import write

    atoms = salt_atoms()
    atoms.get_stress()
    write(tmp_path / "a.xyz", atoms)
    again = ase_read(tmp_path / "a.xyz")
    np.testing.assert_allclose(again.get_forces(), atoms.get_forces(), atol=1e-7)
    assert atoms.calc.export_properties()["energy"] == atoms.get_potential_energy()


def test_does_not_touch_global_state() -> None:
    grad, dtype = torch.is_grad_enabled(), torch.get_default_dtype()
    ethanol_atoms().get_forces()
    assert (torch.is_grad_enabled(), torch.get_default_dtype()) == (grad, dtype)


@pytest.mark.parametrize("offsets", [{}, {"C2H6O": -4000.0}], ids=["shifts", "offsets"])
def test_energies_of_atoms_add_up(offsets: dict[str, float]) -> None:
    reference = replace(POSTERIOR.reference, offsets=offsets)
    atoms = ethanol_atoms()
    atoms.calc = Calculator(replace(POSTERIOR, reference=reference), device="cpu")
    energies = atoms.get_potential_energies()
    assert energies.shape == (len(atoms),)
    assert energies.sum() == pytest.approx(atoms.get_potential_energy(), abs=1e-8)
    assert np.ptp(energies[atoms.numbers == 1]) > 1e-3, "atoms of one element differ"
    far = Atoms("H", positions=[[50.0, 0, 0]], calculator=atoms.calc)
    both = atoms.copy() + far.copy()
    both.calc = Calculator(POSTERIOR, device="cpu")
    atoms.calc = Calculator(POSTERIOR, device="cpu")
    np.testing.assert_allclose(both.get_potential_energies()[:-1], atoms.get_potential_energies(), atol=1e-9)


def test_energy_that_is_known_up_to_a_constant() -> None:
    reference = EnergyReference("per_structure", POSTERIOR.reference.shifts, {"C2H6O": -4000.0})
    calculator = Calculator(replace(POSTERIOR, reference=reference), device="cpu")
    for atoms, known in ((ethanol_atoms(), True), (water().to_atoms(), False)):
        calculator.calculate(atoms)
        assert calculator.results["energy_known"] is known


def move(atoms: Atoms, steps: int) -> None:
    for step in range(steps):
        atoms.positions[0, 0] += 1e-4 * step
        atoms.get_forces()


def test_a_doubt_is_told_once() -> None:
    atoms = ethanol_atoms()
    sigma = Deviation.of(POSTERIOR.predict(atoms).forces_std).largest
    atoms.calc = Calculator(POSTERIOR, device="cpu", trust_lo=0.9 * sigma, trust_hi=1e3 * sigma)
    with pytest.warns(equibayes.TrustWarning, match=r"candidate: σ of atom \d \([CHO]\) is .* above the lower") as told:
        move(atoms, 3)
    assert len(told) == 1
    assert atoms.calc.results["trust_level"] == "candidate"
    assert atoms.calc.results["max_devi_f"] == pytest.approx(sigma, rel=0.05)
    assert atoms.calc.get_property("trust_level", atoms) == "candidate"
    with pytest.warns(equibayes.TrustWarning, match="candidate") as told:  # other atoms
        atoms.calc.calculate(molecule("CH3OH"))
    assert len(told) == 1


def test_trust_without_doubt_and_without_levels(recwarn: pytest.WarningsRecorder) -> None:
    calm, silent = Calculator(POSTERIOR, device="cpu", trust_lo=1e6), Calculator(POSTERIOR, device="cpu")
    for calculator in (calm, silent):
        calculator.calculate(ethanol_atoms())
    assert calm.results["trust_level"] == "trusted"
    assert "trust_level" not in silent.results
    assert not recwarn.list
    with pytest.raises(InputError, match="swap them"):
        Calculator(POSTERIOR, device="cpu", trust_lo=2.0, trust_hi=1.0)
    with pytest.raises(InputError, match="choose total or epistemic"):
        Calculator(POSTERIOR, device="cpu", deviation="all")


def test_above_the_upper_level() -> None:
    calculator = Calculator(POSTERIOR, device="cpu", trust_hi=1e-6, deviation="epistemic")
    with pytest.warns(equibayes.TrustWarning, match="exploded: .* above the upper trust level; do not use"):
        calculator.calculate(ethanol_atoms())
    assert calculator.results["trust_level"] == "exploded"
