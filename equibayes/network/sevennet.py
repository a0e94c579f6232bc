"""Conversion of SevenNet checkpoints: same energies, forces and stress, weight for weight.

    model = load_sevennet("checkpoint_sevennet_0.pth")
    model = load_sevennet("checkpoint_sevennet_mf_0.pth", fidelity="PBE")

SevenNet is a NequIP without parity, whose self-connection is the same for all species.

What is rearranged.  Paths are sorted by their source in files older than 0.11, and some coupling tensors that were
stored with them have the other sign.  The readout, two matrices without an activation, is multiplied out.  Matrices
are converted as they act, with all normalisations, and divided by ours at the end.

A network of several fidelities adds a constant vector to the scalars, one for each fidelity, wherever channels are
mixed.  For one fidelity that is a bias; our network has none, but one more scalar channel that is 1 in every block has
the same effect: the embedding begins it and the self-connection hands it on, through a gate in which it stays 1.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import exp, pi, sqrt
from pathlib import Path
from typing import Any

import torch

from equibayes.data.elements import symbol
from equibayes.errors import InputError
from equibayes.network.clebsch_gordan import coupling
from equibayes.network.config import NetworkConfig
from equibayes.network.interaction import SILU_NORM
from equibayes.network.irreps import SCALAR, Irrep, LayerPlan
from equibayes.network.irreps import Path as Coupling
from equibayes.network.nequip import NequIP
from equibayes.network.pretrained import Pretrained
from equibayes.network.sevennet_checkpoint import State, read_sevennet
from equibayes.network.weights import Weights

CONSTANT_CHANNELS = 16
"""Scalars that are added for the constant one; the others are 0.  Engines like multiples of 16."""
# settings that change the function, with the values that it must have here
REQUIRED: dict[str, tuple[Any, ...]] = {
    "is_parity": (False,),
    "use_bias_in_linear": (False,),
    "readout_as_fcn": (False,),
    "act_radial": ("silu",),
    "act_gate": ({"e": "silu", "o": "tanh"},),
    "act_scalar": ({"e": "silu", "o": "tanh"},),
    "self_connection_type": ("linear",),
    "interaction_type": ("nequip",),
    "_normalize_sph": (True,),
    "lmax_edge": (-1,),
    "lmax_node": (-1,),
    "use_modal_node_embedding": (False,),
    "use_modal_wise_scale": (False,),
}
ABSENT = {"_normalize_sph": False}
"""What a setting means where a file does not have it; others then have the value above."""


def load_sevennet(
    path: str | Path, fidelity: str | None = None, origin: str = "", source: str | None = None
) -> Pretrained:
    """Convert a checkpoint; fidelity: of a model that has several; source: what messages call it."""
    settings, state = read_sevennet(path)
    return convert_sevennet(settings, state, fidelity, source=source or str(path), origin=origin)


def convert_sevennet(
    settings: Mapping[str, Any],
    state: State,
    fidelity: str | None = None,
    source: str = "SevenNet model",
    origin: str = "",
) -> Pretrained:
    """Convert settings and a state dict in double precision."""
    _check_supported(settings, source)
    number = _fidelity(settings, fidelity, source)
    try:
        config, shifts = _config(settings, state, number)
        network = NequIP(config)
        weights = Conversion(settings, state, network, number).weights()
        expected = {p.name: p.shape for p in network.layout.parameters}
        wrong = [name for name, shape in expected.items() if tuple(weights[name].shape) != shape]
        if wrong:
            raise ValueError(f"{wrong[0]} has shape {tuple(weights[wrong[0]].shape)}, not {expected[wrong[0]]}")
    except (KeyError, RuntimeError, ValueError) as cause:
        reason = f"no {cause.args[0]}" if isinstance(cause, KeyError) else str(cause).splitlines()[0]
        raise InputError(f"{source}: weights and settings do not belong together ({reason})") from cause
    flat = network.layout.flatten({name: value[None] for name, value in weights.items()})
    return Pretrained(config, flat / network.layout.scale.like(flat), shifts, origin)


def _check_supported(settings: Mapping[str, Any], source: str) -> None:
    for name, allowed in REQUIRED.items():
        value = settings.get(name, ABSENT.get(name, allowed[0]))
        if value not in allowed:
            raise InputError(f"{source}: {name}={value} is not supported here; only {allowed[0]} is")
    function = settings.get("cutoff_function", {}).get("cutoff_function_name")
    if function not in ("poly_cut", "XPLOR"):
        raise InputError(f"{source}: the cutoff function {function} is not supported here; poly_cut and XPLOR are")
    if settings.get("radial_basis", {}).get("radial_basis_name") != "bessel":
        raise InputError(f"{source}: radial_basis={settings.get('radial_basis')} is not supported here; bessel is")
    if len(set(settings.get("weight_nn_hidden_neurons", [0]))) != 1:
        raise InputError(f"{source}: hidden layers of different widths are not supported here")


def _fidelity(settings: Mapping[str, Any], fidelity: str | None, source: str) -> int | None:
    """The number of a fidelity; None where there is only one."""
    known = settings.get("_modal_map") or {}
    if not settings.get("use_modality"):
        if fidelity is not None:
            raise InputError(f"{source}: has no fidelities to choose from; leave :{fidelity} out")
        return None
    if fidelity not in known:
        example = f"for instance {source}:{next(iter(known), '')}"
        raise InputError(f"{source}: choose one of its fidelities {', '.join(known)}, {example}")
    return int(known[fidelity])


def _config(settings: Mapping[str, Any], state: State, fidelity: int | None) -> tuple[NetworkConfig, dict[str, float]]:
    """Our settings and the energy shifts per species."""
    index = {symbol(int(z)): int(i) for z, i in settings["_type_map"].items()}
    names = sorted(index, key=lambda name: index[name])
    channels = _channels(settings)
    if fidelity is not None:
        channels[0] += CONSTANT_CHANNELS
    shift, scale = (state[f"rescale_atomic_energy.{part}"] for part in ("shift", "scale"))
    if shift.ndim > 1:
        assert fidelity is not None
        shift = shift[fidelity]
    shift, scale = (value.expand(len(names)) for value in (shift, scale))
    if fidelity is not None:
        shift = shift + scale * _readout_constant(state, fidelity)
    shifts = dict(zip(names, shift.tolist()))
    cutoff = settings["cutoff_function"]
    scales = dict(zip(names, scale.tolist()))
    config = NetworkConfig(
        r_max=float(settings["cutoff"]),
        l_max=int(settings["lmax"]),
        parity=False,
        rotations_only=True,
        num_features=channels,
        num_layers=int(settings["num_convolution_layer"]),
        num_bessels=int(settings["radial_basis"]["bessel_basis_num"]),
        polynomial_cutoff_p=int(cutoff.get("poly_cut_p_value", 6)),
        xplor_on=float(cutoff["cutoff_on"]) if cutoff["cutoff_function_name"] == "XPLOR" else None,
        self_connection="shared",
        radial_mlp_depth=len(settings["weight_nn_hidden_neurons"]),
        radial_mlp_width=int(settings["weight_nn_hidden_neurons"][0]),
        type_names=names,
        avg_num_neighbors=float(state["0_convolution.denominator"]) ** 2,
        per_type_energy_scales=scales if len(set(scales.values())) > 1 else next(iter(scales.values())),
        per_type_energy_shifts=shifts,
        per_type_energy_shifts_trainable=False,
    )
    return config, shifts


def _channels(settings: Mapping[str, Any]) -> list[int]:
    """Of each rotation order."""
    if not settings.get("irreps_manual"):
        return [int(settings["channel"])] * (int(settings["lmax"]) + 1)
    texts = settings["irreps_manual"]
    widest = texts[1 if len(texts) > 2 else 0]
    return [int(part.strip().split("x")[0]) for part in widest.split("+")]


def _readout_constant(state: State, fidelity: int) -> torch.Tensor:
    """What the fidelity adds to the energy of every atom, in units of its scale."""
    hidden, out = state["reduce_input_to_hidden.linear.weight"], state["reduce_hidden_to_energy.linear.weight"]
    rows = hidden.reshape(-1, out.numel())
    return rows[rows.shape[0] - _count(state) + fidelity] @ out / sqrt(rows.shape[0] * out.numel())


def _count(state: State) -> int:
    """Fidelities of a model."""
    return int(state["rescale_atomic_energy.shift"].shape[0])


@dataclass(frozen=True)
class Conversion:
    """Matrices as they act on features, by the names of our layout."""

    settings: Mapping[str, Any]
    state: State
    network: NequIP
    fidelity: int | None

    @property
    def scalars(self) -> int:
        """Scalar channels of theirs; where there is a constant channel, it comes next."""
        return self.network.config.channels[0] - (0 if self.fidelity is None else CONSTANT_CHANNELS)

    def weights(self) -> Weights:
        config, state, species = self.network.config, self.state, len(self.network.config.type_names)
        embedding = state["onehot_to_feature_x.linear.weight"].reshape(species, -1) / sqrt(species)
        order = torch.arange(1, config.num_bessels + 1)
        out = state["reduce_hidden_to_energy.linear.weight"].reshape(-1, 1)
        hidden = state["reduce_input_to_hidden.linear.weight"].reshape(-1, len(out))
        readout = hidden[: self.scalars] @ out / sqrt(len(hidden) * len(out))
        found = {
            "embedding": self._wider(embedding, 1),
            "bessel": state["edge_embedding.basis_function.coeffs"] * config.r_max / pi - order,
            "readout": self._wider(readout, 0),
        }
        if self.fidelity is not None:
            found["embedding"][:, self.scalars] = 1.0
        for number, layer in enumerate(self.network.layers):
            found |= {f"layer{number}.{name}": value for name, value in self._block(number, layer).items()}
        return found

    def _block(self, number: int, layer: LayerPlan) -> Weights:
        found = {f"radial.{i}": matrix for i, matrix in enumerate(self._radial(number, layer))}
        mixed = {irrep: (self._of(layer, irrep), self._of(layer, irrep)) for irrep in layer.inputs}
        after = {
            irrep: (self._collected(layer, irrep), self._before_gate(layer, irrep)) for irrep in sorted(layer.outputs)
        }
        own = {irrep: (self._of(layer, irrep), self._before_gate(layer, irrep)) for irrep in layer.self_connection}
        before, before_bias = self._linear(f"{number}_self_interaction_1", mixed, self.fidelity)
        collected, after_bias = self._linear(f"{number}_self_interaction_2", after, self.fidelity)
        connection, _ = self._linear(f"{number}_self_connection_intro", own, None)
        # the denominator of all blocks is that of the first
        denominators = (float(self.state[f"{i}_convolution.denominator"]) for i in (0, number))
        rescale = next(denominators) / next(denominators)
        for irrep, matrix in before.items():
            found[f"linear_1.{irrep}"] = rescale * (self._wider(matrix, 0, 1) if irrep == SCALAR else matrix)
        for irrep, matrix in collected.items():
            found[f"linear_2.{irrep}"] = self._collected_rows(layer, irrep, matrix)
        for irrep, matrix in connection.items():
            wide = self._wider(self._gate_columns(matrix), 0) if irrep == SCALAR else matrix
            found[f"self_connection.{irrep}"] = wide[None]
        if self.fidelity is not None:
            one = self.scalars  # the constant channel, whose rows are the biases
            found[f"linear_1.{SCALAR}"][one, :one] = rescale * before_bias
            found[f"self_connection.{SCALAR}"][0, one] = self._gate_columns(after_bias[None])[0]
            found[f"self_connection.{SCALAR}"][0, one, one] = _argument_of_one()
        return found

    # --- shapes of theirs, which lack the constant channel ---

    def _of(self, layer: LayerPlan, irrep: Irrep) -> int:
        return self.scalars if irrep == SCALAR else layer.inputs[irrep]

    def _collected(self, layer: LayerPlan, irrep: Irrep) -> int:
        return sum(self._of(layer, path.source) for path in layer.paths_to(irrep))

    def _before_gate(self, layer: LayerPlan, irrep: Irrep) -> int:
        extra = self.network.config.channels[0] - self.scalars
        return layer.before_gate(irrep) - (extra if irrep == SCALAR else 0)

    # --- matrices ---

    def _linear(
        self, name: str, shapes: Mapping[Irrep, tuple[int, int]], fidelity: int | None
    ) -> tuple[dict[Irrep, torch.Tensor], torch.Tensor]:
        """e3nn's matrices of all irreps, which lie one after the other, and the bias of a fidelity, which comes last.

        Each is divided by the root of its rows; those of the scalars include the fidelities.
        """
        flat = self.state[f"{name}.linear.weight"]
        fidelities = 0 if fidelity is None else _count(self.state)
        sizes = [rows * columns for rows, columns in shapes.values()]
        width = shapes[SCALAR][1]
        *pieces, biases = flat.split([*sizes, fidelities * width])
        found = {}
        for (irrep, (rows, columns)), piece in zip(shapes.items(), pieces):
            found[irrep] = piece.reshape(rows, columns) / sqrt(rows + (fidelities if irrep == SCALAR else 0))
        if fidelity is None:
            return found, flat.new_zeros(width)
        return found, biases.reshape(fidelities, width)[fidelity] / sqrt(shapes[SCALAR][0] + fidelities)

    def _radial(self, number: int, layer: LayerPlan) -> list[torch.Tensor]:
        """Hidden layers, whose silu is normalised in theirs, and the last one with its paths in our order."""
        depth = self.network.config.radial_mlp_depth
        own = [self.state[f"{number}_convolution.weight_nn.layer{i}.weight"] for i in range(depth + 1)]
        own = [(SILU_NORM if i else 1.0) * matrix / sqrt(len(matrix)) for i, matrix in enumerate(own)]
        theirs = self._their_paths(layer)
        pieces = dict(zip(theirs, own[depth].split([self._of(layer, path.source) for path in theirs], 1)))
        for path in theirs:
            pieces[path] = self._sign(number, path) * pieces[path]
            if path.source == SCALAR:
                pieces[path] = self._wider(pieces[path], 1)
        return [*own[:depth], torch.cat([pieces[path] for path in layer.paths], 1)]

    def _their_paths(self, layer: LayerPlan) -> list[Coupling]:
        """Sorted by source in old files, by target in new ones."""
        version = tuple(int(part) for part in str(self.settings["version"]).split(".")[:2])
        if version >= (0, 11):
            return list(layer.paths)
        sources = list(layer.inputs)
        return sorted(layer.paths, key=lambda path: (sources.index(path.source), path.edge, path.target.l))

    def _sign(self, number: int, path: Coupling) -> float:
        """−1 where the coupling tensor in the file is ours with the other sign."""
        l1, l2, l3 = path.triple
        stored = self.state.get(f"{number}_convolution.convolution._compiled_main_left_right._w3j_{l1}_{l2}_{l3}")
        if stored is None:
            return 1.0
        ours = torch.from_numpy(coupling(l1, l2, l3).copy())
        sign = 1.0 if float((stored * ours).sum()) > 0 else -1.0
        if not torch.allclose(stored, sign * ours, atol=1e-5):
            raise ValueError(f"another coupling tensor of {l1}, {l2}, {l3}")
        return sign

    def _collected_rows(self, layer: LayerPlan, irrep: Irrep, matrix: torch.Tensor) -> torch.Tensor:
        """Rows of a matrix of the sums over neighbours: theirs are in the order of our paths to a target."""
        parts = matrix.split([self._of(layer, path.source) for path in layer.paths_to(irrep)], 0)
        wide = [
            self._wider(part, 0) if path.source == SCALAR else part for path, part in zip(layer.paths_to(irrep), parts)
        ]
        result = torch.cat(wide, 0)
        return self._gate_columns(result) if irrep == SCALAR else result

    def _wider(self, matrix: torch.Tensor, *axes: int) -> torch.Tensor:
        """With zeros for the added scalars behind the others."""
        for axis in axes:
            shape = list(matrix.shape)
            shape[axis] = self.network.config.channels[0] - self.scalars
            matrix = torch.cat([matrix, matrix.new_zeros(shape)], axis)
        return matrix

    def _gate_columns(self, matrix: torch.Tensor) -> torch.Tensor:
        """The same for columns of scalars before a gate, with the gates behind them."""
        scalars, gates = matrix[:, : self.scalars], matrix[:, self.scalars :]
        return torch.cat([self._wider(scalars, 1), gates], 1)


def _argument_of_one() -> float:
    """z for which SILU_NORM · silu(z) = 1, by Newton's method."""
    z = 1.0
    for _ in range(50):
        s = 1 / (1 + exp(-z))
        z -= (SILU_NORM * z * s - 1) / (SILU_NORM * s * (1 + z * (1 - s)))
    return z
