"""The compiled engine on a CPU beside our torch path and the official NequIP package, eager and compiled.

    python benchmarks/native.py            about half an hour; writes results/speed/native-cpu.json and .png
    python benchmarks/native.py --quick    a minute: shows that it runs, not how fast

Contestants run in turn in one process, with one thread unless said.  Times are processor time of the whole process,
and the best of all rounds is given beside the median: both are little disturbed by other work on the machine.
"""

import ctypes
import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from ase import Atoms
from command import number_table, parse, ran_job, save
from contestants import BATCH, Official, Ours, ethanol_config, ethanol_frames, species_of
from lammps_md import posterior_for, silicon, water
from measure import in_fresh_process, summary
from predict import SAMPLES
from provenance import RESULTS
from rich.console import Console

from equibayes.allocator import keep_freed_memory
from equibayes.bayes.model import StochasticModel
from equibayes.bayes.potential import Potential
from equibayes.bayes.prior import StandardNormal
from equibayes.data import Structure, bundled_ethanol
from equibayes.data.resident import ResidentData
from equibayes.engine.native import compile as compiling
from equibayes.engine.native.module import load
from equibayes.engine.native.potential import NativePotential
from equibayes.engine.native.steps import NativeStepper
from equibayes.engine.native.target import target
from equibayes.engine.select import VARIABLE, reference_stepper
from equibayes.evaluation.figures.style import figure, series, styled
from equibayes.network.config import NetworkConfig, preset
from equibayes.sampling import sghmc
from equibayes.sampling.chain import Stretch
from equibayes.sampling.noise import NoiseKey
from equibayes.sampling.schedule import StepPlan
from equibayes.simulate.calculator import Calculator

Call = Callable[[], Any]


def processor_time(contestants: dict[str, Call], rounds: int) -> dict[str, dict[str, float]]:
    """Seconds of processor time of a call, turn by turn; fast calls are repeated within a turn."""
    repeats = {}
    for name, call in contestants.items():
        call()
        start = time.process_time()
        call()
        repeats[name] = max(1, int(0.02 / max(1e-6, time.process_time() - start)))
    times: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(rounds):
        for name, call in contestants.items():
            start = time.process_time()
            for _ in range(repeats[name]):
                call()
            times[name].append((time.process_time() - start) / repeats[name])
    return {name: summary(values).to_dict() for name, values in times.items()}


def with_ratios(rows: dict[str, dict[str, float]], native: str) -> dict[str, Any]:
    """The same with the time of each over that of the compiled engine, from the best times."""
    own = rows[native]["best"]
    return {name: row | {"over_native": row["best"] / own} for name, row in rows.items()}


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


def peak() -> Call:
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


def efficiency(name: str, what: str, chains: int, rounds: int) -> dict[str, Any]:
    """Operations of a gradient, counted while it runs, as a share of what the vector units could do meanwhile."""
    counted = in_fresh_process(__file__, {"name": name, "what": what})["operations"] * chains
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


def potential_of(frames: list[Structure], config: NetworkConfig) -> Potential:
    mean = sum(frame.energy or 0.0 for frame in frames) / len(frames)
    data = ResidentData(frames, r_max=config.r_max, species_of=species_of(config), reference=[mean] * len(frames))
    return Potential(StochasticModel(config, 1.0), data, StandardNormal())


def training_step(name: str, chains: int, rounds: int, compiled: bool) -> dict[str, Any]:
    """Gradient of û of K chains with 4 molecules each; native: whole steps; official: gradient of one network."""
    official, ours = Official(name), Ours(name, chains)
    native, _ = steppers(name, chains, ethanol_frames(), 2)
    calls: dict[str, Call] = {"native": native, "torch": ours.step, "official, eager": official.step}
    if compiled:
        calls["official, compiled"] = Official(name, mode="compile").step
    rows = processor_time(calls, rounds)
    sets = {"native": 2 * chains, "torch": chains}
    per_set = {
        each: {key: row[key] / (sets.get(each, 1) if key in ("seconds", "best") else 1) for key in row}
        for each, row in rows.items()
    }
    return {"preset": name, "chains": chains, "per_weight_set": with_ratios(per_set, "native")}


def steppers(name: str, chains: int, frames: list[Structure], count: int) -> tuple[Call, Call]:
    """`count` whole steps (minibatch, gradient, noise and update) by the compiled engine and by the reference."""
    potential = potential_of(frames, ethanol_config(name))
    model, key, config = potential.model, NoiseKey(0, range(chains)), sghmc.SGHMCConfig()
    rng = np.random.default_rng(0)
    # steps so small that the weights stay where they are
    plans = [StepPlan(1e-8, 1.0, "burn_in", i, -1, False, False) for i in range(count)]
    stretch = Stretch(0, plans, torch.from_numpy(rng.integers(0, len(frames), (count, chains, BATCH))))
    rates = torch.full((count, chains), 1e-8, dtype=torch.float64)
    states = [sghmc.init(model.layout.start(chains, 0)) for _ in range(2)]
    native = NativeStepper(potential, states[0], key, config, module=load(model, steps=True))
    reference = reference_stepper(potential, states[1], key, config)
    return lambda: native.advance(stretch, rates), lambda: reference.advance(stretch, rates)


def sampler_steps(name: str, chains: int, steps: int, rounds: int) -> dict[str, Any]:
    """The whole loop with 200 frames to choose from, that many steps at a time."""
    native, reference = steppers(name, chains, list(bundled_ethanol()[:200]), steps)
    rows = processor_time({"native": native, "torch": reference}, rounds)
    return {"preset": name, "chains": chains, "steps": steps, "rows": with_ratios(rows, "native")}


def calculator_call(name: str, what: str, atoms: Atoms, rounds: int) -> dict[str, Any]:
    """Energy, forces and deviations by k = 8 samples of atoms that move a little between calls."""
    posterior = posterior_for(atoms, name, SAMPLES)
    calls = {engine: moving(posterior, atoms, engine) for engine in ("native", "reference")}
    rows = processor_time(calls, rounds)
    return {"preset": name, "what": what, "atoms": len(atoms), "k": SAMPLES, "rows": with_ratios(rows, "native")}


def moving(posterior: Any, atoms: Atoms, engine: str) -> Call:
    before, os.environ[VARIABLE] = os.environ.get(VARIABLE), engine
    try:
        calculator = Calculator(posterior, device="cpu")
    finally:
        os.environ.pop(VARIABLE) if before is None else os.environ.update({VARIABLE: before})
    own, rng = atoms.copy(), np.random.default_rng(0)
    start, own.calc = atoms.positions.copy(), calculator

    def call() -> None:
        own.positions = start + 0.01 * rng.normal(size=start.shape)
        own.get_forces()

    return call


def idle() -> bool:
    """Whether nothing else runs: two threads that must wait for other processes say nothing."""
    return os.getloadavg()[0] < 1.5


def two_threads(name: str, chains: int, rounds: int) -> dict[str, Any]:
    """Wall time of the same steps with one and two threads, on an idle machine."""
    steps, _ = steppers(name, chains, ethanol_frames(), 20)
    times: dict[int, list[float]] = {1: [], 2: []}
    for _ in range(4 * rounds):
        for threads, found in times.items():
            torch.set_num_threads(threads)
            start = time.perf_counter()
            steps()
            found.append(time.perf_counter() - start)
    torch.set_num_threads(1)
    best = {threads: min(found) for threads, found in times.items()}
    return {"preset": name, "chains": chains, "best_wall_seconds": best, "speed_up": best[1] / best[2]}


def show(result: dict[str, Any], console: Console) -> None:
    table = number_table("Processor time, best of all rounds", ("", "native", "torch", "official eager", "compiled"))

    def add(title: str, rows: dict[str, Any]) -> None:
        names = ("native", "torch" if "torch" in rows else "reference", "official, eager", "official, compiled")
        cells = [
            f"{1e3 * rows[name]['best']:.3g} ms ({rows[name]['over_native']:.1f}×)" if name in rows else ""
            for name in names
        ]
        table.add_row(title, *cells)

    for part in result["training_step"]:
        add(f"gradient per weight set, {part['preset']}, K = {part['chains']}", part["per_weight_set"])
    for part in result["sampler"]:
        add(f"{part['steps']} whole steps, {part['preset']}, K = {part['chains']}", part["rows"])
    for part in result["calculator"]:
        add(f"calculator, {part['what']}, {part['preset']}, k = {SAMPLES}", part["rows"])
    console.print(table)
    for part in result["efficiency"]:
        console.print(
            f"{part['what']}, {part['preset']}, K = {part['chains']}: {part['gflops']:.0f} of {part['peak_gflops']:.0f} "
            f"GFLOP/s, {100 * part['share']:.0f} %"
        )
    for part in result["two_threads"]:
        console.print(
            f"two threads, {part['preset']}, K = {part['chains']}: {part['speed_up']:.2f} times as fast as one"
        )


def draw(result: dict[str, Any], path: Path) -> None:
    """How many times the processor time of the compiled engine the others need."""
    bars: list[tuple[str, str, float]] = []
    for part in result["training_step"]:
        title = f"gradient, {part['preset']}, K = {part['chains']}"
        bars += [(title, name, row["over_native"]) for name, row in part["per_weight_set"].items()]
    for part in result["sampler"]:
        bars += [(f"whole step, {part['preset']}, K = {part['chains']}", *each) for each in _ratios(part["rows"])]
    for part in result["calculator"]:
        bars += [(f"calculator, {part['what']}, {part['preset']}", *each) for each in _ratios(part["rows"])]
    bars = [each for each in bars if each[1] != "native"]
    with styled():
        picture, grid = figure(6.5, 0.22 * len(bars) + 0.8)
        axes = grid[0, 0]
        for place, (_, name, ratio) in enumerate(reversed(bars)):
            axes.barh(place, ratio, color=series(CONTESTANTS.index(name))["color"])
            axes.text(ratio + 0.3, place, f"{ratio:.0f}" if ratio > 10 else f"{ratio:.1f}", va="center")
        axes.set_yticks(range(len(bars)), [f"{title}: {name}" for title, name, _ in reversed(bars)])
        axes.set_xlabel("processor time over that of the compiled engine")
        picture.savefig(path)


CONTESTANTS = ("torch", "official, eager", "official, compiled")


def _ratios(rows: dict[str, Any]) -> list[tuple[str, float]]:
    return [("torch" if name == "reference" else name, row["over_native"]) for name, row in rows.items()]


def main() -> None:
    if ran_job(count):
        return
    options = parse(__doc__, rounds=7, quick="tiny networks, few repeats", default_threads=1)
    keep_freed_memory()
    torch.set_num_threads(options.threads)
    quick, rounds = options.quick, 1 if options.quick else options.rounds
    training = [("tiny", 2)] if quick else [("small", 1), ("small", 4), ("paper", 1), ("paper", 8)]
    molecule = bundled_ethanol("test")[0].to_atoms()
    calls = [("tiny", "ethanol", molecule)]
    if not quick:
        calls = [("small", "ethanol", molecule), ("paper", "ethanol", molecule)]
        calls += [("small", "water", water(4)), ("small", "silicon", silicon(5))]
    shares = (
        [("tiny", "ethanol", 2)]
        if quick
        else [("small", "ethanol", 4), ("paper", "ethanol", 8), ("small", "silicon", 4)]
    )
    result: dict[str, Any] = {
        "benchmark": "the compiled engine",
        "quick": quick,
        "batch": BATCH,
        "seed": 0,
        "training_step": [
            training_step(*each, rounds, compiled=not quick and each == ("small", 1)) for each in training
        ],
        "sampler": [
            sampler_steps(*each, rounds)
            for each in ([("tiny", 2, 20)] if quick else [("small", 4, 20), ("paper", 8, 2)])
        ],
        "calculator": [calculator_call(*each, max(1, rounds // 2)) for each in calls],
        "efficiency": [efficiency(*each, rounds) for each in shares],
        "two_threads": [two_threads("tiny" if quick else "small", 4, rounds)] if idle() else [],
    }
    show(result, Console())
    save(result, options, "native-cpu.json", ("torch", "numpy", "nequip", "e3nn", "vesin", "ase"))
    if not quick:
        draw(result, (options.output or RESULTS / "native-cpu.json").with_suffix(".png"))


if __name__ == "__main__":
    main()
