"""Recalibration: right where the truth is known, and never a loss worth mentioning."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from equibayes.data import Dataset, read
from equibayes.errors import InputError
from equibayes.posterior.calibrate import _numbers_of_samples, calibrate, find, store
from equibayes.posterior.calibration import METHODS, Calibration, Rescaling, spread_of
from equibayes.posterior.choose import choose, coverage, folds
from equibayes.posterior.conformal import quantile
from equibayes.posterior.file import Posterior, load
from equibayes.posterior.predict import predict
from equibayes.posterior.rescale import FITS, Residuals, rising
from equibayes.posterior.sample import sample
from equibayes.posterior.seen import marks_of, unseen
from equibayes.posterior.sigma import Sigma
from tests.posterior.synthetic import energy_errors, force_errors
from tests.runs import ethanol_frames, small_config

# ---- the fits, on errors whose law is known


def test_a_right_sigma_is_left_alone() -> None:
    """`spread` as the finite-k correction assumes it, so that `scale` is well specified too: r = 1 up to its
    caution."""
    residuals = force_errors(np.random.default_rng(0), 300, spread=spread_of(8))
    assert FITS["scale"](residuals).factor == pytest.approx(1.0, abs=0.01)
    species = FITS["species"](residuals).species
    assert species.keys() == {1, 6, 8}
    assert all(abs(factor - 1) < 0.04 for factor in species.values())
    monotone = FITS["monotone"](residuals).apply(residuals.sigma).total / Rescaling(spread=spread_of(8)).base(
        residuals.sigma
    )
    assert abs(monotone - 1).max() < 0.08


@pytest.mark.parametrize("factor", [0.3, 0.7, 1.5, 4.0])
def test_a_wrong_factor_is_found(factor: float) -> None:
    for residuals in (
        force_errors(np.random.default_rng(1), 300, factor=factor, spread=spread_of(8)),
        energy_errors(np.random.default_rng(1), 3000, factor=factor, k=1),
    ):
        assert FITS["scale"](residuals).factor == pytest.approx(factor, rel=0.05)


def test_both_parts_of_sigma_are_told_apart() -> None:
    fitted = FITS["parts"](force_errors(np.random.default_rng(2), 300, factor=0.8, spread=3.0))
    assert fitted.spread == pytest.approx(3.0, rel=0.1)
    assert fitted.factor == pytest.approx(0.8, rel=0.05)


def test_the_spread_never_vanishes() -> None:
    """Errors that have nothing to do with the epistemic part: it is kept at a fifth of its usual weight, for what
    lies outside."""
    fitted = FITS["parts"](force_errors(np.random.default_rng(3), 300, spread=0.0))
    assert fitted.spread == pytest.approx(spread_of(8) / 5)


def test_every_species_has_its_factor_and_a_rare_one_follows_the_rest() -> None:
    truth = {1: 0.5, 6: 1.0, 8: 3.0}
    residuals = force_errors(np.random.default_rng(4), 300, factor=truth, spread=spread_of(8))
    assert FITS["species"](residuals).species == pytest.approx(truth, rel=0.06)
    rare = residuals[(residuals.number != 8) | (residuals.frame < 1)]  # three components of oxygen
    fitted = FITS["species"](rare)
    assert fitted.species[1] == pytest.approx(0.5, rel=0.06)
    assert abs(fitted.species[8] - fitted.factor) < abs(3.0 - fitted.species[8])
    one = residuals[residuals.number == 1]
    assert not FITS["species"](one).species, "with a single species this is `scale`"


def test_every_species_is_drawn_to_the_rest_by_thirty_components() -> None:
    """r² = (Σ z² + 30 r̄²) / (n + 30), with r̄ that of all, here about 2."""
    residuals = force_errors(np.random.default_rng(4), 20, factor={1: 1.5, 6: 2.0, 8: 3.0}, spread=spread_of(8))
    overall, fitted = FITS["scale"](residuals), FITS["species"](residuals)
    assert overall.factor == pytest.approx(2.0, abs=0.3)
    for z in (1, 6, 8):
        own = residuals[residuals.number == z]
        squares = (own.error / overall.base(own.sigma)) ** 2
        expected = (squares.sum() + 30 * overall.factor**2) / (len(squares) + 30)
        assert fitted.species[z] == pytest.approx(np.sqrt(expected), rel=1e-12)


def test_monotone_follows_a_curve_and_keeps_the_order() -> None:
    residuals = force_errors(np.random.default_rng(5), 400, spread=spread_of(8), power=0.4)
    fitted = FITS["monotone"](residuals)
    base = fitted.base(residuals.sigma)
    after = fitted.apply(residuals.sigma).total
    order = np.argsort(base)
    assert (np.diff(after[order]) > -1e-12).all(), "a larger σ stays larger"
    middle = (base > np.quantile(base, 0.1)) & (base < np.quantile(base, 0.9))
    np.testing.assert_allclose(after[middle], base[middle] ** 0.4, rtol=0.12)


def test_monotone_pools_bins_that_would_fall() -> None:
    """Small σ with errors of 2, large σ with errors of 1: both become √2, up to the shrinkage."""
    frame = np.repeat(np.arange(20), 30)
    sigma = np.where(np.arange(600) % 2, 1.0, 1.25)
    error = np.where(sigma == 1, 2.0, 1.0) * np.where(np.arange(600) % 4 < 2, 1.0, -1.0)
    residuals = Residuals(error, Sigma(np.zeros(600), sigma), np.ones(600, int), frame, 1)
    after = FITS["monotone"](residuals).apply(residuals.sigma).total
    assert np.ptp(after) < 1e-12
    assert after == pytest.approx(np.sqrt(2), rel=0.08)


def test_rising_pools_what_falls() -> None:
    np.testing.assert_allclose(rising(np.array([1.0, 3.0, 2.0, 2.5, 5.0])), [1, 2.5, 2.5, 2.5, 5])
    np.testing.assert_allclose(rising(np.array([3.0, 2.0, 1.0])), [2, 2, 2])


def test_thirty_energies_move_sigma_only_as_far_as_they_are_sure_of() -> None:
    """Mean z² of exactly 2 from thirty values: r² is between 1 and 2; from three thousand it is nearly 2."""
    z = np.sqrt(2) * np.where(np.arange(3000) % 2, 1.0, -1.0)
    few, many = (
        FITS["scale"](Residuals(z[:n], Sigma(np.zeros(n), np.ones(n)), np.zeros(n, int), np.arange(n), 1)).factor ** 2
        for n in (30, 3000)
    )
    assert few == pytest.approx(2 * np.exp(-np.sqrt(2 / 30)))
    assert many == pytest.approx(2, rel=0.03)


# ---- the choice


def test_folds_are_whole_configurations_and_cover_all() -> None:
    residuals = force_errors(np.random.default_rng(0), 23)
    parts = list(folds(residuals))
    assert np.sum(parts, axis=0).tolist() == [1] * len(residuals.error)
    assert all(len(np.unique(residuals.frame[part])) in (2, 3) for part in parts)
    assert all(not set(residuals.frame[part]) & set(residuals.frame[~part]) for part in parts)


def test_the_right_method_is_chosen() -> None:
    rng = np.random.default_rng(6)
    assert choose(force_errors(rng, 60))[0] == "none"
    assert choose(force_errors(rng, 60, factor=2.0, spread=spread_of(8)))[0] == "scale"
    assert choose(force_errors(rng, 60, factor={1: 0.6, 6: 1.0, 8: 2.0}, spread=spread_of(8)))[0] == "species"
    assert choose(force_errors(rng, 60, spread=spread_of(8), power=0.3))[0] == "monotone"
    assert choose(force_errors(rng, 60, spread=4.0))[0] in ("parts", "monotone")
    assert list(choose(energy_errors(rng, 30))[1]) == ["none", "scale"], "30 numbers decide about one number at most"


def test_coverage_is_of_frames_left_out() -> None:
    rng = np.random.default_rng(7)
    right = coverage(force_errors(rng, 100), "none")
    assert right == pytest.approx({"50": 0.5, "68": 0.68, "90": 0.9, "95": 0.95}, abs=0.03)
    wrong = force_errors(rng, 100, factor=3.0)
    assert coverage(wrong, "none")["90"] < 0.5
    assert coverage(wrong, "scale")["90"] == pytest.approx(0.9, abs=0.03)
    # one wild frame: a fit that had seen it would cover it
    few = energy_errors(np.random.default_rng(8), 12)
    few.error[:] = 0.5
    few.error[3] = 1e3
    assert coverage(few, "scale")["95"] == pytest.approx(11 / 12)


WORLDS = {
    "right": {},
    "a little too small": {"factor": 1.1},
    "a little too large": {"factor": 0.9},
    "too small": {"factor": 1.5},
    "too large": {"factor": 0.6},
    "heavy tails": {"heavy_tails": True},
}


def gains_on_new_frames(world: dict, make, simulations: int, seed: int) -> np.ndarray:
    """Gain in mean log-likelihood on 1000 new frames by calibrating on 30, over many sets of 30."""
    rng = np.random.default_rng(seed)
    new = make(rng, 1000, **world)
    before = new.log_density(Rescaling()).mean()
    gains = []
    for _ in range(simulations):
        residuals = make(rng, 30, **world)
        fitted = FITS[choose(residuals)[0]](residuals)
        gains.append(new.log_density(fitted).mean() - before)
    return np.array(gains)


@pytest.mark.parametrize("name", WORLDS)
def test_thirty_frames_never_worsen_forces(name: str) -> None:
    gains = gains_on_new_frames(WORLDS[name], force_errors, 10, 0)
    assert gains.mean() > -1e-3
    assert gains.min() > -0.02, "worst loss, in nats a component"
    if name in ("too small", "too large"):
        assert gains.min() > 0.1


@pytest.mark.parametrize("name", WORLDS)
def test_thirty_frames_never_worsen_energies(name: str) -> None:
    """Thirty numbers are few: in 300 worlds at worst a tenth of a nat is lost (more where tails are heavy), on
    average nothing; a factor of 1.5 is mostly seen."""
    gains = gains_on_new_frames(WORLDS[name], energy_errors, 300, 0)
    assert gains.mean() > -5e-3
    assert gains.min() > (-0.2 if name == "heavy tails" else -0.12), "worst loss, in nats"
    assert (gains < -1e-3).mean() < 0.12
    if name == "too small":
        assert gains.mean() > 0.1
        assert gains.min() >= 0


def test_intervals_are_over_the_whole_uncalibrated_sigma() -> None:
    """Scores are |error| / √(epistemic² + aleatoric²), before any rescaling; for each k its own."""
    rng = np.random.default_rng(9)
    by_k = {k: force_errors(rng, 30, factor=3.0, spread=2.0, k=k) for k in (2, 8)}
    found = find(by_k, "scale")
    for k, residuals in by_k.items():
        total = np.sqrt(residuals.sigma.epistemic**2 + residuals.sigma.aleatoric**2)
        for level in (0.5, 0.9):
            expected = quantile(np.abs(residuals.error) / total, residuals.frame, level)
            assert found.quantile(level, k) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    ("residuals", "reason"),
    [
        (energy_errors(np.random.default_rng(0), 9), "9 labelled frames, 10 are needed"),
        (replace(energy_errors(np.random.default_rng(0), 20), error=np.full(20, np.nan)), "not finite"),
        (replace(energy_errors(np.random.default_rng(0), 20), error=np.zeros(20)), "predictions themselves"),
    ],
)
def test_errors_that_teach_nothing(residuals: Residuals, reason: str) -> None:
    found = find({8: residuals}, "scale")
    assert found.method == "none"
    assert reason in found.choice["reason"]
    assert np.isnan(found.quantile(0.9, 8))


def test_ten_frames_are_enough() -> None:
    assert find({8: energy_errors(np.random.default_rng(0), 10)}, "scale").method == "scale"


def test_a_knot_for_every_ten_frames_from_two_to_eight() -> None:
    rng = np.random.default_rng(0)
    fits = [FITS["monotone"](force_errors(rng, frames)) for frames in (12, 29, 30, 79, 80, 200)]
    assert [len(fit.knots[0]) for fit in fits if fit.knots] == [2, 2, 3, 7, 8, 8]


def test_numbers_of_samples_that_are_calibrated() -> None:
    """Every one up to 16, then powers of two, and all."""
    usual = list(range(1, 17))
    assert _numbers_of_samples(4) == usual[:4]
    assert _numbers_of_samples(16) == usual
    assert _numbers_of_samples(40) == [*usual, 32, 40]
    assert _numbers_of_samples(64) == [*usual, 32, 64]


# ---- with a network


@pytest.fixture(scope="module")
def posterior() -> Posterior:
    return sample(ethanol_frames(40), small_config({"burn_in": {"steps": 160}}), device="cpu")


def labelled(posterior: Posterior, factor: float, energy_factor: float, frames: int = 60) -> Dataset:
    """Frames whose labels are drawn from the posterior's own predictive, with σ (of the full k) too small by the
    factors."""
    rng, spread = np.random.default_rng(0), spread_of(len(posterior))
    structures = []
    for structure, p in zip(
        read(f"bundled:ethanol@1000:{1000 + frames}"), predict(posterior, read(f"bundled:ethanol@1000:{1000 + frames}"))
    ):
        forces = np.hypot(p.forces_aleatoric, spread * p.forces_epistemic)
        energy = np.hypot(p.energy_aleatoric, spread * p.energy_epistemic)
        structures.append(
            replace(
                structure,
                forces=p.forces + factor * forces * rng.normal(size=forces.shape),
                energy=float(p.energy + energy_factor * energy * rng.normal()),
            )
        )
    return Dataset(structures, "made")


def test_energies_and_forces_are_calibrated_apart(posterior: Posterior) -> None:
    data = labelled(posterior, 2.0, 5.0)
    after = calibrate(posterior, data)
    found = Calibration.from_dict(after.calibration)
    assert found.forces.method == found.energy.method == "scale"
    assert found.forces.by_k[4].factor == pytest.approx(2.0, rel=0.05)
    assert found.energy.by_k[4].factor == pytest.approx(5.0, rel=0.2)
    assert found.forces.choice["coverage_after"]["68"] == pytest.approx(0.68, abs=0.03)
    assert found.data["fingerprint"] == data.fingerprint()
    assert list(found.forces.by_k) == [1, 2, 3, 4]
    before, now = (replace(each, novelty=None).predict(data[0]) for each in (posterior, after))
    rescaling = found.forces.by_k[4]
    expected = rescaling.factor * np.hypot(before.forces_aleatoric, rescaling.spread * before.forces_epistemic)
    np.testing.assert_allclose(now.forces_std, expected)
    np.testing.assert_allclose(now.forces_std**2, now.forces_epistemic**2 + now.forces_aleatoric**2)
    np.testing.assert_array_equal(now.forces, before.forces)
    assert now.energy == before.energy
    assert now.energy_std / before.energy_std > 3
    one = after.subset(1).predict(data[0])
    assert one.forces_std == pytest.approx(
        found.forces.by_k[1].factor * posterior.subset(1).predict(data[0]).forces_std
    )


def test_intervals_hold_what_they_state(posterior: Posterior) -> None:
    after = calibrate(posterior, labelled(posterior, 3.0, 3.0))
    new = labelled(posterior, 3.0, 3.0, frames=120)[60:]
    inside = {level: [] for level in (0.5, 0.9)}
    for structure, prediction in zip(new, after.predict(list(new))):
        for level, found in inside.items():
            energy, forces = prediction.interval(level)
            found.extend((abs(prediction.forces - structure.forces) <= forces).ravel())
            assert energy > 0
    for level, found in inside.items():
        assert np.mean(found) == pytest.approx(level, abs=0.05)


def test_a_posterior_that_is_right_stays_as_it_is(posterior: Posterior) -> None:
    found = Calibration.from_dict(calibrate(posterior, labelled(posterior, 1.0, 1.0)).calibration)
    assert found.energy.method == "none"
    assert found.forces.choice["factor"] == pytest.approx(1.0, abs=0.05)


@pytest.mark.parametrize("method", METHODS)
def test_a_method_can_be_forced(posterior: Posterior, method: str) -> None:
    after = calibrate(posterior, labelled(posterior, 2.0, 2.0, frames=30), method=method)
    found = Calibration.from_dict(after.calibration)
    assert (found.energy.method, found.forces.method) == (method, method)
    assert np.isfinite(after.predict(ethanol_frames(1)[0]).forces_std).all()


def test_calibrating_twice_is_calibrating_once(posterior: Posterior) -> None:
    data = labelled(posterior, 2.0, 5.0)
    once = calibrate(posterior, data)
    assert calibrate(once, data).calibration == once.calibration, "it starts from the raw σ"


def test_forces_alone(posterior: Posterior) -> None:
    data = Dataset([replace(s, energy=None) for s in labelled(posterior, 2.0, 1.0)], "forces")
    found = Calibration.from_dict(calibrate(posterior, data).calibration)
    assert found.forces.method == "scale"
    assert found.energy.choice["reason"] == "no labelled frames, 10 are needed to calibrate on"


def test_what_cannot_be_calibrated_on(posterior: Posterior) -> None:
    with pytest.raises(
        InputError, match=r"bundled:ethanol@50:55: forces: 5 labelled frames, 10 are needed .*; energies: 5"
    ):
        calibrate(posterior, read("bundled:ethanol@50:55"))
    with pytest.raises(InputError, match="calibration method 'magic': there are auto, none, scale"):
        calibrate(posterior, read("bundled:ethanol@50:55"), method="magic")


# ---- which frames, and the file


def test_frames_that_were_learned_from_are_refused(posterior: Posterior) -> None:
    from equibayes.run.prepare import hold_back

    whole = ethanol_frames(40)
    train, held = hold_back(whole, 4, posterior.config["seed"])
    for part in (train, train[3:10]):
        with pytest.raises(InputError, match="these are frames that the posterior learned from"):
            unseen(marks_of(posterior), part)
    used, words = unseen(marks_of(posterior), whole)
    assert used.fingerprint() == held.fingerprint()
    assert words == "the posterior learned from 36 of these frames; the other 4 are used"
    other = read("bundled:ethanol@100:130")
    assert unseen(marks_of(posterior), other) == (other, "")


def test_stored_and_taken_out_again(posterior: Posterior, tmp_path: Path) -> None:
    source, target = tmp_path / "a.posterior", tmp_path / "b.posterior"
    posterior.save(source, half_precision=True)
    after = calibrate(load(source), labelled(posterior, 2.0, 5.0))
    store(source, target, after.calibration)
    again = load(target)
    assert again.calibration == after.calibration
    assert torch.equal(again.samples, load(source).samples)
    store(target, target, None)
    assert target.read_bytes() == source.read_bytes(), "half precision and all else stays"
