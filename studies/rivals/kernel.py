"""Covariances of the energies and forces of one molecule under a Gaussian process on inverse interatomic distances.

The prior is E ~ GP(0, k) with k(x, x') = Σ_p κ(|x − P_p x'|), x the D inverse distances of a frame and P_p the
permutations of its equivalent atoms (Chmiela et al. 2017, 2018: GDML and sGDML).  Forces are F = −Jᵀ ∂E/∂x with J =
∂x/∂r, so that with d = x − P x'

    cov(E, E')  =  Σ_p κ
    cov(E, F')  = −Σ_p b dᵀ P J'                            ∂κ/∂x'     = b d
    cov(F, F')  =  Jᵀ (Σ_p b P − c d dᵀ P) J'               ∂²κ/∂x∂x'  = b I − c d dᵀ

All in units of the signal's variance (eV²), lengths in the unit of x (1/Å).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import torch

Tensor = torch.Tensor


@dataclass(frozen=True, eq=False)
class Points:
    """n frames of one molecule as the Gaussian process sees them.

    x        [n, D]     inverse distances of all pairs of atoms, 1/Å
    jacobian [n, D, m]  ∂x/∂(m coordinates), 1/Å²; m = 3·atoms, or fewer after `without_rigid_motion`
    """

    x: Tensor
    jacobian: Tensor

    def __len__(self) -> int:
        return len(self.x)

    @property
    def size(self) -> int:
        """Force components of all frames together."""
        return len(self) * self.jacobian.shape[2]

    def __getitem__(self, rows: slice) -> "Points":
        return Points(self.x[rows], self.jacobian[rows])


def points_of(positions: Tensor) -> Points:
    """From positions [n, a, 3] in Å; float64, since covariance matrices are nearly singular."""
    n, atoms, _ = positions.shape
    first, second = torch.tensor(list(combinations(range(atoms), 2))).T
    vector = positions[:, first] - positions[:, second]
    x = 1 / vector.norm(dim=2)
    pull = -(x**3)[..., None] * vector  # ∂(1/r)/∂r_first
    jacobian = positions.new_zeros(n, len(first), atoms, 3)
    pair = torch.arange(len(first))
    jacobian[:, pair, first] = pull
    jacobian[:, pair, second] = -pull
    return Points(x, jacobian.flatten(2))


def without_rigid_motion(points: Points) -> tuple[Points, Tensor]:
    """The same frames in their 3a − 6 internal directions, and these directions [n, 3a, 3a − 6].

    Distances do not change under rigid motion, so that these force components are 0 whatever the data.  If kept, six of
    the 27 components of ethanol would be certain and would dominate the fit of the noise.
    """
    rank = points.jacobian.shape[2] - 6
    directions = torch.linalg.svd(points.jacobian, full_matrices=False).Vh[:, :rank].mT
    return Points(points.x, points.jacobian @ directions), directions


def group_of(generators: Sequence[Sequence[int]]) -> list[tuple[int, ...]]:
    """All permutations of atoms that follow from some of them; the identity first."""
    group = [tuple(range(len(generators[0])))]
    for member in group:  # grows during the loop
        for generator in generators:
            product = tuple(member[i] for i in generator)
            if product not in group:
                group.append(product)
    return group


def pair_orders(group: Sequence[Sequence[int]]) -> Tensor:
    """[p, D]: where each entry of the permuted x comes from."""
    atoms = len(group[0])
    number = torch.zeros(atoms, atoms, dtype=torch.int64)
    pairs = list(combinations(range(atoms), 2))
    for place, (i, j) in enumerate(pairs):
        number[i, j] = number[j, i] = place
    return torch.stack([torch.stack([number[member[i], member[j]] for i, j in pairs]) for member in group])


@dataclass(frozen=True)
class Kernel:
    """κ(r), r in units of the length scale (1/Å): `matern` (ν = 5/2) or `gauss`."""

    kind: str
    length: float

    def __call__(self, d: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """κ, b and c (see above), each […], for differences d […, D]."""
        if self.kind == "gauss":
            value = (-0.5 * d.square().sum(-1) / self.length**2).exp()
            return value, value / self.length**2, value / self.length**4
        rate = 5**0.5 / self.length
        s = rate * d.norm(dim=-1)
        decay = (-s).exp()
        return (1 + s + s**2 / 3) * decay, rate**2 / 3 * (1 + s) * decay, rate**4 / 3 * decay


class Covariance:
    """Covariances with the forces of n known frames; those are permuted once."""

    def __init__(self, known: Points, kernel: Kernel, orders: Tensor) -> None:
        self.known, self.kernel, self.orders = known, kernel, orders
        self.x = known.x[:, orders]  # [n, p, D]
        self.jacobian = known.jacobian[:, orders]  # [n, p, D, m]

    def of_frame(self, x: Tensor, jacobian: Tensor, count: int | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """One frame, x [D] and jacobian [D, q], against the first `count` known ones.

        Returns its energy against energies [n] and forces [n·m], and its q forces against forces [q, n·m].
        """
        permuted = self.jacobian[:count]
        d = x - self.x[:count]
        value, b, c = self.kernel(d)
        along = torch.einsum("npd,npdm->npm", d, permuted)
        energy_forces = -torch.einsum("np,npm->nm", b, along).flatten()
        if not jacobian.shape[1]:
            return value.sum(1), energy_forces, energy_forces.new_zeros(0, len(energy_forces))
        inner = torch.einsum("np,npdm->ndm", b, permuted) - torch.einsum("npd,npm->ndm", c[..., None] * d, along)
        return value.sum(1), energy_forces, torch.einsum("dq,ndm->qnm", jacobian, inner).flatten(1)

    def matrix(self) -> Tensor:
        """[n·m, n·m] of the known forces; blocks above the diagonal stay 0, they are not needed."""
        m = self.known.jacobian.shape[2]
        whole = self.x.new_zeros(self.known.size, self.known.size)
        for i in range(len(self.known)):
            rows = slice(i * m, (i + 1) * m)
            whole[rows, : rows.stop] = self.of_frame(self.known.x[i], self.known.jacobian[i], i + 1)[2]
        return whole


def own_covariances(points: Points, kernel: Kernel, orders: Tensor) -> tuple[Tensor, Tensor]:
    """Prior covariances within every frame: variance of its energy [n], covariances of its force components [n, m,
    m]."""
    permuted = points.jacobian[:, orders]
    d = points.x[:, None] - points.x[:, orders]
    value, b, c = kernel(d)
    along = torch.einsum("npd,npdm->npm", d, permuted)
    across = torch.einsum("npd,ndm->npm", d, points.jacobian)
    inner = torch.einsum("np,npdm->ndm", b, permuted)
    forces = points.jacobian.mT @ inner - torch.einsum("np,npq,npm->nqm", c, across, along)
    return value.sum(1), forces
