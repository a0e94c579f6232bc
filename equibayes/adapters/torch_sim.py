"""A posterior as a model of torch-sim, which relaxes and moves many structures at once.

    model = TorchSimModel("ethanol.posterior")
    relaxed = torch_sim.optimize(atoms_list, model, optimizer=torch_sim.optimizers.fire)

The forward pass gives, for S systems with N atoms in all,

| result                             | shape     | unit  |                                                 |
|------------------------------------|-----------|-------|-------------------------------------------------|
| energy                             | [S]       | eV    |                                                 |
| forces                             | [N, 3]    | eV/Å  |                                                 |
| stress                             | [S, 3, 3] | eV/Å³ | NaN without a volume                            |
| energy_std, _epistemic, _aleatoric | [S]       | eV    | total, spread of the samples, noise             |
| forces_std, _epistemic, _aleatoric | [N, 3]    | eV/Å  |                                                 |
| stress_std                         | [S, 3, 3] | eV/Å³ |                                                 |
| novelty                            | [N]       |       | 1 is the edge of what was learned, NaN: unknown |

All systems are evaluated together, by the engine that all predictions use.  torch-sim's reporter can write any of the
results, which costs no second evaluation: `prop_calculators={10: {"sigma": lambda state, model:
model(state)["forces_std"]}}`.
"""

from pathlib import Path
from typing import Any

import numpy as np
import torch

from equibayes.data.structures import Structure
from equibayes.device import choose_device
from equibayes.errors import InputError
from equibayes.posterior.file import Posterior, load
from equibayes.posterior.prediction import Prediction
from equibayes.simulate.calculator import SKIN
from equibayes.simulate.evaluator import Evaluator

try:
    from torch_sim.models.interface import ModelInterface
    from torch_sim.state import SimState
except ImportError as cause:
    raise InputError(f"torch-sim is needed ({cause}); pip install 'equibayes[torchsim]'") from cause

_PARTS = ("std", "epistemic", "aleatoric")
OF_SYSTEMS = ("energy", *(f"energy_{part}" for part in _PARTS))
OF_ATOMS = ("forces", *(f"forces_{part}" for part in _PARTS))
OF_CELLS = ("stress", "stress_std")


class TorchSimModel(ModelInterface):
    """See the table at the top of this file."""

    def __init__(
        self,
        posterior: str | Path | Posterior,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype = torch.float64,
        k: int | None = None,
        skin: float = SKIN,
        compute_stress: bool = True,
    ) -> None:
        """posterior  a file, or a loaded posterior
        device     "cpu" or "cuda" (default: cuda if there is one)
        dtype      of torch-sim's tensors; the network keeps its own precision
        k          use the first k samples (default: all)
        skin       Å beyond the cutoff for which neighbours are stored
        """
        super().__init__()
        loaded = posterior if isinstance(posterior, Posterior) else load(posterior)
        self.posterior = loaded if k is None else loaded.subset(k)
        self._device, self._dtype = torch.device(choose_device(device)), dtype
        self._compute_stress, self._compute_forces = compute_stress, True
        self._evaluator = Evaluator(self.posterior, self._device, None, skin)
        self._known: dict[bytes, Prediction] = {}

    def forward(self, state: "SimState | dict[str, Any]", **_: Any) -> dict[str, torch.Tensor]:
        """Results by name, on the device and in the dtype of this model."""
        predictions = self._predictions(_structures(state))
        results = {name: np.array([getattr(each, name) for each in predictions]) for name in OF_SYSTEMS}
        results |= {name: np.concatenate([getattr(each, name) for each in predictions]) for name in OF_ATOMS}
        results["novelty"] = np.concatenate([_novelty(each) for each in predictions])
        if self._compute_stress:
            results |= {name: np.stack([_of_cell(each, name) for each in predictions]) for name in OF_CELLS}
        return {name: torch.from_numpy(values).to(self._device, self._dtype) for name, values in results.items()}

    def _predictions(self, structures: list[Structure]) -> list[Prediction]:
        """Those of the last call are kept: reporters ask for its systems again, one by one."""
        keys = [structure.geometry_digest() for structure in structures]
        if not set(keys) <= set(self._known):
            self._known = dict(zip(keys, self._evaluator(structures)))
        return [self._known[key] for key in keys]


def _structures(state: "SimState | dict[str, Any]") -> list[Structure]:
    """The systems one by one; torch-sim's cells have the vectors as columns."""
    given = state if isinstance(state, dict) else vars(state)
    names = ("atomic_numbers", "positions", "cell", "system_idx")
    # copied: torch-sim moves atoms in place, and neighbour lists keep the structure
    numbers, positions, cells, system = (given[name].detach().cpu().clone().numpy() for name in names)
    periodic = np.broadcast_to(torch.as_tensor(given["pbc"]).cpu().numpy(), 3)
    last = np.cumsum(np.bincount(system, minlength=len(cells)))
    return [
        Structure(numbers[first:end], positions[first:end], cell.T * periodic.any(), periodic)
        for first, end, cell in zip([0, *last], last, cells)
    ]


def _novelty(prediction: Prediction) -> np.ndarray:
    """[n]"""
    return np.full(len(prediction.forces), np.nan) if prediction.novelty is None else prediction.novelty


def _of_cell(prediction: Prediction, name: str) -> np.ndarray:
    """[3, 3]"""
    found = getattr(prediction, name)
    return np.full((3, 3), np.nan) if found is None else np.asarray(found)
