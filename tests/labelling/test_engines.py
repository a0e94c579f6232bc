"""Labels of the real engines: units, and forces that are the gradient of the energy."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from ase.build import bulk, molecule

from equibayes.data.structures import FloatArray, Structure
from equibayes.errors import InputError
from equibayes.labelling.blas import preload_environment
from equibayes.labelling.labellers import Label, Labeller, Refusal
from tests.samples import ethanol, water


def label(labeller: Labeller, structure: Structure) -> Label:
    answer = labeller.label(structure)
    assert isinstance(answer, Label), answer
    return answer


def displaced(structure: Structure, direction: FloatArray, size: float) -> Structure:
    return dataclasses.replace(structure, positions=structure.positions + size * direction)


def slope(labeller: Labeller, structure: Structure, direction: FloatArray, size: float) -> float:
    """Rate of the energy along a direction [n, 3], eV/Å, by central differences of `size` Å."""
    ahead, behind = (label(labeller, displaced(structure, direction, sign * size)) for sign in (1, -1))
    return (ahead.energy - behind.energy) / (2 * size)


def direction(structure: Structure) -> FloatArray:
    return np.random.default_rng(0).normal(size=structure.positions.shape)


def test_tight_binding_of_ethanol() -> None:
    structure = ethanol()
    with Labeller("gfn2-xtb", {"accuracy": 0.01}) as labeller:
        answer = label(labeller, structure)
        along = direction(structure)
        assert slope(labeller, structure, along, 1e-3) == pytest.approx(-(answer.forces * along).sum(), abs=2e-4)
        assert labeller.provenance["settings"] == {"method": "GFN2-xTB", "accuracy": 0.01}
        assert labeller.provenance["versions"]["tblite"]
    # -11.39 Hartree when relaxed, which this one is not; in other units it would be far off
    assert answer.energy == pytest.approx(-11.39 * 27.2114, abs=5.0)
    np.testing.assert_allclose(answer.forces.sum(0), 0.0, atol=1e-4)


def test_tight_binding_agrees_with_its_authors() -> None:
    """Water in the documentation of tblite: energy in eV and forces in eV/Å."""
    with Labeller("gfn2-xtb") as labeller:
        answer = label(labeller, Structure.from_atoms(molecule("H2O")))
    assert answer.energy == pytest.approx(-137.96777625229421, abs=1e-5)
    np.testing.assert_allclose(answer.forces[:, 2], [-0.749527, 0.374764, 0.374764], atol=1e-3)


def test_tight_binding_refuses_nonsense_and_goes_on() -> None:
    with Labeller("gfn2-xtb", time_limit_s=60.0) as labeller:
        assert isinstance(labeller.label(Structure([6, 6], np.zeros((2, 3)))), Refusal)
        label(labeller, water())


def test_labels_do_not_depend_on_what_came_before() -> None:
    """Unless asked to follow, every structure starts from the same guess."""
    with Labeller("gfn2-xtb") as labeller:
        fresh = label(labeller, ethanol())
        label(labeller, displaced(ethanol(), direction(ethanol()), 0.05))
        again = label(labeller, ethanol())
    assert again.energy == fresh.energy
    np.testing.assert_array_equal(again.forces, fresh.forces)
    with Labeller("gfn2-xtb", follow=True) as labeller:
        label(labeller, displaced(ethanol(), direction(ethanol()), 0.05))
        followed = label(labeller, ethanol())
    assert followed.energy != fresh.energy, "it started from another wave function"
    assert followed.energy == pytest.approx(fresh.energy, abs=1e-4)


def test_settings_change_the_answer() -> None:
    with Labeller("gfn2-xtb") as neutral, Labeller("gfn2-xtb", {"charge": 1}) as cation:
        ionisation = label(cation, water()).energy - label(neutral, water()).energy
    assert 5.0 < ionisation < 25.0, "eV"


def test_density_functional_theory_of_water() -> None:
    """PBE/def2-SVP, the level of revised MD17."""
    structure = water()
    with Labeller("pbe/def2-svp") as labeller:
        answer = label(labeller, structure)
        along = direction(structure)
        assert slope(labeller, structure, along, 2e-3) == pytest.approx(-(answer.forces * along).sum(), abs=2e-3)
        refused = labeller.label(Structure.from_atoms(bulk("Si")))
    assert answer.energy == pytest.approx(-76.27 * 27.2114, abs=1.0)
    assert isinstance(refused, Refusal)
    assert "periodic" in refused.reason


def test_density_functional_theory_with_dispersion() -> None:
    """The level of the paper's PEDOT data; forces and energy both carry the correction."""
    structure = Structure.from_atoms(molecule("H2"))
    along = direction(structure)
    with Labeller("b3lyp-d3bj/6-31g*") as labeller:
        answer = label(labeller, structure)
        assert slope(labeller, structure, along, 2e-3) == pytest.approx(-(answer.forces * along).sum(), abs=2e-3)
    with Labeller("b3lyp-d3bj/6-31g*", {"dispersion": None}) as labeller:
        bare = label(labeller, structure)
    assert -0.1 < answer.energy - bare.energy < -1e-6, "eV: it binds, by little"
    assert answer.energy == pytest.approx(-1.175 * 27.2114, abs=0.2)


def test_radicals_and_what_does_not_converge() -> None:
    hydroxyl = Structure([8, 1], [[0, 0, 0], [0, 0, 0.97]])
    with Labeller("pyscf", {"basis": "sto-3g"}) as labeller:
        label(labeller, hydroxyl)
    with Labeller("pyscf", {"basis": "sto-3g", "max_cycle": 1}) as labeller:
        answer = labeller.label(hydroxyl)
    assert isinstance(answer, Refusal)
    assert "not self-consistent after 1 cycle" in answer.reason


def test_faster_linear_algebra_is_used_where_it_is_installed() -> None:
    """Nothing, or three libraries that exist."""
    variables = preload_environment()
    libraries = variables.get("LD_PRELOAD", "").split(":") if variables else []
    assert len(libraries) in (0, 3)
    assert ["mkl_intel_lp64" in libraries[0], "sequential" in libraries[1]] == [True, True] if libraries else True


@pytest.mark.parametrize("wrapped", [False, True], ids=["for all", "by element"])
def test_a_basis_is_a_name(wrapped: bool, tmp_path: Path) -> None:
    """PySCF would evaluate the text of a basis set, or that of a file, as Python."""
    sprung = tmp_path / "sprung"
    trap = f"H    S\n  __import__('pathlib').Path({str(sprung)!r}).touch() 1.0\n"
    (tmp_path / "trap.nw").write_text(trap)
    for basis in (trap, str(tmp_path / "trap.nw")):
        with pytest.raises(InputError, match="must be a name known to PySCF"):
            Labeller("pyscf", {"basis": {"H": basis} if wrapped else basis})
    assert not sprung.exists()


@pytest.mark.parametrize("name", ["6-31g*", "6-311++g(d,p)", "def2-TZVP", "aug-cc-pvdz", "ano@3s2p"])
def test_names_of_basis_sets(name: str) -> None:
    from equibayes.labelling.pyscf import PySCF

    assert PySCF(basis=name).parameters["basis"] == name
