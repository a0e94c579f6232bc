"""The tensor-product convolution, in plain torch: the definition that every faster implementation must equal.

For a path p = (source ⊗ Y_edge → target), receiver n, its neighbour j in slot d, channel c and components i, m, k:

    S_p[n, k, c] = Σ_d Σ_im  C_imk · x[j, i, c] · Y_m[n, d] · R_p[n, d, c]

with coupling coefficients C and radial weights R.  A_[n, k, (d, i)] = Σ_m C_imk Y_m[n, d] depends on positions alone
and serves all layers; the sum over neighbours is then one small matrix product per atom, and no message is ever stored.
"""

from collections.abc import Iterable
from functools import cache
from math import sqrt

import torch

from equibayes.network.clebsch_gordan import coupling
from equibayes.network.constants import Constant
from equibayes.network.irreps import Irrep, LayerPlan

Features = dict[Irrep, torch.Tensor]  # {irrep: [K, N, 2l+1, channels]}
Triple = tuple[int, int, int]


def coupling_matrices(harmonics: torch.Tensor, triples: Iterable[Triple]) -> dict[Triple, torch.Tensor]:
    """A for each (l1, l2, l3), [K, N, D, M] -> [K·N, 2·l3+1, D·(2·l1+1)], with e3nn's path weight √(2·l3+1)."""
    chains, atoms, slots, _ = harmonics.shape
    matrices = {}
    for l1, l2, l3 in triples:
        product = harmonics[..., l2**2 : (l2 + 1) ** 2] @ _table(l1, l2, l3).like(harmonics)
        product = product.reshape(chains * atoms, slots, 2 * l3 + 1, 2 * l1 + 1).transpose(1, 2)
        matrices[l1, l2, l3] = product.reshape(chains * atoms, 2 * l3 + 1, slots * (2 * l1 + 1))
    return matrices


@cache
def _table(l1: int, l2: int, l3: int) -> Constant:
    """√(2·l3+1) C as [m, (k, i)]."""
    table = torch.from_numpy(coupling(l1, l2, l3) * sqrt(2 * l3 + 1))
    return Constant(table.permute(1, 2, 0).reshape(2 * l2 + 1, -1))


def convolve(
    layer: LayerPlan,
    features: Features,
    radial: torch.Tensor,
    matrices: dict[Triple, torch.Tensor],
    neighbors: "Neighbors",
) -> Features:
    """Features of the senders, radial weights [K, N, D, Σ channels of paths] -> {target: [K, N, 2l+1, collected]}."""
    chains, atoms, slots, _ = radial.shape
    sources = layer.sources
    flat = torch.cat([features[irrep].flatten(2) for irrep in sources], 2)
    pieces = neighbors.gather(flat).split([irrep.dim * layer.inputs[irrep] for irrep in sources], 3)
    at_sender = {
        irrep: piece.reshape(chains, atoms, slots, irrep.dim, layer.inputs[irrep])
        for irrep, piece in zip(sources, pieces)
    }
    weights = radial.split([layer.inputs[path.source] for path in layer.paths], 3)
    collected: dict[Irrep, list[torch.Tensor]] = {irrep: [] for irrep in layer.outputs}
    for path, weight in zip(layer.paths, weights):
        weighted = at_sender[path.source] * weight[:, :, :, None, :]
        total = torch.bmm(matrices[path.triple], weighted.reshape(chains * atoms, slots * path.source.dim, -1))
        collected[path.target].append(total.reshape(chains, atoms, path.target.dim, -1))
    return {target: torch.cat(parts, 3) for target, parts in collected.items()}


class Neighbors:
    """Reads features at each atom's neighbours, for K chains that share or do not share their atoms."""

    def __init__(self, sender: torch.Tensor, reverse: torch.Tensor, chains: int) -> None:
        """sender, reverse: [G, N, D] of a Graph, with G = 1 or G = chains."""
        groups, atoms, slots = sender.shape
        first = torch.arange(chains, device=sender.device)[:, None, None]
        self.slots = slots
        self.sender = (sender + first * atoms).reshape(-1)
        self.reverse = (reverse + first * atoms * slots).reshape(-1)

    def gather(self, x: torch.Tensor) -> torch.Tensor:
        """[K, N, F] at the atoms -> [K, N, D, F] at their neighbours."""
        if torch.jit.is_tracing():  # a trace cannot hold functions with an adjoint of their own
            return _read(x, self)
        return _Gather.apply(x, self)

    def opposite(self, y: torch.Tensor) -> torch.Tensor:
        """[K, N, D, F] on edges -> the values on the opposite edges."""
        return y.flatten(0, 2).index_select(0, self.reverse).reshape(y.shape)


def _read(x: torch.Tensor, neighbors: Neighbors) -> torch.Tensor:
    chains, atoms, width = x.shape
    return x.reshape(-1, width).index_select(0, neighbors.sender).reshape(chains, atoms, neighbors.slots, width)


class _Gather(torch.autograd.Function):
    """x[sender]; its adjoint sums over the slots that read an atom, which are the opposites of the atom's own slots.

    Both directions are plain reads, so that gradients are the same from run to run on any device.
    """

    @staticmethod
    def forward(ctx, x: torch.Tensor, neighbors: Neighbors) -> torch.Tensor:  # type: ignore[no-untyped-def]
        ctx.neighbors = neighbors
        return _read(x, neighbors)

    @staticmethod
    def backward(ctx, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:  # type: ignore[no-untyped-def]
        return _SumOverReaders.apply(gradient, ctx.neighbors), None


class _SumOverReaders(torch.autograd.Function):
    """The adjoint of `_Gather`: [K, N, D, F] -> [K, N, F]."""

    @staticmethod
    def forward(ctx, y: torch.Tensor, neighbors: Neighbors) -> torch.Tensor:  # type: ignore[no-untyped-def]
        ctx.neighbors = neighbors
        return neighbors.opposite(y).sum(2)

    @staticmethod
    def backward(ctx, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:  # type: ignore[no-untyped-def]
        return _Gather.apply(gradient, ctx.neighbors), None
