"""Where everything lies in the memory of the kernels, and the jobs of the linears.

Weights: the flat buffer of a chain with every array moved to a multiple of 64 numbers, already scaled for the forward
pass. Features lie in one arena per chain (engine/generate/arena.py).
"""

from dataclasses import dataclass
from itertools import accumulate

import torch

from equibayes.engine.generate.arena import LayerArena
from equibayes.engine.generate.groups import channel_block
from equibayes.network.irreps import LayerPlan
from equibayes.network.weights import Layout

ALIGNED = 64
Job = list[int]


class WeightPlaces:
    """Places of the parameters of a `Layout` in the buffer of the kernels."""

    def __init__(self, layout: Layout) -> None:
        sizes = [-(-size // ALIGNED) * ALIGNED for size in layout.sizes]
        starts = [0, *accumulate(sizes)]
        self.size = starts[-1]
        self.of = dict(zip(layout.names, starts))
        # [P]: the place of each entry of the flat buffer
        self.flat = torch.cat([torch.arange(n) + start for n, start in zip(layout.sizes, starts)]).int()


@dataclass(frozen=True)
class Pieces:
    """Division of long sums of z and x̄ into pieces, so that a few atoms keep a GPU busy; the gate adds them up."""

    count: int = 1
    apart: int = 0  # from one piece of a result to the next in an arena
    typed: int = 1  # what a block of weights of the species costs, in blocks

    def divide(self, job: Job, tile: int, along: tuple[int, int]) -> list[Job]:
        """along: numbers from one row of the inner length to the next, in both matrices."""
        job = job + [0] * (13 - len(job))
        plain, typed = job[4] // tile, job[9] // tile
        if self.count == 1 or plain + typed < 2:  # an irrep to which nothing comes back has no block at all
            return [job]
        jobs = []
        for number, (first, end) in enumerate(_shares([1] * plain + [self.typed] * typed, self.count)):
            own = list(job)
            own[0] += number * self.apart
            for length, source, matrix, step, low, high in (
                (4, 2, 5, along[0], min(first, plain), min(end, plain)),
                (9, 7, 10, along[1], max(first, plain) - plain, max(end, plain) - plain),
            ):
                own[length] = (high - low) * tile
                if high > low:
                    own[source] += low * tile
                    own[matrix] += low * tile * step
            jobs.append(own)
        return jobs


def _shares(costs: list[int], count: int) -> list[tuple[int, int]]:
    """Neighbouring costs together, in at most `count` shares, the largest as small as it can be."""
    for limit in range(max(costs), sum(costs) + 1):
        shares, first = [], 0
        while first < len(costs):
            end = first
            while end < len(costs) and sum(costs[first : end + 1]) <= limit:
                end += 1
            shares.append((first, end))
            first = end
        if len(shares) <= count:
            break
    return shares


@dataclass(frozen=True)
class Jobs:
    """The jobs of one layer: three linear stages forward and back, and its weight gradients."""

    before: list[Job]  # y from x
    after: list[Job]  # z from S and x
    after_back: list[Job]  # S̄ from z̄
    before_back: list[Job]  # x̄ from ȳ and z̄
    gradients: list[Job]


def layer_jobs(
    arena: LayerArena, places: WeightPlaces, number: int, connections: int, tile: int, pieces: Pieces
) -> Jobs:
    """A job is one component of one irrep, one tile of columns (`tile` wide), and one piece of a sum.

    connections: matrices of a self-connection, of the species or one that all share.
    """
    layer, first = arena.layer, number == 0
    before, after, after_back, before_back, gradients = [], [], [], [], []
    versions = 1 if first else 2  # the embedding does not move with the atoms
    own_matrix = 1 if connections > 1 else 0  # whether the next species has the next matrix
    for irrep, size in layer.inputs.items():
        own = f"layer{number}.linear_1.{irrep}"
        connection = f"layer{number}.self_connection.{irrep}"
        width = layer.before_gate(irrep) if irrep in layer.self_connection else 0
        row = irrep.dim * size
        for m in range(irrep.dim):
            x = arena.x[irrep] + m * size
            y = arena.y[irrep] + m * size if irrep in layer.sources else 0
            for column in range(0, size, tile):
                if irrep in layer.sources:
                    before.append([y + column, row, x, row, size, places.of[own] + column, size])
                back = [y, row, size, places.of[own] + column * size, size] if irrep in layer.sources else [0] * 5
                if irrep in layer.self_connection:
                    z = arena.z[irrep] + m * width
                    back += [z, irrep.dim * width, width, places.of[connection] + column * width]
                    back += [own_matrix * size * width, width]
                # the result of the first layer goes to the embedding, which is not divided into pieces
                back = [x + column, row, *back]
                before_back += [back] if first else pieces.divide(back, tile, (1, 1))
        if irrep in layer.sources:
            sides = arena.x[irrep], arena.y[irrep]
            gradients += _tiles(tile, places.of[own], size, size, *sides, irrep.dim, -1, versions)
    for irrep in layer.outputs:
        size, width = layer.collected(irrep), layer.before_gate(irrep)
        own = f"layer{number}.linear_2.{irrep}"
        connection = f"layer{number}.self_connection.{irrep}"
        inputs = layer.inputs.get(irrep, 0)
        z_row, row = irrep.dim * width, irrep.dim * size
        for m in range(irrep.dim):
            collected, z = arena.collected[irrep] + m * size, arena.z[irrep] + m * width
            for column in range(0, width, tile):
                job = [z + column, z_row, collected, row, size, places.of[own] + column, width]
                if irrep in layer.self_connection:
                    x = arena.x[irrep] + m * inputs
                    job += [x, irrep.dim * inputs, inputs, places.of[connection] + column]
                    job += [own_matrix * inputs * width, width]
                after += pieces.divide(job, tile, (width, width))
            for column in range(0, size, tile):
                after_back.append([collected + column, row, z, z_row, width, places.of[own] + column * width, width])
        sides = arena.collected[irrep], arena.z[irrep]
        gradients += _tiles(tile, places.of[own], size, width, *sides, irrep.dim, -1, 2)
        if irrep in layer.self_connection:
            sides = arena.x[irrep], arena.z[irrep]
            for kind in range(connections) if connections > 1 else (-1,):
                start = places.of[connection] + max(kind, 0) * inputs * width
                gradients += _tiles(tile, start, inputs, width, *sides, irrep.dim, kind, versions)
    # long jobs first, so that none is left over at the end
    gradients.sort(key=lambda job: -job[6] * job[8] * (1 if job[7] < 0 else 0.5))
    return Jobs(before, after, after_back, before_back, gradients)


def _tiles(
    tile: int, out: int, inner: int, width: int, left: int, right: int, blocks: int, kind: int, versions: int
) -> list[Job]:
    """Jobs of the gradient of one matrix [inner, width]; see `kernels.weight_gradient`."""
    places = [(i, c) for i in range(0, inner, tile) for c in range(0, width, tile)]
    return [[out + i * width + c, width, left + i, inner, right + c, width, blocks, kind, versions] for i, c in places]


def common_tile(layers: list[LayerPlan]) -> int:
    """The largest tile that divides the channels of every irrep."""
    channels = (count for layer in layers for count in (*layer.inputs.values(), *layer.outputs.values()))
    return min(channel_block(count) for count in channels)
