"""One rule for the device: the one that is named, else a GPU if there is one."""

import pytest
import torch

import equibayes
from equibayes.cli.device import chosen_device
from equibayes.cli.main import parse
from equibayes.device import choose_device
from equibayes.errors import InputError
from equibayes.simulate.calculator import Calculator
from tests.samples import water
from tests.simulate.posteriors import random_posterior


def test_the_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert (choose_device().type, choose_device("cpu").type) == ("cuda", "cpu")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert choose_device().type == "cpu"
    with pytest.raises(InputError, match="device cuda: no GPU is visible"):
        choose_device("cuda")
    with pytest.raises(InputError, match="device gpu: there is no such device"):
        choose_device("gpu")


def test_everybody_asks_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a GPU everything goes there, and here that fails; without one everything stays on the CPU."""
    posterior, atoms = random_posterior(2), water().to_atoms()
    expected = posterior.predict(atoms, device="cpu").energy
    assert posterior.predict(atoms).energy == expected
    asked = []
    for module in ("posterior.predict", "run.options", "simulate.calculator", "cli.device"):
        monkeypatch.setattr(
            f"equibayes.{module}.choose_device", lambda wanted: asked.append(wanted) or torch.device("cpu")
        )
    assert posterior.predict([atoms])[0].energy == expected
    assert equibayes.Run().on == torch.device("cpu")
    Calculator(posterior)
    chosen_device(parse(["predict", "a.posterior", "b.xyz", "-o", "c.xyz", "--device", "cpu"]))
    assert asked[:3] == [None, None, None]
    assert asked[-1] == "cpu"
