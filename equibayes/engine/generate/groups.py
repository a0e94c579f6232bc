"""How the work of a convolution is divided into programs."""

from equibayes.network.irreps import Irrep, LayerPlan, Path

# accumulators of a receiving program; more would not fit its registers
MOST_ACCUMULATORS = 32


def channel_block(channels: int) -> int:
    """Channels that one program works on: the largest power of two up to 64 that divides their number."""
    return next(size for size in (64, 32, 16) if channels % size == 0)


def collecting_groups(layer: LayerPlan) -> list[tuple[Irrep, list[Path]]]:
    """Paths that one program collects: the same target and number of channels, and not too many accumulators."""
    groups: list[tuple[Irrep, list[Path]]] = []
    for target in layer.outputs:
        for channels in sorted({layer.inputs[path.source] for path in layer.paths_to(target)}):
            own = [path for path in layer.paths_to(target) if layer.inputs[path.source] == channels]
            at_once = max(1, MOST_ACCUMULATORS // target.dim)
            groups += [(target, own[first : first + at_once]) for first in range(0, len(own), at_once)]
    return groups


def giving_groups(layer: LayerPlan) -> list[tuple[Irrep, list[Path]]]:
    """Paths over which one program gives: all of one source."""
    return [(source, [path for path in layer.paths if path.source == source]) for source in layer.sources]


def blocks(layer: LayerPlan, channels_at_once: int) -> int:
    """Programs side by side that share the channels of a group."""
    return max(layer.inputs[source] for source in layer.sources) // channels_at_once
