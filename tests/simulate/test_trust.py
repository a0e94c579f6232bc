"""Deviations and trust levels; above all, that not knowing is never taken for certainty."""

from dataclasses import replace

import numpy as np
import pytest

from equibayes.errors import InputError
from equibayes.posterior.file import load
from equibayes.simulate.trust import STATES, Deviation, Trust, trust_level
from tests.simulate.posteriors import ETHANOL, random_posterior


def test_deviation_of_known_numbers() -> None:
    found = Deviation.of(np.array([[3.0, 0, 0], [1, 1, 1], [0, 2, 2]]))
    assert found.largest == pytest.approx(np.sqrt(3))
    assert found.smallest == 1.0
    assert found.mean == pytest.approx((np.sqrt(3) + 1 + np.sqrt(8 / 3)) / 3)
    assert found.atom == 0


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_not_a_number_is_not_certain(bad: float) -> None:
    sigma = np.full((4, 3), 0.01)
    sigma[2, 1] = bad
    found = Deviation.of(sigma)
    assert (found.largest, found.atom) == (np.inf, 2)
    for trust in (Trust(), Trust(0.1), Trust(0.1, 0.5), Trust(None, 0.5)):
        assert trust.state(found.largest) == "unknown"
    assert Trust(0.1, 0.5).state(float("nan")) == "unknown"


def test_band() -> None:
    trust = Trust(0.1, 0.5)
    found = [trust.state(value) for value in (0.0, 0.0999, 0.1, 0.4999, 0.5, 100.0)]
    assert found == ["trusted", "trusted", "candidate", "candidate", "exploded", "exploded"]
    assert Trust(0.1).state(100.0) == "candidate"
    assert Trust(None, 0.5).state(0.4) == "trusted"
    assert Trust().state(100.0) == "trusted"
    assert set(found) < set(STATES)


def test_not_knowing_beats_any_deviation() -> None:
    trust = Trust(0.1, 0.5)
    found = [trust.state(deviation, novelty) for novelty in (0.99, 1.0, 2.99, 3.0) for deviation in (0.01, 0.2, 0.6)]
    inside = ["trusted", "candidate", "exploded"]
    novel = ["candidate", "candidate", "exploded"]
    assert found == inside + novel + novel + ["unknown"] * 3
    assert Trust(novelty_lower=None, novelty_upper=None).state(0.1, 1000.0) == "trusted"
    assert Trust(0.1, 0.5).state(0.01, float("nan")) == "trusted", "not known: no reason for doubt"


def test_sentences() -> None:
    sigma, novelty, numbers = np.full((2, 3), 0.2), np.array([0.4, 1.7]), np.array([1, 8])

    def said(trust: Trust, factor: float = 1.0) -> str:
        return trust.sentence(Deviation.of(sigma, factor * novelty), numbers)

    assert said(Trust(0.1)) == "σ of atom 0 (H) is 0.200 eV/Å, above the lower trust level"
    assert said(Trust(None, 0.1)) == "σ of atom 0 (H) is 0.200 eV/Å, above the upper trust level"
    assert said(Trust()) == "the novelty of atom 1 (O) is 1.7: beyond what was learned"
    assert said(Trust(0.1), 2.0) == "the novelty of atom 1 (O) is 3.4: the model does not know"
    assert (
        Trust().sentence(Deviation.of(np.full((2, 3), np.nan)), numbers).endswith("not finite: the model does not know")
    )


def test_levels_from_words() -> None:
    posterior = load(ETHANOL)
    error = posterior.history[-1]["validation_force_mae_of_mean"]
    assert trust_level("0.25", posterior, "--trust-lo") == 0.25
    assert trust_level("2.5x", posterior, "--trust-lo") == pytest.approx(2.5 * error)
    assert trust_level(None, posterior, "--trust-lo") is None
    with pytest.raises(InputError, match=r"--trust-lo high: give eV/Å such as 0.2, or a multiple"):
        trust_level("high", posterior, "--trust-lo")
    with pytest.raises(InputError, match="no frames were held back"):
        trust_level("2x", replace(random_posterior(1), history=[]), "--trust-lo")


@pytest.mark.parametrize("levels", [(0.0, 1.0), (-1.0, None), (0.5, 0.1), (float("nan"), None), (None, float("inf"))])
def test_senseless_levels_of_sigma(levels: tuple[float | None, float | None]) -> None:
    with pytest.raises(InputError, match="trust level"):
        Trust(*levels)


@pytest.mark.parametrize("levels", [(0.0, 1.0), (-1.0, None), (2.0, 1.0), (float("nan"), None)])
def test_senseless_levels_of_novelty(levels: tuple[float | None, float | None]) -> None:
    with pytest.raises(InputError, match="level of novelty"):
        Trust(None, None, *levels)
