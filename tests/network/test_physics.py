"""Every preset obeys every law."""

from dataclasses import replace

import numpy as np
import pytest

from equibayes.bayes.model import StochasticModel
from equibayes.data import Structure
from equibayes.engine.selftest_cases import FOUNDATION
from equibayes.network.config import PRESETS, preset
from tests import periodic, physics
from tests.models import Reference, full_config, random_weights
from tests.samples import ethanol, one_atom_cell, salt, silicon, slab, water

LARGE = ("paper", "medium")
"""Expensive: numeric forces along random directions only."""


@pytest.fixture(scope="module", params=list(PRESETS))
def name(request):
    return request.param


@pytest.fixture(scope="module")
def engine(name):
    model = StochasticModel(replace(full_config(PRESETS[name]), stress_head=True))
    return Reference(model, random_weights(model, chains=1))


@pytest.mark.parametrize("structure", [ethanol(), silicon()], ids=["molecule", "crystal"])
class TestEveryStructure:
    def test_equivariance(self, engine, structure):
        physics.check_equivariance(engine, structure)

    def test_translation(self, engine, structure):
        physics.check_translation(engine, structure)

    def test_permutation(self, engine, structure):
        physics.check_permutation(engine, structure)

    def test_identical_atoms_swapped(self, engine, structure):
        physics.check_identical_atoms(engine, structure)

    def test_numeric_forces(self, engine, structure, name):
        physics.check_numeric_forces(engine, structure, directions=3 if name in LARGE else 0)


@pytest.mark.parametrize("structure", [silicon(), one_atom_cell()], ids=["triclinic", "self-images"])
def test_numeric_stress(engine, structure):
    physics.check_numeric_stress(engine, structure)


def test_cutoff(engine):
    physics.check_cutoff(engine, water(), r_max=engine.model.config.r_max, number=8)


def test_batch_equals_single(engine):
    physics.check_batch(engine, engine.batch, [ethanol(), silicon(), water(), one_atom_cell(), slab()])


def test_isolated_atoms(engine):
    physics.check_isolated_atoms(engine, [1, 6, 8], engine.model.config.r_max)


def test_supercell(engine):
    periodic.check_supercell(engine, silicon())


def test_lattice_shift(engine):
    periodic.check_lattice_shift(engine, silicon())
    periodic.check_lattice_shift(engine, slab())


def test_equivalent_cell(engine):
    periodic.check_equivalent_cell(engine, silicon())


def test_self_images(engine):
    periodic.check_self_images(engine, one_atom_cell())


def test_mixed_pbc(engine):
    periodic.check_mixed_pbc(engine, slab(), engine.model.config.r_max)


def test_two_species_crystal(engine, name):
    physics.check_equivariance(engine, salt())
    physics.check_numeric_forces(engine, salt(), directions=3 if name in LARGE else 0)
    physics.check_numeric_stress(engine, salt())


@pytest.fixture(scope="module")
def own():
    config = full_config(preset("tiny", l_max=2, num_layers=3, num_features=[4, 3, 2], **FOUNDATION))
    model = StochasticModel(replace(config, stress_head=True))
    return Reference(model, random_weights(model, chains=1))


class TestNetworkOfAFoundationModel:
    """Rotations only, a shared self-connection also in the first block, an XPLOR cutoff."""

    def test_rotations_but_not_the_inversion(self, own):
        physics.check_equivariance(own, ethanol(), inversion=False)
        with pytest.raises(AssertionError, match="equivariance"):
            physics.check_equivariance(own, ethanol())

    @pytest.mark.parametrize("structure", [ethanol(), silicon()], ids=["molecule", "crystal"])
    def test_every_structure(self, own, structure):
        physics.check_translation(own, structure)
        physics.check_permutation(own, structure)
        physics.check_numeric_forces(own, structure, directions=3)

    def test_numeric_stress(self, own):
        physics.check_numeric_stress(own, silicon())

    def test_batch_equals_single(self, own):
        physics.check_batch(own, own.batch, [ethanol(), silicon(), water(), one_atom_cell(), slab()])

    def test_an_isolated_atom_has_an_energy(self, own):
        assert own(Structure(numbers=[8], positions=np.zeros((1, 3)))).energy != 0.0
