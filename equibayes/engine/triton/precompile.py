"""Compiles the kernels of a network in parallel, before the first step: half a minute instead of several.

Triton compiles each kernel when it is first launched, one after the other.  Here processes that never touch the GPU
go through the same launches, compile a share of them each, and leave the results in Triton's cache on disk, where the
run finds them.
"""

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
import triton

from equibayes.bayes.model import StochasticModel
from equibayes.bayes.potential import Potential
from equibayes.bayes.prior import StandardNormal
from equibayes.data.elements import atomic_number
from equibayes.data.graph import graph_of
from equibayes.data.resident import ResidentData
from equibayes.data.structures import Structure
from equibayes.engine import generate
from equibayes.engine.cache import code_cache
from equibayes.engine.triton.dialect import TritonDialect
from equibayes.engine.triton.model import TritonModel
from equibayes.engine.triton.steps import TritonStepper
from equibayes.engine.triton.tuning import Tuning, narrow
from equibayes.network.config import NetworkConfig
from equibayes.network.irreps import plan_layers
from equibayes.sampling import sghmc
from equibayes.sampling.chain import Stretch
from equibayes.sampling.noise import NoiseKey
from equibayes.sampling.schedule import StepPlan

# from so many on, kernels are the same for any number of chains: the gradient is one sum
MANY_CHAINS = 16


def precompile(
    config: NetworkConfig,
    precision: str,
    chains: int,
    rows: int,
    *,
    training: bool,
    say: Callable[[str], None] = lambda message: print(message, file=sys.stderr),
) -> None:
    """For `rows` atoms in all chains together, on which the division of the work depends.

    Returns at once if it was done before on this machine; a share that fails is compiled at the first launch instead.
    """
    tuning = Tuning.best(precision, rows, narrow=narrow("cuda"))
    work = share_of_work(config, precision, chains, tuning, training=training)
    # what the kernels depend on, few of the settings of a network
    kernels = generate.kernels(config, plan_layers(config), TritonDialect)
    constants = [config.r_max, config.polynomial_cutoff_p, config.xplor_on, len(config.type_names)]
    constants += [work[name] for name in ("chains", "precision", "training", "tuning")]
    stamp = _name([kernels, constants, work["target"], triton.__version__, _source_stamp()])
    done = code_cache() / f"compiled_{stamp}"
    processes = min(16, os.cpu_count() or 1)
    if done.exists() or processes < 4:
        return
    say("compiling the kernels of this network, once on this machine: about a minute")
    environment = os.environ | {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, "-m", "equibayes.engine.triton.precompile", json.dumps(work), str(processes)]
    running = [
        subprocess.Popen([*command, str(rank)], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for rank in range(processes)
    ]
    codes = [process.wait() for process in running]
    if not any(codes):
        done.touch()


def share_of_work(
    config: NetworkConfig, precision: str, chains: int, tuning: Tuning, *, training: bool
) -> dict[str, Any]:
    """The work of a compiling process, as JSON, for the GPU of this machine."""
    target = triton.runtime.driver.active.get_current_target()
    return {
        "network": asdict(config),
        "precision": precision,
        "chains": min(chains, MANY_CHAINS),
        "tuning": asdict(tuning),
        "training": training,
        "target": [target.backend, target.arch, target.warp_size],
    }


def _source_stamp() -> str:
    """Changes when the kernels do."""
    return _name([path.read_text(encoding="utf-8") for path in sorted(Path(__file__).parent.rglob("*.py"))])


def _name(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def launches_of(work: dict[str, Any]) -> dict[tuple[Any, ...], tuple[Any, ...]]:
    """What a run with a few atoms would launch, by kernel and options: kernel, grid, arguments, options."""
    target = triton.backends.compiler.GPUTarget(*work["target"])
    stand_in = SimpleNamespace(
        get_current_target=lambda: target, get_current_device=lambda: 0, get_current_stream=lambda device=0: 0
    )
    triton.runtime.driver.set_active(stand_in)
    launches: dict[tuple[Any, ...], Any] = {}

    def record(kernel: Any, grid: Any) -> Any:
        def launch(*arguments: Any, **options: Any) -> None:
            launches[(kernel.fn.__name__, *sorted(options.items()))] = (kernel, grid, arguments, options)

        return launch

    triton.runtime.jit.JITFunction.__getitem__ = record
    chosen = Tuning(**work["tuning"])
    Tuning.best = classmethod(lambda cls, precision, rows, **_: chosen)  # type: ignore[method-assign, assignment]
    _launch_all(work)
    return launches


def compile_share(work: dict[str, Any], processes: int, rank: int) -> int:
    """Compile every `processes`-th kernel, the largest first; how many."""
    launches = launches_of(work)
    ordered = sorted(launches.items(), key=lambda item: -len(item[1][0].src) * (1 + dict(item[0][1:]).get("DUAL", 0)))
    share = ordered[rank::processes]
    for _, (kernel, grid, arguments, options) in share:
        kernel.run(*arguments, grid=grid, warmup=True, **options)
    return len(share)


def _launch_all(work: dict[str, Any]) -> None:
    config = NetworkConfig(**work["network"])
    model, chains = StochasticModel(config), work["chains"]
    numbers = np.array([atomic_number(name) for name in config.type_names])
    positions = 0.5 * np.arange(3.0 * len(numbers)).reshape(-1, 3)
    frame = Structure(numbers, positions, np.zeros((3, 3)), np.zeros(3, dtype=bool), energy=0.0, forces=0 * positions)
    species = {int(z): i for i, z in enumerate(numbers)}
    flat = model.layout.start(chains, 0)
    if not work["training"]:
        graph = graph_of(frame, r_max=config.r_max, species_of=species)
        weights = model.layout.forward_weights(flat)
        predictor = TritonModel(model, work["precision"])
        predictor.forward(weights, graph.to(dtype=torch.float32))
        dynamics = predictor.dynamics(weights, graph)
        dynamics.load(graph, positions)
        dynamics(positions)
        return
    data = ResidentData([frame], r_max=config.r_max, species_of=species, reference=[0.0])
    potential, key = Potential(model, data, StandardNormal()), NoiseKey(0, tuple(range(chains)))
    plan = StepPlan(1e-3, 1.0, "burn_in", 0, -1, False, False)
    stretch = Stretch(0, [plan], torch.zeros(1, chains, 1, dtype=torch.int64))
    for integrator, mass in (("baoa", "diagonal"), ("paper", "diagonal"), ("baoa", "matrix")):
        sampler = sghmc.SGHMCConfig(integrator=integrator, mass=mass)  # type: ignore[arg-type]
        state = sghmc.init(flat, blocks=sampler.blocks(model.layout.shapes))
        stepper = TritonStepper(potential, state, key, sampler, longest=1, precision=work["precision"])
        stepper.advance(stretch, torch.full((1, chains), 1e-3))


if __name__ == "__main__":
    compile_share(json.loads(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
