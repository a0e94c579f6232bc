"""A posterior as a metatomic model: one file for every program that runs such models.

    equibayes export water.posterior --format metatomic -o water.pt

| output             | per    | unit |                                                              |
|--------------------|--------|------|--------------------------------------------------------------|
| energy             | atom   | eV   | the mean over the samples; forces are its gradient           |
| energy_ensemble    | atom   | eV   | of each sample; programs derive forces and virials from it   |
| energy_uncertainty | system | eV   | σ of the energy, as `Posterior.predict` gives it, calibrated |

The file holds TorchScript: the network is recorded while the reference evaluates it (`_Recorded`), and the rest is
compiled (metatomic_model.py), with geometry and energies in float64.
"""

import warnings
from pathlib import Path

import numpy as np
import torch
from ase.formula import Formula

from equibayes.bayes.heads import ENERGY_HEAD, head
from equibayes.bayes.model import StochasticModel
from equibayes.data.elements import symbol
from equibayes.data.graph import Graph
from equibayes.errors import InputError
from equibayes.files import write_atomically
from equibayes.network.harmonics import edge_geometry
from equibayes.plural import counted
from equibayes.posterior.calibration import Calibration, Rescaling
from equibayes.posterior.file import Posterior
from equibayes.posterior.linearised import weight_sets
from equibayes.version import __version__

try:
    from metatomic.torch import AtomisticModel, ModelCapabilities, ModelMetadata, ModelOutput

    from equibayes.adapters.metatomic_model import PosteriorModel
except ImportError as cause:
    raise InputError(f"metatomic is needed ({cause}); pip install 'equibayes[metatomic]'") from cause


class _Recorded(torch.nn.Module):
    """Energies and ln σ_E of atoms for one device, precision and set of samples; any number of atoms and neighbours."""

    def __init__(self, model: StochasticModel, samples: torch.Tensor) -> None:
        super().__init__()
        self.model = model
        self.places = {name: name.replace(".", "_") for name in model.layout.names}
        for name, values in model.layout.forward_weights(samples).items():
            self.register_buffer(self.places[name], values)

    def forward(self, species: torch.Tensor, sender: torch.Tensor, vector: torch.Tensor) -> "tuple[torch.Tensor, ...]":
        """species [N], sender [N, D], vector [N, D, 3] Å -> two of [K, N], float64."""
        weights = {name: getattr(self, place) for name, place in self.places.items()}
        chains, l_max = weights["embedding"].shape[0], self.model.config.l_max
        alone = torch.zeros_like(species)[None]
        graph = Graph(species[None], sender[None], sender[None], vector[None], alone, alone, alone)
        geometry = edge_geometry(graph.vector, l_max)
        harmonics = geometry.harmonics.to(weights["embedding"]).expand(chains, -1, -1, -1)
        length = geometry.length.expand(chains, -1, -1)
        energies, features, _ = self.model.network.atomic_energies(weights, graph, length, harmonics)
        return energies, head(ENERGY_HEAD, weights, features).double()


def export(posterior: Posterior, path: str | Path, *, device: str = "cpu", name: str = "equibayes") -> None:
    """Write the file.  device: the one that it will run on, which is recorded in it."""
    if posterior.dropout:
        raise InputError("the dropout baseline cannot be exported: its masks depend on the batch")
    if posterior.baseline is not None:
        raise InputError(
            f"this posterior corrects {posterior.baseline}, which cannot be exported; use its ASE calculator"
        )
    sets, mix = _weight_sets(posterior)
    rescaling = _rescaling(posterior)
    network = recorded(posterior.model, sets.to(device))
    reach = posterior.network.r_max
    model = PosteriorModel(network, reach, rescaling.factor, rescaling.spread, _tables(posterior, rescaling, mix))
    energies = {
        "energy": ModelOutput(unit="eV", sample_kind="atom", description="mean over the samples"),
        "energy_ensemble": ModelOutput(unit="eV", sample_kind="atom", description="of each sample"),
        "energy_uncertainty": ModelOutput(unit="eV", sample_kind="system", description="σ of the energy"),
    }
    capabilities = ModelCapabilities(
        outputs=energies,
        atomic_types=list(posterior.species_of),
        interaction_range=reach * posterior.network.num_layers,
        length_unit="angstrom",
        supported_devices=[torch.device(device).type],
        dtype="float64",
    )
    about = f"NequIP posterior, {counted(len(posterior), 'sample')}; exported by equibayes {__version__}"
    whole = AtomisticModel(model.eval().to(device), ModelMetadata(name=name, description=about), capabilities)
    write_atomically(path, lambda temporary: _save(whole, temporary))


def recorded(model: StochasticModel, samples: torch.Tensor) -> torch.nn.Module:
    """`_Recorded` as TorchScript; what was recorded holds for any numbers of atoms and neighbours."""
    example = torch.zeros(2, dtype=torch.int64), torch.tensor([[1, 0, 0], [0, 1, 1]])
    vector = torch.rand(2, 3, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    inputs = tuple(each.to(samples.device) for each in (*example, vector))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # TorchScript is what metatomic reads
        warnings.simplefilter("ignore", torch.jit.TracerWarning)
        return torch.jit.trace(_Recorded(model, samples).eval(), inputs, check_trace=False)


def _save(model: AtomisticModel, path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        model.save(str(path))


def _weight_sets(posterior: Posterior) -> tuple[torch.Tensor, torch.Tensor]:
    """[K, P], and [k, K]: the energies of k samples from those of K weight sets (see linearised.py)."""
    k = len(posterior)
    if posterior.tangent is None:
        return posterior.samples, torch.eye(k, dtype=torch.float64)
    sets, h = weight_sets(posterior.samples, posterior.tangent)
    slope = torch.from_numpy(0.5 / h.astype(np.float64))
    rows = torch.stack([torch.ones_like(slope), slope, -slope], 1)
    return sets, torch.block_diag(*rows[:, None]).double()


def _tables(posterior: Posterior, rescaling: Rescaling, mix: torch.Tensor) -> dict[str, torch.Tensor]:
    """See `PosteriorModel`."""
    reference, numbers = posterior.reference, list(posterior.species_of)
    formulas = [Formula(name).count() for name in reference.offsets]
    counts = [[count.get(symbol(z), 0) for z in numbers] for count in formulas]
    species_of = torch.zeros(max(numbers) + 1, dtype=torch.int64)
    species_of[numbers] = torch.arange(len(numbers))
    knots = rescaling.knots or (np.zeros(1), np.zeros(1))
    return {
        "mix": mix,
        "centres": torch.arange(len(mix)) * (mix.shape[1] // len(mix)),
        "species_of": species_of,
        "shifts": torch.tensor([reference.shifts.get(z, 0.0) for z in numbers], dtype=torch.float64),
        "formulas": torch.tensor(counts, dtype=torch.int64).reshape(-1, len(numbers)),
        "offsets": torch.tensor(list(reference.offsets.values()), dtype=torch.float64),
        "knots": torch.from_numpy(np.stack(knots)),
    }


def _rescaling(posterior: Posterior) -> Rescaling:
    """Of the σ of energies."""
    if posterior.calibration is None:
        return Rescaling()
    return Calibration.from_dict(posterior.calibration).energy.rescaling(len(posterior))
