"""The official NequIP package as it evaluates its own models (test-only dependency)."""

import warnings
from typing import Any

import numpy as np
import torch

from equibayes.data import Structure
from equibayes.network.nequip import NequIP
from equibayes.network.pretrained import Pretrained
from tests.models import graph
from tests.samples import SPECIES

ENLARGE = 1.3


def settings(**changes: Any) -> dict[str, Any]:
    """Arguments of NequIPGNNModel for a small model that knows all sample species, all scales different."""
    return {
        "seed": 1,
        "model_dtype": "float64",
        "r_max": 4.0,
        "type_names": list(SPECIES),
        "num_layers": 2,
        "l_max": 1,
        "num_features": 4,
        "radial_mlp_depth": 2,
        "radial_mlp_width": 8,
        "avg_num_neighbors": 11.3,
        "per_type_energy_scales": {name: 0.4 + 0.1 * i for i, name in enumerate(SPECIES)},
        "per_type_energy_shifts": {name: -3.0 + i for i, name in enumerate(SPECIES)},
        "bessel_trainable": True,
        **changes,
    }


def build(*, enlarge: float = ENLARGE, **arguments: Any) -> torch.nn.Module:
    """NequIPGNNModel(**arguments) with weights that leave no part of the function unused.

    Fresh features shrink from layer to layer until every gate is linear and pseudoscalars vanish, so weights are
    enlarged; trainable Bessel frequencies are moved off their start.  (Not too much: large weights make float32 itself
    inexact, here and there.)
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from nequip.model import NequIPGNNModel
        from nequip.utils.global_state import set_global_state

        set_global_state()
        torch.set_default_dtype(torch.float64)  # which the package sets only once in a process
        model = NequIPGNNModel(**arguments)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("bessel_weights"):
                parameter += 0.1 * torch.sin(torch.arange(parameter.numel()).reshape(parameter.shape))
            elif "scale_shift" not in name:
                parameter *= enlarge
    return model


def evaluate_official(model: torch.nn.Module, structure: Structure, names: list[str], r_max: float) -> dict[str, Any]:
    """energy (eV, shifts included), forces, stress (None for molecules), as the package computes them."""
    from nequip.data import from_ase
    from nequip.data.transforms import ChemicalSpeciesToAtomTypeMapper, NeighborListTransform

    torch.set_default_dtype(torch.float64)  # the package works in it
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        data = ChemicalSpeciesToAtomTypeMapper(names)(from_ase(structure.to_atoms()))
        data = model(NeighborListTransform(r_max=r_max)(data))
    stress = data["stress"][0].detach().double().numpy() if structure.pbc.all() else None
    return {
        "energy": data["total_energy"].item(),
        "forces": data["forces"].detach().double().numpy(),
        "stress": stress,
    }


def evaluate_ours(model: Pretrained, structure: Structure, dtype: torch.dtype) -> dict[str, Any]:
    """The same numbers from the converted model."""
    network = NequIP(model.config)
    weights = network.layout.forward_weights(model.weights.to(dtype))
    atoms = graph(structure, model.config.r_max).to(dtype=dtype)
    output = network(weights, atoms)
    stress = (output.virial[0, 0].double() / atoms.volume[0, 0].double()).numpy() if structure.pbc.all() else None
    energy = output.energy.item() + total_shift(model, structure)
    return {"energy": energy, "forces": output.forces[0].double().numpy(), "stress": stress}


def total_shift(model: Pretrained, structure: Structure) -> float:
    """eV; what all atoms have at rest."""
    return sum(model.shifts[symbol] for symbol in structure.to_atoms().get_chemical_symbols())


def relative_error(actual: Any, expected: Any) -> float:
    """Norm of the difference over the norm of the expected value; NaN and inf fail any bound."""
    difference = np.linalg.norm(np.atleast_1d(actual) - np.atleast_1d(expected))
    return float(difference / np.linalg.norm(np.atleast_1d(expected)))


def assert_equal(actual: dict[str, Any], expected: dict[str, Any], tolerance: float) -> None:
    for name, value in expected.items():
        if value is not None:
            error = relative_error(actual[name], value)
            assert error <= tolerance, f"{name}: relative error {error:.2g} > {tolerance:g}"
