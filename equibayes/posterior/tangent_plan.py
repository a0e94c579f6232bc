"""How the linearised posterior is computed for so many labels, what memory that takes, and how long."""

import os
import time
from dataclasses import dataclass

from equibayes.data.dataset import Dataset
from equibayes.data.resident import ResidentData
from equibayes.engine.select import make_rows
from equibayes.errors import InputError
from equibayes.plural import counted
from equibayes.posterior.file import Posterior
from equibayes.posterior.jacobian import ROWS_AT_ONCE, Sight
from equibayes.posterior.linear_regression import product
from equibayes.posterior.subspace import Subspace, moving_weights

DIRECTIONS = 32768
"""At most so many random directions of the weights, all networks together: more networks need fewer directions each
for the same error of their mean (measured: results/tangent)."""
LAST_LAYER_DIRECTIONS = 16384
"""The same where the last layer alone moves, so that this is cheap."""
LABELS = 4096
"""At most so many labels: of more, all energies and a random share of the force components of every frame."""
NOISES = (1.0, 0.1, 0.03, 0.01, 0.001, 0.0003)
"""Candidates for λ."""


@dataclass(frozen=True)
class Plan:
    """
    networks    centres θ_c
    frames      frames to learn from
    labels      that are used
    share       of the force components of each frame that are used
    weights     weights that move
    directions  random directions of them that δ consists of; all of them where there are as many as weights
    groups      of weights that move; None: all that the mean depends on
    """

    networks: int
    frames: int
    labels: int
    share: float
    weights: int
    directions: int
    groups: tuple[str, ...] | None = None

    @classmethod
    def of(
        cls,
        posterior: Posterior,
        train: Dataset,
        directions: int | None = None,
        labels: int | None = None,
        *,
        last_layer: bool = False,
    ) -> "Plan":
        """directions, labels: at most so many around each network, instead of what the constants above give."""
        groups = (f"layer{posterior.network.num_layers - 1}", "readout") if last_layer else None
        forces, others = count_labels(posterior, train)
        share = min(1.0, max((labels or LABELS) - others, len(train)) / forces)
        used = others + sum(max(1, round(share * 3 * len(s))) for s in train.structures)
        weights = len(moving_weights(posterior.model, groups))
        networks = len(set(posterior.chain.tolist()))
        most = LAST_LAYER_DIRECTIONS if last_layer else DIRECTIONS
        directions = min(directions or max(1, most // networks), weights)
        return cls(networks, len(train), used, share, weights, directions, groups)

    @property
    def few(self) -> bool:
        """Whether the Gram matrix of the labels is smaller than the normal equations."""
        return self.labels <= self.directions

    @property
    def bytes(self) -> int:
        """Memory, apart from that of the data."""
        if self.few:
            return 4 * self.labels * self.directions + 4 * 8 * self.labels**2
        return 4 * 8 * self.directions**2 + 3 * 8 * ROWS_AT_ONCE * self.directions

    @property
    def operations(self) -> float:
        """Of linear algebra in float64, for each network."""
        size, other = (self.labels, self.directions) if self.few else (self.directions, self.labels)
        return 1.1 * size**2 * other + len(NOISES) * size**3 / 3

    def seconds(self, posterior: Posterior, resident: ResidentData) -> float:
        """An estimate, from one frame and a small product, each measured."""
        position, space = posterior.samples[-1], Subspace.of(posterior.model, self.directions, 0, self.groups)
        evaluate = make_rows(posterior.model, position, resident, space.column, space.sign)
        *_, chosen = Sight(resident, self.share).of([0])
        evaluate([0], chosen)  # compiles
        begun = time.perf_counter()
        rows = evaluate([0], chosen)
        of_frame = time.perf_counter() - begun
        some = rows.jacobian[:1].expand(512, -1).contiguous()[:, :2048]
        begun = time.perf_counter()
        product(some, some)
        pace = 2 * 512**2 * some.shape[1] / (time.perf_counter() - begun)
        return self.networks * (of_frame * self.labels / len(rows.value) + self.operations / pace)

    def check(self) -> None:
        """An `InputError` where the memory is too small."""
        there = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        if self.bytes > 0.8 * there:
            raise InputError(
                f"exact inference with {self.directions} directions needs {self.bytes / 1e9:.1f} GB of memory, this "
                f"machine has {there / 1e9:.1f}; lower --directions"
            )

    def words(self) -> str:
        """One line for the user."""
        which = f"{self.weights} weights" + (f" of {' and '.join(self.groups)}" if self.groups else "")
        space = f"all {which}" if self.directions == self.weights else f"{self.directions} random directions of {which}"
        how = "Gram matrix of the labels" if self.few else "normal equations of the directions"
        some = "" if self.share == 1 else f" ({100 * self.share:.0f} % of the force components, at random)"
        return (
            f"{counted(self.networks, 'network')}, {self.labels} labels of {counted(self.frames, 'frame')}{some}, {space}: "
            f"{how}, {self.bytes / 1e9:.1f} GB of memory"
        )


def count_labels(posterior: Posterior, data: Dataset) -> tuple[int, int]:
    """Force components; energies, and six components of each stress if the network learns stress."""
    stress = posterior.model.learns_stress
    others = sum((s.energy is not None) + 6 * (stress and s.stress_label is not None) for s in data.structures)
    return sum(3 * len(s) for s in data.structures), others
