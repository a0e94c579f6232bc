"""All weights of K networks in one flat buffer [K, P], and the named views that the network reads.

The sampler sees a vector with entries of order one, so that N(0, I) is a sensible prior; the network sees matrices
scaled for the forward pass, by a constant per parameter (such as 1/√fan-in, e3nn's normalisation).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from math import prod

import torch

from equibayes.network.constants import Constant

Weights = dict[str, torch.Tensor]


@dataclass(frozen=True)
class Parameter:
    """One named array of weights.

    scale    factor between the stored weight and the one used in the forward pass
    start    'normal': drawn from N(0, 1); a number: that constant
    rotated  whether a matrix mass rotates it, where it is a matrix: not where that costs more time than it saves
    per_type whether the first axis counts species
    """

    name: str
    shape: tuple[int, ...]
    scale: float = 1.0
    start: str | float = "normal"
    rotated: bool = True
    per_type: bool = False

    @property
    def size(self) -> int:
        return prod(self.shape)

    @property
    def group(self) -> str:
        """What the parameter belongs to ('layer0', 'readout', …): the unit of diagnostics and of prior widths."""
        return self.name.split(".")[0]


class Layout:
    """Where each parameter lies in the flat buffer."""

    def __init__(self, parameters: Iterable[Parameter]) -> None:
        self.parameters = tuple(parameters)
        self.names = [parameter.name for parameter in self.parameters]
        if len(set(self.names)) != len(self.names):
            raise ValueError("parameter names must be distinct")
        self.sizes = [parameter.size for parameter in self.parameters]
        self.size = sum(self.sizes)

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """Of all parameters, as a mass treats them: (size,) where it is diagonal in any case."""
        return [p.shape if p.rotated else (p.size,) for p in self.parameters]

    @cached_property
    def groups(self) -> dict[str, slice]:
        """Where each group of parameters lies in the flat buffer."""
        groups: dict[str, slice] = {}
        first = 0
        for parameter in self.parameters:
            start = groups[parameter.group].start if parameter.group in groups else first
            first += parameter.size
            groups[parameter.group] = slice(start, first)
        return groups

    @cached_property
    def scale(self) -> Constant:
        """[P] factors from stored to forward weights."""
        return Constant(torch.cat([torch.full((p.size,), p.scale, dtype=torch.float64) for p in self.parameters]))

    def views(self, flat: torch.Tensor) -> Weights:
        """Stored weights by name, [K, P] -> {name: [K, *shape]}, without copying."""
        pieces = flat.split(self.sizes, dim=1)
        return {p.name: piece.reshape(flat.shape[0], *p.shape) for p, piece in zip(self.parameters, pieces)}

    def forward_weights(self, flat: torch.Tensor) -> Weights:
        """Weights as the network uses them, [K, P] -> {name: [K, *shape]}; differentiable in `flat`."""
        return self.views(flat * self.scale.like(flat))

    def flatten(self, weights: Weights) -> torch.Tensor:
        """The inverse of `views`."""
        chains = next(iter(weights.values())).shape[0]
        return torch.cat([weights[name].reshape(chains, -1) for name in self.names], 1)

    def start(self, chains: int, seed: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        """Initial weights [K, P]; chain k depends on (seed, k) alone, so that chains can be added or run apart."""
        return torch.cat([self._start_one(seed, chain, dtype) for chain in range(chains)])

    def _start_one(self, seed: int, chain: int, dtype: torch.dtype) -> torch.Tensor:
        generator = torch.Generator().manual_seed((seed * 1_000_003 + chain) % 2**63)
        pieces = []
        for p in self.parameters:
            if isinstance(p.start, str):
                pieces.append(torch.randn(p.size, generator=generator, dtype=torch.float64))
            else:
                pieces.append(torch.full((p.size,), p.start, dtype=torch.float64))
        return torch.cat(pieces)[None].to(dtype)
