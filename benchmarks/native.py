"""The compiled engine on a CPU beside our torch path, the official NequIP package (eager and compiled) and MACE.

    python benchmarks/native.py            about half an hour; writes results/speed/native-cpu.json and .png
    python benchmarks/native.py --quick    a minute: shows that it runs, not how fast
    python benchmarks/native.py --only small threads      some parts; the file keeps the others

Contestants of a part run in turn in one process (MACE in another, for its packages), with one thread unless said.
Times are processor time, and the best of all rounds is given beside the median: both are little disturbed by other work
on the machine.
"""

import argparse
import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from ase import Atoms
from command import parse, ran_job, save_parts
from contestants import BATCH, Official, Ours, ethanol_config, ethanol_frames
from lammps_md import posterior_for, silicon, water
from mace_contestant import Mace, Missing
from measure import processor_time
from native_peak import count, efficiency, potential_of
from native_report import draw, show
from predict import SAMPLES
from provenance import RESULTS
from rich.console import Console

from equibayes.allocator import keep_freed_memory
from equibayes.data import Structure, bundled_ethanol
from equibayes.engine.native.module import load
from equibayes.engine.native.steps import NativeStepper
from equibayes.engine.select import VARIABLE, reference_stepper
from equibayes.posterior.file import Posterior
from equibayes.sampling import sghmc
from equibayes.sampling.chain import Stretch
from equibayes.sampling.noise import NoiseKey
from equibayes.sampling.schedule import StepPlan
from equibayes.simulate.calculator import Calculator

Call = Callable[[], Any]
STRETCH = 50
"""Steps of one call, as between two looks of a run (`guard.interval`)."""


def with_ratios(rows: dict[str, dict[str, float]], native: str) -> dict[str, Any]:
    """The same with the time of each over that of the compiled engine, from the best times."""
    own = rows[native]["best"]
    return {name: row | {"over_native": row["best"] / own} for name, row in rows.items()}


def training_step(name: str, chains: tuple[int, ...], steps: int, compiled: bool, options: Any) -> dict[str, Any]:
    """With batches of 4 molecules: whole native steps, gradients of û by torch, gradients of one network by others."""
    calls: dict[str, Any] = {}
    sets: dict[str, int] = {}  # weight sets, times steps, of a call
    for k in chains:
        calls[f"native, K = {k}"], _ = steppers(name, k, ethanol_frames(), steps)
        calls[f"torch, K = {k}"] = Ours(name, k).step
        sets |= {f"native, K = {k}": k * steps, f"torch, K = {k}": k}
    calls["official, eager"] = Official(name).step
    if compiled:
        calls["official, compiled"] = Official(name, mode="compile").step
    layers, left_out = ethanol_config(name).num_layers, {}
    for size in sorted({2, layers}):
        title = f"MACE, {size} layers"
        try:
            calls[title] = Mace(options.mace, name, size)
        except Missing as reason:
            left_out[title] = str(reason)
            print(reason)
    rows = processor_time(calls, options.rounds)
    for each, row in rows.items():
        row.update({key: row[key] / sets.get(each, 1) for key in ("seconds", "best")})
    about = {each: call.about for each, call in calls.items() if isinstance(call, Mace)}
    per_set = with_ratios(rows, f"native, K = {chains[-1]}")
    return {"preset": name, "steps": steps, "per_weight_set": per_set, "mace": about, "left_out": left_out}


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
    calls = {engine: Moving(posterior, atoms, engine) for engine in ("native", "reference")}
    rows = processor_time(calls, rounds)
    return {"preset": name, "what": what, "atoms": len(atoms), "k": SAMPLES, "rows": with_ratios(rows, "native")}


class Moving:
    """Calls of a calculator with atoms that move a little in between."""

    def __init__(self, posterior: Posterior, atoms: Atoms, engine: str = "native") -> None:
        before, os.environ[VARIABLE] = os.environ.get(VARIABLE), engine
        try:
            self.calculator = Calculator(posterior, device="cpu")
        finally:
            os.environ.pop(VARIABLE) if before is None else os.environ.update({VARIABLE: before})
        self.start, self.rng = atoms.positions.copy(), np.random.default_rng(0)
        self.atoms = atoms.copy()
        self.atoms.calc = self.calculator

    def __call__(self) -> None:
        self.atoms.positions = self.start + 0.01 * self.rng.normal(size=self.start.shape)
        self.atoms.get_forces()


def two_threads(what: str, call: Call, rounds: int) -> dict[str, Any]:
    """Wall time of the same work with one and two threads; says something on an idle machine only."""
    times: dict[int, list[float]] = {1: [], 2: []}
    call()
    for _ in range(4 * rounds):
        for threads, found in times.items():
            torch.set_num_threads(threads)
            start = time.perf_counter()
            call()
            found.append(time.perf_counter() - start)
    torch.set_num_threads(1)
    best = {threads: min(found) for threads, found in times.items()}
    return {"what": what, "best_wall_seconds": best, "speed_up": best[1] / best[2]}


def threads_of(cases: dict[str, Callable[[], Call]], rounds: int) -> list[dict[str, Any]]:
    return [two_threads(what, make(), rounds) for what, make in cases.items()]


def one_structure(name: str, cells: int, samples: int) -> Call:
    atoms = silicon(cells)
    return Moving(posterior_for(atoms, name, samples), atoms)


def parts(options: Any) -> dict[str, Callable[[], list[dict[str, Any]]]]:
    """What each part measures."""
    rounds, molecule = options.rounds, bundled_ethanol("test")[0].to_atoms()
    if options.quick:
        threads = {"tiny network, 2 chains": lambda: steppers("tiny", 2, ethanol_frames(), 2)[0]}
        return {
            "small": lambda: [training_step("tiny", (2,), 2, False, options)],
            "sampler": lambda: [sampler_steps("tiny", 2, 20, rounds)],
            "calculator": lambda: [calculator_call("tiny", "ethanol", molecule, rounds)],
            "peak": lambda: [efficiency(__file__, "tiny", "ethanol", 2, rounds)],
            "threads": lambda: threads_of(threads, rounds),
        }
    calls = [("small", "ethanol", molecule), ("paper", "ethanol", molecule)]
    calls += [("small", "water", water(4)), ("small", "silicon", silicon(5))]
    shares = [("small", "ethanol", 4), ("paper", "ethanol", 8), ("small", "silicon", 4)]
    threads = {
        "small network, 4 chains": lambda: steppers("small", 4, ethanol_frames(), STRETCH)[0],
        "small network, 1 chain": lambda: steppers("small", 1, ethanol_frames(), STRETCH)[0],
        "the paper's network, 1 chain": lambda: steppers("paper", 1, ethanol_frames(), 5)[0],
        "1000 atoms of silicon, small network, 1 sample": lambda: one_structure("small", 5, 1),
        "1000 atoms of silicon, small network, 8 samples": lambda: one_structure("small", 5, 8),
        "8000 atoms of silicon, small network, 1 sample": lambda: one_structure("small", 10, 1),
    }
    return {
        "small": lambda: [training_step("small", (1, 4), STRETCH, True, options)],
        "paper": lambda: [training_step("paper", (1, 8), 5, False, options)],
        "sampler": lambda: [sampler_steps("small", 4, STRETCH, rounds), sampler_steps("paper", 8, 2, rounds)],
        "calculator": lambda: [calculator_call(*each, max(1, rounds // 2)) for each in calls],
        "peak": lambda: [efficiency(__file__, *each, rounds) for each in shares],
        "threads": lambda: threads_of(threads, rounds),
    }


def main() -> None:
    if ran_job(count):
        return

    def more(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--mace", metavar="PYTHON", help="Python of an environment with mace-torch")

    names = ("small", "paper", "sampler", "calculator", "peak", "threads")
    options = parse(__doc__, rounds=7, quick="tiny networks, few repeats", default_threads=1, parts=names, more=more)
    keep_freed_memory()
    torch.set_num_threads(options.threads)
    options.rounds = 1 if options.quick else options.rounds
    packages = ("torch", "numpy", "nequip", "e3nn", "vesin", "ase")
    about = {"benchmark": "the compiled engine", "quick": options.quick, "batch": BATCH, "seed": 0}
    found: dict[str, Any] = {}
    for name, measure in parts(options).items():
        if name in options.only:
            found[name] = measure()
            result = save_parts(found, options, "native-cpu.json", packages, **about)
    show(result["parts"], Console())
    if not options.quick:
        draw(result["parts"], (options.output or RESULTS / "native-cpu.json").with_suffix(".png"))


if __name__ == "__main__":
    main()
