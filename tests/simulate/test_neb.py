"""Nudged elastic band with the calculator: the proton of malonaldehyde from one oxygen to the other.

The two ends are mirror images with atoms exchanged, so every model that knows the symmetries of physics, even a
random one, finds a path that reads the same from both ends. studies/proton_transfer.py has a barrier to compare with
an engine's.
"""

from copy import deepcopy

import numpy as np
import pytest
from ase import Atoms
from ase.mep import NEB
from ase.optimize import FIRE

from equibayes.simulate.calculator import Calculator
from studies.proton_transfer import ENOL, ends
from tests.simulate.posteriors import random_posterior

IMAGES = 5


def band(calculators: list[Calculator]) -> tuple[list[Atoms], NEB]:
    """One calculator for all images, or one for each."""
    first, last = ends(ENOL)
    images = [first, *(first.copy() for _ in range(IMAGES - 2)), last]
    shared = len(calculators) == 1
    for image, calculator in zip(images, calculators * IMAGES if shared else calculators):
        image.calc = calculator
    neb = NEB(images, method="improvedtangent", allow_shared_calculator=shared)
    neb.interpolate()
    return images, neb


@pytest.mark.parametrize("shared", [True, False])
def test_band_moves_and_stays_symmetric(shared: bool) -> None:
    one = Calculator(random_posterior(2), device="cpu")
    images, neb = band([one] if shared else [deepcopy(one) for _ in range(IMAGES)])
    before = np.stack([image.positions for image in images])
    FIRE(neb, logfile=None, dt=0.02).run(fmax=1e-6, steps=4)
    after = np.stack([image.positions for image in images])
    moved = np.abs(after - before).max((1, 2))
    assert moved[0] == moved[-1] == 0.0, "the ends stand"
    assert (moved[1:-1] > 1e-4).all()
    energies = np.array([image.get_potential_energy() for image in images])
    np.testing.assert_allclose(energies, energies[::-1], atol=1e-9)
    assert np.ptp(energies) > 1e-3
    # every image has its own σ, also with one calculator for all of them
    for image in images:
        expected = one.posterior.predict(image)
        image.get_forces()
        np.testing.assert_allclose(image.calc.results["forces_uncertainty"], expected.forces_std, rtol=1e-9)


def test_shared_or_not_is_the_same() -> None:
    one = Calculator(random_posterior(2), device="cpu")
    forces = [band([one] if shared else [deepcopy(one) for _ in range(IMAGES)])[1].get_forces() for shared in (1, 0)]
    np.testing.assert_allclose(forces[0], forces[1], rtol=1e-12, atol=1e-12)


def test_a_whole_band_in_one_pass() -> None:
    """What the images say one by one, with a spread of the barrier over samples."""
    calculator = Calculator(random_posterior(3), device="cpu", members=True)
    images, _ = band([calculator])
    together = calculator.evaluate_many(images)
    members = np.stack([each["energy_ensemble"] for each in together], axis=1)  # [samples, images]
    for image, each in zip(images, together):
        assert each["energy"] == pytest.approx(image.get_potential_energy(), abs=1e-9)
    barriers = members.max(1) - members[:, 0]
    assert barriers.shape == (3,)
    assert barriers.std() > 0
