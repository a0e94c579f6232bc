"""Which samples of a posterior each MPI rank evaluates.

Every rank evaluates its samples for all atoms.  The first rank combines them as if it had evaluated all, so the result
is that of one rank up to the order of sums.  Atoms are not divided: the energy of an atom depends on all atoms within
num_layers · r_max, so a rank with few atoms of its own would evaluate most of the others as well.
"""

import socket
from collections.abc import Hashable, Sequence

import torch


def place_of(rank: int, device: torch.device) -> Hashable:
    """Where a rank evaluates: its GPU, which it may share with other ranks, or processor cores of its own."""
    if device.type != "cuda":
        return rank
    return socket.gethostname(), str(torch.cuda.get_device_properties(device).uuid)


def shares(places: Sequence[Hashable], samples: int) -> list[range | None]:
    """The numbers of the samples of each rank, in order; None for a rank that only waits.

    One rank evaluates at each place: two on one GPU would take turns.  Ranks that evaluate are spread evenly if there
    are fewer samples; numbers of samples differ by at most one.
    """
    able = [rank for rank, place in enumerate(places) if place not in places[:rank]]
    count = min(samples, len(able))
    found: list[range | None] = [None] * len(places)
    for i in range(count):
        found[able[i * len(able) // count]] = range(i * samples // count, (i + 1) * samples // count)
    return found


def waiting(divided: Sequence[range | None], places: Sequence[Hashable], samples: int) -> str | None:
    """A warning if ranks with a place of their own wait because there are too few samples."""
    used, able = len(divided) - divided.count(None), len(set(places))
    if used == able:
        return None
    return (
        f"{able - used} of {len(places)} MPI ranks wait while others evaluate the potential, because there are only "
        f"{samples} samples to share; use {used} ranks with more --threads each"
    )
