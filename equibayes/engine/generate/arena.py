"""Where features lie: one *arena* per chain holds, for each of the four versions (see __init__.py) and each layer,

x [irrep][N, 2l+1, C]  →  y = x W₁  →  S (collected) [target][N, 2l+1, paths·C]  →  z = S W₂ + x W_sc[species]  →
gate  →  next x
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

from equibayes.network.irreps import Irrep, LayerPlan


@dataclass(frozen=True)
class LayerArena:
    """Offsets of the blocks of one layer, for `nodes` rows a component."""

    layer: LayerPlan
    nodes: int
    start: int

    @cached_property
    def x(self) -> dict[Irrep, int]:
        return self._blocks(self.start, dict(self.layer.inputs))

    @cached_property
    def y(self) -> dict[Irrep, int]:
        return self._blocks(self._end(self.x, self.layer.inputs), {i: self.layer.inputs[i] for i in self.layer.sources})

    @cached_property
    def collected(self) -> dict[Irrep, int]:
        return self._blocks(self._end(self.y, self.layer.inputs), self._widths(self.layer.collected))

    @cached_property
    def z(self) -> dict[Irrep, int]:
        start = self._end(self.collected, self._widths(self.layer.collected))
        return self._blocks(start, self._widths(self.layer.before_gate))

    @property
    def end(self) -> int:
        return self._end(self.z, self._widths(self.layer.before_gate))

    def _widths(self, of: Callable[[Irrep], int]) -> dict[Irrep, int]:
        return {irrep: of(irrep) for irrep in self.layer.outputs}

    def _blocks(self, start: int, widths: dict[Irrep, int]) -> dict[Irrep, int]:
        sizes = [irrep.dim * width * self.nodes for irrep, width in widths.items()]
        return dict(zip(widths, accumulate([start, *sizes])))

    def _end(self, blocks: dict[Irrep, int], widths: dict[Irrep, int]) -> int:
        last = list(blocks)[-1]
        return blocks[last] + last.dim * widths[last] * self.nodes
