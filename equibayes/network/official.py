"""Conversion of official NequIP models: same energies, forces and stress, weight for weight.

    model = load_official("best.ckpt")                          # a checkpoint of nequip-train
    model = convert_official(settings, nequip_model.state_dict())  # a model built by NequIPGNNModel(**settings)

`model.config` and `model.weights` [1, P] can then be used like ours, for instance as the centre of a prior.

Two things are rearranged.  NequIP multiplies features with a learned embedding of the species in the self-connection;
for each species that is one matrix, which we store.  Weights that cannot reach the energy are left out (irreps.py).
"""

from collections.abc import Mapping
from dataclasses import fields
from math import sqrt
from pathlib import Path
from typing import Any

import torch

from equibayes.errors import InputError
from equibayes.network.config import NetworkConfig
from equibayes.network.irreps import Irrep, LayerPlan
from equibayes.network.nequip import NequIP
from equibayes.network.official_checkpoint import read_checkpoint
from equibayes.network.official_package import read_package
from equibayes.network.pretrained import Pretrained
from equibayes.network.pruning import prune_weights
from equibayes.network.weights import Weights

# NequIP's defaults
OFFICIAL_DEFAULTS: dict[str, Any] = {
    "num_layers": 4,
    "l_max": 1,
    "parity": True,
    "num_features": 32,
    "radial_mlp_depth": 1,
    "radial_mlp_width": 128,
    "num_bessels": 8,
    "polynomial_cutoff_p": 6,
    "type_embed_num_features": None,
}
# architectures that NequIP names; explicit settings go before them
OFFICIAL_PRESETS: dict[str, dict[str, Any]] = {
    name: {"parity": False, "type_embed_num_features": 32, "radial_mlp_depth": 1, "radial_mlp_width": 128, **sizes}
    for name, sizes in {
        "S": {"num_layers": 2, "l_max": 1, "num_features": [128, 64]},
        "M": {"num_layers": 4, "l_max": 2, "num_features": [128, 64, 32]},
        "L": {"num_layers": 6, "l_max": 3, "num_features": [128, 64, 32, 32]},
    }.items()
}
PACKAGE = ".nequip.zip"
COULOMB = 14.399645
"""e²/(4πε₀) of NequIP, eV Å, as in LAMMPS."""
BUILDERS = ("NequIPGNNModel", "PresetNequIPGNNModel")
# settings that change the function in ways we do not have, with the value that leaves it as it is
UNSUPPORTED: dict[str, tuple[Any, ...]] = {
    "per_edge_type_cutoff": (None,),
    "categorical_graph_field_embed": (None,),
    "readout_mlp_hidden_layers_depth": (0,),
    "convnet_sc": (True,),
    "convnet_resnet": (False,),
    "learnable_shift": (False,),
    "convnet_nonlinearity_type": ("gate",),
    "convnet_nonlinearity_scalars": ({"e": "silu", "o": "tanh"},),
    "convnet_nonlinearity_gates": ({"e": "silu", "o": "tanh"},),
}
# settings that say how a model is trained or run, not what it computes
WITHOUT_EFFECT = {
    "_target_",
    "preset",
    "seed",
    "compile_mode",
    "do_derivatives",
    "bessel_trainable",
    "per_type_energy_scales_trainable",
    "per_type_energy_shifts_trainable",
    "readout_mlp_hidden_layers_width",
    "readout_mlp_nonlinearity",
}


def load_official(path: str | Path) -> Pretrained:
    """Convert a NequIP checkpoint (.ckpt) or package (.nequip.zip); nothing in the file is executed."""
    settings, state = read_package(path) if str(path).endswith(PACKAGE) else read_checkpoint(path)
    return convert_official(settings, state, source=str(path))


def convert_official(
    settings: Mapping[str, Any], state: Mapping[str, torch.Tensor], source: str = "NequIP model"
) -> Pretrained:
    """Convert settings (the arguments of NequIPGNNModel) and a state dict with any prefix."""
    state = _strip_prefix(state, source)
    settings, repulsion = _repulsion(settings, state, source)
    config = _config(_supported(settings, source), state)
    full = NequIP(config, prune=False)
    try:
        weights = _weights(full, state)
        expected = {p.name: (1, *p.shape) for p in full.layout.parameters}
        wrong = [name for name, shape in expected.items() if tuple(weights[name].shape) != shape]
        if wrong:
            raise ValueError(f"{wrong[0]} has shape {tuple(weights[wrong[0]].shape)[1:]}, not {expected[wrong[0]][1:]}")
    except (KeyError, RuntimeError, ValueError) as cause:
        reason = f"no {cause.args[0]}" if isinstance(cause, KeyError) else str(cause).splitlines()[0]
        raise InputError(f"{source}: weights and settings do not belong together ({reason})") from cause
    pruned = NequIP(config)
    flat = prune_weights(full, pruned, full.layout.flatten(weights))
    return Pretrained(config, flat, dict(config.per_type_energy_shifts or {}), repulsion=repulsion)


def _repulsion(
    settings: Mapping[str, Any], state: Mapping[str, torch.Tensor], source: str
) -> tuple[dict[str, Any], dict[str, float] | None]:
    """Settings without their pair potential, and the settings of ZBL here, if it is one."""
    pair = settings.get("pair_potential")
    rest = {name: value for name, value in settings.items() if name != "pair_potential"}
    if pair is None:
        return rest, None
    known = (
        isinstance(pair, Mapping) and str(pair.get("_target_", "")).endswith(".ZBL") and pair.get("units") == "metal"
    )
    types = list(pair.get("chemical_species", [])) if known else []
    if not known or types != list(settings.get("type_names", [])):
        raise InputError(
            f"{source}: pair_potential={pair} is not supported here; ZBL in metal units and models without are"
        )
    factor = state.get("pair_potential._qqr2exesquare", torch.tensor(COULOMB / 2))
    return rest, {
        "coulomb": 2 * float(factor),
        "cutoff": float(settings["r_max"]),
        "p": float(pair.get("polynomial_cutoff_p", 6.0)),
    }


def _supported(settings: Mapping[str, Any], source: str) -> dict[str, Any]:
    """Settings with those of a preset filled in; whatever we would compute differently, or do not know, is an error."""
    builder = str(settings.get("_target_", BUILDERS[0]))
    if builder.split(".")[-1] not in BUILDERS:
        raise InputError(f"{source}: built by {builder}; only {' and '.join(BUILDERS)} are supported here")
    preset = settings.get("preset")
    if preset is not None and str(preset).upper() not in OFFICIAL_PRESETS:
        raise InputError(f"{source}: preset={preset} is not supported here; {', '.join(OFFICIAL_PRESETS)} are")
    settings = {**OFFICIAL_PRESETS.get(str(preset).upper(), {}), **settings}
    for name in ("r_max", "type_names"):
        if name not in settings:
            raise InputError(f"{source}: no {name} in the settings of the model")
    ours = {field.name for field in fields(NetworkConfig)}
    for name, value in settings.items():
        if name in UNSUPPORTED and value not in UNSUPPORTED[name]:
            raise InputError(f"{source}: {name}={value} is not supported here; models without it are")
        if name not in UNSUPPORTED and name not in WITHOUT_EFFECT and name not in ours:
            raise InputError(f"{source}: the setting {name}={value} is not known here")
    return settings


def _strip_prefix(state: Mapping[str, torch.Tensor], source: str) -> dict[str, torch.Tensor]:
    anchor = "type_embed.embed_module.weight"
    found = [key.removesuffix(anchor) for key in state if key.endswith(anchor)]
    if not found:
        raise InputError(f"{source}: no '{anchor}' in the state dict; is this a NequIP GNN of version 0.7 or newer?")
    if len(found) > 1:
        raise InputError(f"{source}: holds {len(found)} models ({', '.join(found)}); convert them one by one")
    prefix = found[0]
    return {key.removeprefix(prefix): value.double() for key, value in state.items() if key.startswith(prefix)}


def _config(settings: Mapping[str, Any], state: dict[str, torch.Tensor]) -> NetworkConfig:
    known = {field.name for field in fields(NetworkConfig)}
    values = {**OFFICIAL_DEFAULTS, **{key: value for key, value in settings.items() if key in known}}
    for name in ("num_features", "type_names"):
        if not isinstance(values[name], int):
            values[name] = list(values[name])
    types = values["type_names"]
    for ours, theirs, default in (
        ("per_type_energy_scales", "per_type_energy_scale_shift.scales", 1.0),
        ("per_type_energy_shifts", "per_type_energy_scale_shift.shifts", 0.0),
    ):
        tensor = state.get(theirs, torch.zeros(0)).reshape(-1)
        numbers = tensor.tolist() if tensor.numel() else [default]
        values[ours] = dict(zip(types, numbers * len(types) if len(numbers) == 1 else numbers))
    values["per_type_energy_shifts_trainable"] = False  # theirs are constants here, whether they were trained or not
    return NetworkConfig(**values)


def _weights(network: NequIP, state: dict[str, torch.Tensor]) -> Weights:
    """Stored weights by name, [1, …], in the layout of the unpruned network."""
    config = network.config
    embedding = state["type_embed.embed_module.weight"]
    order = torch.arange(1, config.num_bessels + 1)
    weights = {
        "embedding": embedding,
        "bessel": state["bessel_encode.bessel_weights"].reshape(-1) - order,
        "readout": state["per_atom_energy_readout.mlp_module.mlp.0.weight"],
    }
    for number, layer in enumerate(network.layers):
        conv = {
            key.removeprefix(f"layer{number}_convnet.conv."): value
            for key, value in state.items()
            if key.startswith(f"layer{number}_convnet.conv.")
        }
        for name, value in _block_weights(layer, conv, embedding, config.radial_mlp_depth).items():
            weights[f"layer{number}.{name}"] = value
    return {name: value[None] for name, value in weights.items()}


def _block_weights(
    layer: LayerPlan, conv: dict[str, torch.Tensor], embedding: torch.Tensor, depth: int
) -> dict[str, torch.Tensor]:
    """Cut e3nn's concatenated weights into matrices.

    e3nn stores one matrix per irrep, sorted by (l, parity); NequIP lists paths by source, then edge, then target.
    """
    result = {f"radial.{i}": conv[f"edge_mlp.mlp.{2 * i}.weight"] for i in range(depth + 1)}
    sizes = {path: layer.inputs[path.source] for path in layer.paths}
    sources = list(layer.inputs)
    their_paths = sorted(layer.paths, key=lambda p: (sources.index(p.source), p.edge, p.target.l))
    by_path = dict(zip(their_paths, result[f"radial.{depth}"].split([sizes[path] for path in their_paths], 1)))
    result[f"radial.{depth}"] = torch.cat([by_path[path] for path in layer.paths], 1)

    shapes = [(irrep, layer.inputs[irrep], layer.inputs[irrep]) for irrep in layer.inputs]
    for irrep, matrix in _cut(conv["linear_1.weight"], shapes).items():
        if irrep in layer.sources:
            result[f"linear_1.{irrep}"] = matrix

    shapes = [(irrep, layer.collected(irrep), layer.before_gate(irrep)) for irrep in sorted(layer.outputs)]
    for irrep, matrix in _cut(conv["linear_2.weight"], shapes).items():
        rows = [path for path in their_paths if path.target == irrep]
        by_path = dict(zip(rows, matrix.split([sizes[path] for path in rows], 0)))
        result[f"linear_2.{irrep}"] = torch.cat([by_path[path] for path in layer.paths_to(irrep)], 0)

    if layer.self_connection:
        width = embedding.shape[1]
        shapes = [(irrep, layer.inputs[irrep] * width, layer.before_gate(irrep)) for irrep in layer.self_connection]
        for irrep, matrix in _cut(conv["sc.weight"], shapes).items():
            tensor = matrix.reshape(layer.inputs[irrep], width, -1)
            result[f"self_connection.{irrep}"] = torch.einsum("tv,uvw->tuw", embedding, tensor) / sqrt(width)
    return result


def _cut(flat: torch.Tensor, shapes: list[tuple[Irrep, int, int]]) -> dict[Irrep, torch.Tensor]:
    pieces = flat.reshape(-1).split([rows * columns for _, rows, columns in shapes])
    return {irrep: piece.reshape(rows, columns) for (irrep, rows, columns), piece in zip(shapes, pieces)}
