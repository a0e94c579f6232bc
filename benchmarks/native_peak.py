"""The share of a core's peak that the compiled engine reaches: operations are counted while a gradient is made."""

import ctypes
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from contestants import BATCH, ethanol_config, ethanol_frames, species_of
from lammps_md import silicon
from measure import in_fresh_process, processor_time

from equibayes.bayes.model import StochasticModel
from equibayes.bayes.potential import Potential
from equibayes.bayes.prior import StandardNormal
from equibayes.data import Structure
from equibayes.data.resident import ResidentData
from equibayes.engine.native import compile as compiling
from equibayes.engine.native.potential import NativePotential
from equibayes.engine.native.target import target
from equibayes.network.config import NetworkConfig, preset

PEAK = """
#include "vector.h"
using namespace equibayes;
EXPORT double multiply_and_add(long times) {
    vec sum[12], a = splat(0.999f), b = splat(1e-3f);
    for (int i = 0; i < 12; ++i) sum[i] = splat(float(i));
    for (long t = 0; t < times; ++t)
        for (int i = 0; i < 12; ++i) sum[i] = sum[i] * a + b;
    for (int i = 1; i < 12; ++i) sum[0] += sum[i];
    return hsum(sum[0]);
}
"""
TIMES = 200_000


def peak() -> Callable[[], Any]:
    """2·12·WIDTH·TIMES operations, as fast as the vector units of one core can do them."""
    library = compiling.build("peak", {"peak.cpp": PEAK})
    return lambda: library.multiply_and_add(TIMES)


class TimedLibrary:
    """Notes the processor time of every gradient, without what Python does before and after."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self.library, self.seconds = library, []

    def potential_run(self, *arguments: Any) -> None:
        start = time.process_time()
        self.library.potential_run(*arguments)
        self.seconds.append(time.process_time() - start)


def efficiency(script: str, name: str, what: str, chains: int, rounds: int) -> dict[str, Any]:
    """script: runs `count` as a job (see `command.ran_job`)."""
    counted = in_fresh_process(script, {"name": name, "what": what})["operations"] * chains
    native, position, indices = gradient_of(name, what, chains)
    timed = TimedLibrary(native.module.library)
    native.module = replace(native.module, library=timed)
    rows = processor_time({"gradient": lambda: native(position, indices), "peak": peak()}, 5 * rounds)
    speed = counted / min(timed.seconds)
    limit = 24 * target().width * TIMES / rows["peak"]["best"]
    return {
        "preset": name,
        "what": what,
        "chains": chains,
        "operations": counted,
        "gflops": speed / 1e9,
        "peak_gflops": limit / 1e9,
        "share": speed / limit,
    }


def count(request: dict[str, Any]) -> dict[str, Any]:
    """Operations of a gradient of one chain, in a process whose vectors count them."""
    compiling.FLAGS = (*compiling.FLAGS, "-DCOUNT_OPERATIONS")
    native, position, indices = gradient_of(request["name"], request["what"], 1)
    operations = native.module.library.operations
    operations.restype = ctypes.c_double
    torch.set_num_threads(1)
    native(position, indices)
    before = operations()
    native(position, indices)
    return {"operations": operations() - before}


def gradient_of(name: str, what: str, chains: int) -> tuple[NativePotential, torch.Tensor, torch.Tensor]:
    """A potential with four frames, weights [K, P] and the indices of all frames."""
    if what == "ethanol":
        native = NativePotential(potential_of(ethanol_frames(), ethanol_config(name)))
    else:
        frames = [
            replace(Structure.from_atoms(silicon(2, seed)), energy=0.0, forces=np.zeros((64, 3))) for seed in range(4)
        ]
        own = {"type_names": ["Si"], "avg_num_neighbors": 16.0, "per_type_energy_scales": 1.0}
        native = NativePotential(potential_of(frames, preset(name, **own)))
    position = native.potential.model.layout.start(chains, 0)
    return native, position, torch.arange(BATCH).expand(chains, -1)


def potential_of(frames: list[Structure], config: NetworkConfig) -> Potential:
    mean = sum(frame.energy or 0.0 for frame in frames) / len(frames)
    data = ResidentData(frames, r_max=config.r_max, species_of=species_of(config), reference=[mean] * len(frames))
    return Potential(StochasticModel(config, 1.0), data, StandardNormal())
