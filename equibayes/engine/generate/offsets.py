"""Where numbers lie in the row of an atom or a pair: features [irrep][atom, component, channel], radial [pair, path].

The row of an atom is found once, and its contents at constant distances, which cost no instruction.
"""

from equibayes.network.irreps import Irrep, LayerPlan, Path


def harmonics(l_max: int) -> int:
    """Spherical harmonics of a pair up to l_max."""
    return (l_max + 1) ** 2


def width(l_max: int) -> int:
    """The harmonics of a pair and one more number (that of its length), padded to a power of two."""
    return 1 << harmonics(l_max).bit_length()


def first_feature(layer: LayerPlan, source: Irrep) -> int:
    """Numbers of an atom before those of a source among the features after linear_1."""
    before = layer.sources[: list(layer.sources).index(source)]
    return sum(irrep.dim * layer.inputs[irrep] for irrep in before)


def first_collected(layer: LayerPlan, target: Irrep) -> int:
    """Numbers of an atom before those of a target among the collected sums."""
    before = list(layer.outputs)[: list(layer.outputs).index(target)]
    return sum(irrep.dim * layer.collected(irrep) for irrep in before)


def collected(layer: LayerPlan, path: Path, k: int) -> int:
    """Component k of the sum of a path in the row of an atom and target: [component, (path, channel)]."""
    before = layer.paths_to(path.target)[: layer.paths_to(path.target).index(path)]
    return k * layer.collected(path.target) + sum(layer.inputs[other.source] for other in before)


def columns(layer: LayerPlan) -> int:
    """Radial weights of a pair."""
    return sum(layer.inputs[path.source] for path in layer.paths)


def column(layer: LayerPlan, path: Path) -> int:
    """Radial weights of a pair before those of a path."""
    return sum(layer.inputs[other.source] for other in layer.paths[: layer.paths.index(path)])
