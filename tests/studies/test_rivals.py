"""LLPR and the Gaussian process of studies/rivals obey their defining equations."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from equibayes.posterior.file import Posterior, load
from studies.rivals.gp import ETHANOL
from studies.rivals.kernel import Covariance, Kernel, pair_orders, points_of, without_rigid_motion
from studies.rivals.process import Process, Settings
from studies.rivals.protocol import arrays_of, evaluated, frames_of, scale_of
from studies.rivals.rigidity import Features, features_of, hessian, last_layer, rigidity, spread
from tests.studies.running import ROOT, run_study

KERNELS = [Kernel("gauss", 0.8), Kernel("matern", 3.0)]
FRAMES = 12


@pytest.fixture(scope="module")
def known() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Positions, forces and energies of a few frames of ethanol, and of as many others after them."""
    positions, forces, energy = arrays_of(frames_of(2 * FRAMES, test=1).learned)
    return torch.from_numpy(positions), torch.from_numpy(forces), torch.from_numpy(energy)


def process(
    known: tuple[torch.Tensor, torch.Tensor, torch.Tensor], kernel: Kernel = KERNELS[0], noise: float = 1e-5
) -> Process:
    positions, forces, energy = (array[:FRAMES] for array in known)
    return Process(positions, forces, float(energy.mean()), Settings(kernel, noise), ETHANOL)


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.kind)
def test_covariances_are_derivatives_of_the_kernel(kernel: Kernel, known: tuple[torch.Tensor, ...]) -> None:
    orders = pair_orders(ETHANOL)
    here, there = known[0][:1], known[0][1:2]

    def energies(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return kernel(points_of(a).x[:, None] - points_of(b).x[:, orders])[0].sum()

    points = points_of(here)
    value, energy_forces, forces = Covariance(points_of(there), kernel, orders).of_frame(
        points.x[0], points.jacobian[0]
    )
    assert value.item() == pytest.approx(energies(here, there).item())
    slope = torch.autograd.functional.jacobian(lambda b: energies(here, b), there)
    torch.testing.assert_close(energy_forces, -slope.flatten())
    curvature = torch.autograd.functional.hessian(energies, (here, there))[0][1]
    torch.testing.assert_close(forces, curvature.reshape(27, 27))


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.kind)
def test_covariance_matrix_is_symmetric_and_positive(kernel: Kernel, known: tuple[torch.Tensor, ...]) -> None:
    points = without_rigid_motion(points_of(known[0][:FRAMES]))[0]
    covariance = Covariance(points, kernel, pair_orders(ETHANOL))
    rows = [covariance.of_frame(x, jacobian)[2] for x, jacobian in zip(points.x, points.jacobian)]
    whole = torch.cat(rows)
    torch.testing.assert_close(whole, whole.T)
    torch.testing.assert_close(covariance.matrix().tril(), whole.tril())
    assert torch.linalg.eigvalsh(whole).min() > 0, (
        "nothing is certain before the data, but rigid motion, which is left out"
    )


def test_forces_are_minus_the_slope_of_the_energy(known: tuple[torch.Tensor, ...]) -> None:
    found, frame, step = process(known), known[0][FRAMES], 1e-4
    moves = step * torch.eye(27, dtype=torch.float64).reshape(27, 9, 3)
    up, down = (found.predict(frame + sign * moves, variances=False).energy for sign in (1, -1))
    forces = found.predict(frame[None], variances=False).forces
    torch.testing.assert_close(-(up - down).reshape(1, 9, 3) / (2 * step), forces, rtol=0, atol=1e-5)


def test_equivalent_atoms_and_rigid_motion_make_no_difference(known: tuple[torch.Tensor, ...]) -> None:
    assert len(ETHANOL) == 6
    found, frame = process(known), known[0][FRAMES]
    turn = torch.linalg.qr(torch.randn(3, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))).Q
    before, after = (found.predict(each[None]) for each in (frame, frame @ turn + 1.0))
    torch.testing.assert_close(after.energy, before.energy)
    torch.testing.assert_close(after.energy_sigma, before.energy_sigma)
    torch.testing.assert_close(after.forces, before.forces @ turn)
    for member in ETHANOL:
        swapped = found.predict(frame[list(member)][None])
        torch.testing.assert_close(swapped.energy, before.energy)
        torch.testing.assert_close(swapped.forces, before.forces[:, list(member)])
        torch.testing.assert_close(swapped.forces_sigma, before.forces_sigma[:, list(member)])


def test_what_is_known_is_certain_and_doubt_grows_away_from_it(known: tuple[torch.Tensor, ...]) -> None:
    found = process(known, noise=1e-9)
    positions, forces, _ = (array[:FRAMES] for array in known)
    there = found.predict(positions)
    torch.testing.assert_close(there.forces, forces, rtol=0, atol=0.01)
    noise = torch.randn(positions.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    sigmas = [found.predict(positions + size * noise).forces_sigma.mean().item() for size in (0.0, 0.01, 0.03, 0.1)]
    assert sigmas == sorted(sigmas)
    assert sigmas[0] < 0.01 * sigmas[-1]


def test_energy_of_the_process_is_a_difference_from_the_known_mean(known: tuple[torch.Tensor, ...]) -> None:
    found = process(known)
    energy = found.predict(known[0][:FRAMES]).energy
    assert energy.mean().item() == pytest.approx(found.mean_energy, abs=1e-6)
    error = energy - known[2][:FRAMES]
    assert error.std() < 0.2 * known[2][:FRAMES].std(), "integrated forces follow the energies"


def test_evidence_is_the_density_of_the_labels(known: tuple[torch.Tensor, ...]) -> None:
    found = process(known)
    points, directions = without_rigid_motion(points_of(known[0][:FRAMES]))
    labels = torch.einsum("nqm,nq->nm", directions, known[1][:FRAMES].flatten(1)).flatten()
    lower = Covariance(points, KERNELS[0], pair_orders(ETHANOL)).matrix().tril()
    covariance = lower + lower.tril(-1).T + 1e-5 * torch.eye(len(labels))
    direct = torch.distributions.MultivariateNormal(torch.zeros_like(labels), found.signal * covariance)
    assert found.log_evidence == pytest.approx(direct.log_prob(labels).item(), rel=1e-6)


@pytest.fixture(scope="module")
def network() -> Posterior:
    return load(ROOT / "tests/simulate/ethanol.posterior").subset(1)


def test_features_times_last_layer_are_energies_and_forces(network: Posterior) -> None:
    data = frames_of(5, test=1).learned
    found, layer = features_of(network, data.structures), last_layer(network)
    predictions = network.predict(list(data))
    energy = found.energy @ layer + network.reference.total(data[0].numbers)
    np.testing.assert_allclose(energy, [p.energy for p in predictions], atol=1e-4)
    np.testing.assert_allclose(found.forces @ layer, [p.forces.ravel() for p in predictions], atol=1e-4)


def test_rigidity_is_bayesian_linear_regression_of_the_last_layer() -> None:
    generator = np.random.default_rng(0)
    known = Features(generator.normal(size=(20, 5)), generator.normal(size=(20, 6, 5)))
    noise, energy_weight, ridge = 0.3, 0.5, 0.7
    # noise²/weight is the variance of a label, noise²/ridge the prior variance of a weight; condition on the labels
    rows = np.concatenate([known.energy, known.forces.reshape(-1, 5)])
    labels = noise**2 * np.concatenate([np.full(20, 1 / energy_weight), np.ones(120)])
    prior = noise**2 / ridge * np.eye(5)
    gain = prior @ rows.T @ np.linalg.inv(rows @ prior @ rows.T + np.diag(labels))
    posterior = prior - gain @ rows @ prior
    new = generator.normal(size=(7, 5))
    inverse = np.linalg.inv(hessian(known, energy_weight) + ridge * np.eye(5))
    np.testing.assert_allclose(noise * spread(new, inverse), np.sqrt(np.einsum("ni,ij,nj->n", new, posterior, new)))


def test_alpha_is_the_size_of_the_errors() -> None:
    generator = np.random.default_rng(0)
    other = Features(generator.normal(size=(40, 5)), generator.normal(size=(40, 6, 5)))
    matrix = np.diag([1e-3, 1.0, 10.0, 100.0, 1000.0])
    forces, energy = (spread(each, np.linalg.inv(matrix)) for each in (other.forces, other.energy))
    forces, energy = 3 * forces * generator.normal(size=(40, 6)), 5 * energy * generator.normal(size=40)
    found, tried = rigidity(matrix, other, energy, forces)
    assert found.ridge < 1e-5, "a larger one would hide what is least known"
    assert (found.alpha_forces, found.alpha_energy) == pytest.approx((3, 5), rel=0.2)
    twice, _ = rigidity(matrix, other, 2 * energy, 2 * forces)
    np.testing.assert_allclose(twice.forces_sigma(other), 2 * found.forces_sigma(other))
    np.testing.assert_allclose(twice.energy_sigma(other), 2 * found.energy_sigma(other))
    best = max(tried, key=lambda row: row["held_back_force_mll"])
    sigma = found.forces_sigma(other)
    direct = (-0.5 * (forces / sigma) ** 2 - np.log(sigma)).mean() - 0.5 * np.log(2 * np.pi)
    assert best["held_back_force_mll"] == pytest.approx(direct)


def test_frames_are_those_of_the_comparison_and_do_not_overlap() -> None:
    frames = frames_of(None)
    sets = (frames.learned, frames.held_back, frames.test)
    assert [len(each) for each in sets] == [970, 30, 1000]
    assert len({s.geometry_digest() for each in sets for s in each}) == 2000
    few = frames_of(50)
    assert [len(each) for each in (few.learned, few.held_back, few.test)] == [50, 30, 1000]
    assert few.test.fingerprint() == frames.test.fingerprint()


def test_metrics_see_both_parts_of_sigma() -> None:
    data = frames_of(3, test=1).learned
    _, forces, energy = arrays_of(data)
    result = evaluated(data, (energy + 1, np.full(3, 3.0), 4.0), (forces, np.ones_like(forces), 0.0))
    np.testing.assert_allclose(result.energy_sigma, 5.0)
    np.testing.assert_allclose(result.energy_error, 1.0)
    np.testing.assert_allclose(result.force_error, 0.0)
    assert scale_of(result.energy_error, result.energy_sigma) == pytest.approx(0.2)


def test_process_from_the_command_line(tmp_path: Path) -> None:
    words = ["--frames", "6", "--test", "4", "--subsets", "3", "6", "-o", str(tmp_path)]
    run_study("rivals.gp", *words)
    found = json.loads((tmp_path / "gp-6.json").read_text())
    assert found["frames"] == {"learned": 6, "held_back": 30, "test": 4}
    raw, scaled = (found["methods"][name] for name in ("gp", "gp, scaled"))
    assert raw["force_mae"] == scaled["force_mae"]
    factor = found["settings"]["held_back_factors"]["forces"]
    assert scaled["force_sharpness"] == pytest.approx(factor * raw["force_sharpness"])
    assert {"commit", "hardware", "versions"} <= found["provenance"].keys()
