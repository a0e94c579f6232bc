"""Which irreps and tensor-product paths exist in each layer, and which of them can reach the energy.

An irrep is a rotation order l with a parity p.  A path couples a feature of the sender with a harmonic of the edge
into a feature of the receiver: source ⊗ Y_l → target, allowed where |l1 − l2| ≤ l3 ≤ l1 + l2 and the parities
multiply.  A network of rotations only (SO(3)) has no parities: all its irreps and the harmonics are called even, and
every path that obeys the triangle rule is allowed.  Only the scalar 0e leaves the network, so every path whose result
cannot reach a 0e of the last layer is left out: the function is the same, and for the paper's network 61 of the 78 that
NequIP builds remain.
"""

from dataclasses import dataclass
from typing import NamedTuple

from equibayes.network.config import NetworkConfig


class Irrep(NamedTuple):
    l: int
    parity: int

    @property
    def dim(self) -> int:
        return 2 * self.l + 1

    def __str__(self) -> str:
        return f"{self.l}{'e' if self.parity == 1 else 'o'}"


SCALAR = Irrep(0, 1)


class Path(NamedTuple):
    """source ⊗ Y_edge → target, channel by channel."""

    source: Irrep
    edge: int
    target: Irrep

    @property
    def triple(self) -> tuple[int, int, int]:
        return self.source.l, self.edge, self.target.l


@dataclass(frozen=True)
class LayerPlan:
    """One interaction block: what comes in, how it is coupled, what goes out.

    inputs          channels of each feature that comes in
    outputs         channels of each feature that goes out (after the gate)
    paths           tensor-product paths, sorted by target
    self_connection irreps that an atom passes to itself; with matrices per species empty in the first block: isolated
                    atoms have energy 0
    """

    inputs: dict[Irrep, int]
    outputs: dict[Irrep, int]
    paths: tuple[Path, ...]
    self_connection: tuple[Irrep, ...]

    @property
    def sources(self) -> list[Irrep]:
        """Inputs that some path uses, in the order of the inputs."""
        used = {path.source for path in self.paths}
        return [irrep for irrep in self.inputs if irrep in used]

    @property
    def gated(self) -> list[Irrep]:
        """Outputs with l > 0: each channel is multiplied by a scalar of its own."""
        return [irrep for irrep in self.outputs if irrep.l > 0]

    def paths_to(self, target: Irrep) -> list[Path]:
        return [path for path in self.paths if path.target == target]

    def collected(self, target: Irrep) -> int:
        """Channels that arrive at `target` over all its paths."""
        return sum(self.inputs[path.source] for path in self.paths_to(target))

    def before_gate(self, irrep: Irrep) -> int:
        """Channels of an output before the gate: the scalars carry the gates of everything else behind them."""
        gates = sum(self.outputs[gated] for gated in self.gated) if irrep == SCALAR else 0
        return self.outputs[irrep] + gates


def plan_layers(config: NetworkConfig, *, prune: bool = True) -> list[LayerPlan]:
    """The blocks of the network from first to last; `prune=False` keeps what NequIP itself would build."""
    channels = config.channels
    hidden = {Irrep(l, parity): channels[l] for l in range(config.l_max + 1) for parity in _parities(config, l)}
    odd = 1 if config.rotations_only else -1
    layers: list[LayerPlan] = []
    inputs = {SCALAR: config.embedding_channels}
    for number in range(config.num_layers):
        wanted = hidden if number < config.num_layers - 1 else {SCALAR: channels[0]}
        paths = _paths(inputs, wanted, config.l_max, odd)
        reached = {path.target for path in paths}
        outputs = {irrep: count for irrep, count in wanted.items() if irrep in reached}
        connected = number > 0 or config.self_connection == "shared"
        kept = tuple(irrep for irrep in inputs if irrep in outputs) if connected else ()
        layers.append(LayerPlan(inputs, outputs, paths, kept))
        inputs = outputs
    return _prune(layers) if prune else layers


def _parities(config: NetworkConfig, l: int) -> tuple[int, ...]:
    """Of the features with rotation order l."""
    if config.rotations_only:
        return (1,)
    return (1, -1) if config.parity else ((-1) ** l,)


def _paths(inputs: dict[Irrep, int], wanted: dict[Irrep, int], l_max: int, odd: int) -> tuple[Path, ...]:
    """odd: the parity of harmonics with odd l."""
    return tuple(
        Path(source, edge, target)
        for target in wanted
        for source in inputs
        for edge in range(l_max + 1)
        if abs(source.l - edge) <= target.l <= source.l + edge and source.parity * odd**edge == target.parity
    )


def _prune(layers: list[LayerPlan]) -> list[LayerPlan]:
    """From the last block backwards, keep only what the next block still reads."""
    needed = {SCALAR}
    pruned: list[LayerPlan] = []
    for layer in reversed(layers):
        outputs = {irrep: count for irrep, count in layer.outputs.items() if irrep in needed}
        paths = tuple(path for path in layer.paths if path.target in needed)
        kept = tuple(irrep for irrep in layer.self_connection if irrep in needed)
        needed = {path.source for path in paths} | set(kept)
        inputs = {irrep: count for irrep, count in layer.inputs.items() if irrep in needed}
        pruned.append(LayerPlan(inputs, outputs, paths, kept))
    return pruned[::-1]
