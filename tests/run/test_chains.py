"""Where chains begin: a function of the seed and of their own number."""

import pytest
import torch

from equibayes.bayes.prior import CentredNormal
from equibayes.data import Dataset
from equibayes.run.chains import START_SHARE, Chains, make_chains, start_near_center
from equibayes.run.prepare import prepare
from equibayes.sampling.noise import NoiseKey
from tests.runs import ethanol_frames, small_config


@pytest.fixture(scope="module")
def data() -> Dataset:
    return ethanol_frames(8)


def chains_of(data: Dataset, seed: int, **options: object) -> Chains:
    config = small_config({"seed": seed, "chains": 3, "samples": 3, "data": {"validation": 2}})
    return make_chains(prepare(data, config), data, "cpu", **options)  # type: ignore[arg-type]


def test_start_weights_follow_the_seed(data: Dataset) -> None:
    first, same, other = (chains_of(data, seed) for seed in (7, 7, 8))
    layout = first.potential.model.layout
    assert torch.equal(first.start, layout.start(3, seed=7))
    assert torch.equal(first.start, same.start)
    assert first.key.seed == 7
    for chain in range(3):
        assert not torch.equal(first.start[chain], other.start[chain])


def test_start_weights_belong_to_the_number_of_a_chain(data: Dataset) -> None:
    every, two = chains_of(data, 7), chains_of(data, 7, identities=[2, 0])
    assert torch.equal(two.start, every.start[[2, 0]])
    assert tuple(two.key.chains) == (2, 0)


def test_start_near_a_centre_follows_the_seed_and_the_width() -> None:
    """A tenth of a width from the centre, in every chain elsewhere."""
    center, width = torch.linspace(-1, 1, 20_000), torch.full((20_000,), 0.5)
    width[:10_000] = 2.0
    prior = CentredNormal(center, width)
    start = start_near_center(prior, NoiseKey(7, (0, 3)))
    assert torch.equal(start, start_near_center(prior, NoiseKey(7, (0, 3))))
    assert not torch.equal(start, start_near_center(prior, NoiseKey(8, (0, 3))))
    assert torch.equal(start[1:], start_near_center(prior, NoiseKey(7, (3,))))
    distance = (start - center) / width
    assert float(distance[:, :10_000].std()) == pytest.approx(START_SHARE, rel=0.03)
    assert float(distance[:, 10_000:].std()) == pytest.approx(START_SHARE, rel=0.03)
    assert START_SHARE == 0.1
