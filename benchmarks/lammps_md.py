"""Steps of molecular dynamics on a CPU: LAMMPS with a posterior attached beside ASE's loop with the same posterior.

    python benchmarks/lammps_md.py            about five minutes; writes results/speed/lammps-cpu.json
    python benchmarks/lammps_md.py --quick    a few seconds on small cells: shows that it runs, not how fast

192-atom water and 1000-atom silicon, velocity Verlet from rest, 0.5 fs, one rank; neighbour lists and uncertainties
are part of a step on both sides.  The potential is the same, so that the ratio tells what the way through LAMMPS
costs or saves; it tells most with the cheapest potential there is, the `tiny` network with one sample.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np
import torch
from ase import Atoms
from ase.build import bulk, molecule
from ase.data import atomic_masses, atomic_numbers
from ase.md.verlet import VelocityVerlet
from ase.units import fs
from command import number_table, parse, save
from measure import Timing, interleaved
from rich.console import Console

from equibayes.allocator import keep_freed_memory
from equibayes.bayes.model import StochasticModel
from equibayes.data.elements import atomic_number
from equibayes.data.reference import EnergyReference
from equibayes.network.config import preset
from equibayes.posterior.file import Posterior
from equibayes.simulate.calculator import Calculator
from equibayes.simulate.lammps import LammpsPotential, attach
from equibayes.simulate.lammps_library import open_lammps

STEPS = 5  # in one measurement


def water(per_side: int) -> Atoms:
    """per_side³ molecules turned at random, at the density of the liquid."""
    rng, spacing = np.random.default_rng(0), 3.1
    box = Atoms(cell=[spacing * per_side] * 3, pbc=True)
    for place in np.ndindex(per_side, per_side, per_side):
        one = molecule("H2O")
        one.rotate(rng.uniform(0, 360), rng.normal(size=3))
        one.translate(spacing * np.array(place) + 0.5 * spacing)
        box += one
    return box


def silicon(cells: int, seed: int = 0) -> Atoms:
    """8·cells³ atoms."""
    atoms = bulk("Si", cubic=True).repeat(cells)
    atoms.rattle(0.05, seed=seed)
    return atoms


def posterior_for(atoms: Atoms, name: str, samples: int) -> Posterior:
    elements = sorted(set(atoms.symbols))
    model = StochasticModel(preset(name, type_names=elements, avg_num_neighbors=16.0, per_type_energy_scales=1.0))
    count = torch.arange(samples)
    nothing = EnergyReference("given", dict.fromkeys(map(atomic_number, elements), 0.0))
    return Posterior(model.layout.start(samples, 0), count, torch.zeros_like(count), model.config, nothing)


def lammps_of(start: Atoms, posterior: Posterior, **options: Any) -> tuple[Any, LammpsPotential]:
    """A LAMMPS with these atoms and this potential, ready to run; options: of `attach`."""
    elements = sorted(set(start.symbols))
    lmp = open_lammps(["-log", "none", "-screen", "none"])
    a, b, c = start.cell.lengths()
    lmp.commands_string(
        f"units metal\natom_modify map array\nregion box block 0 {a} 0 {b} 0 {c}\ncreate_box {len(elements)} box\n"
    )
    for i, name in enumerate(elements):
        lmp.command(f"mass {i + 1} {atomic_masses[atomic_numbers[name]]}")
    types = [elements.index(name) + 1 for name in start.symbols]
    # positions as they are: unwrapped ones are kept by their image flags
    inside, turns = start.get_positions(wrap=True), np.floor(start.get_scaled_positions(wrap=False))
    images = [lmp.encode_image_flags(*map(int, each)) for each in turns]
    lmp.create_atoms(len(types), list(range(1, len(types) + 1)), types, inside.ravel().tolist(), image=images)
    potential = attach(lmp, posterior, elements=elements, device="cpu", **options)
    lmp.commands_string("fix integrate all nve\ntimestep 0.0005\nrun 0 post no")
    return lmp, potential


@dataclass
class Contest:
    """The same atoms and posterior in both programs."""

    start: Atoms
    posterior: Posterior

    def __post_init__(self) -> None:
        self.atoms = self.start.copy()
        self.atoms.calc = Calculator(self.posterior, device="cpu")
        self.loop = VelocityVerlet(self.atoms, 0.5 * fs)
        self.lmp, _ = lammps_of(self.start, self.posterior)

    def calls(self) -> dict[str, Callable[[], Any]]:
        return {"ASE": lambda: self.loop.run(STEPS), "LAMMPS": lambda: self.lmp.command(f"run {STEPS} pre no post no")}

    def disagreement(self) -> float:
        """Largest difference of forces, relative to the largest force, where LAMMPS' atoms stand now."""
        atoms = self.start.copy()
        atoms.positions = np.array(self.lmp.gather_atoms("x", 1, 3)).reshape(-1, 3)
        atoms.calc = Calculator(self.posterior, device="cpu")
        found = np.array(self.lmp.gather_atoms("f", 1, 3)).reshape(-1, 3)
        expected = atoms.get_forces()
        return float(np.abs(found - expected).max() / np.abs(expected).max())


class CpuTime:
    """A call that notes how much of the processor it used, which others on the machine disturb less than the time it
    took."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self.call = call
        self.seconds: list[float] = []

    def __call__(self) -> None:
        start = time.process_time()
        self.call()
        self.seconds.append(time.process_time() - start)

    def per_step(self) -> float:
        """Median; the first call, which warms up, is left out."""
        return median(self.seconds[1:]) / STEPS


def row(timings: dict[str, Timing], calls: dict[str, CpuTime], contest: Contest) -> dict[str, Any]:
    processor = {name: call.per_step() for name, call in calls.items()}
    steps = {name: STEPS / timing.seconds for name, timing in timings.items()}
    return {
        "atoms": len(contest.start),
        "samples": len(contest.posterior),
        "timings": {name: timing.to_dict() for name, timing in timings.items()},
        "steps_per_second": steps,
        "lammps_over_ase": steps["LAMMPS"] / steps["ASE"],
        "processor_seconds_per_step": processor,
        "lammps_over_ase_by_processor_time": processor["ASE"] / processor["LAMMPS"],
        "force_disagreement": contest.disagreement(),
    }


def main() -> None:
    options = parse(__doc__, rounds=7, quick="small cells, tiny network, few repeats")
    keep_freed_memory()  # for both
    torch.set_num_threads(options.threads)
    systems = {"water": water(2 if options.quick else 4), "silicon": silicon(2 if options.quick else 5)}
    networks = [("tiny", 1)] if options.quick else [("tiny", 1), ("small", 8)]
    rows = {}
    for system, atoms in systems.items():
        for name, samples in networks:
            contest = Contest(atoms, posterior_for(atoms, name, samples))
            calls = {each: CpuTime(call) for each, call in contest.calls().items()}
            timings = interleaved(dict(calls), 2 if options.quick else options.rounds, warm_up=1)
            rows[f"{system}, {name} network, k = {samples}"] = row(timings, calls, contest)
            print(f"{system}, {name}, k = {samples}: done", flush=True)
    table = number_table(
        f"Molecular dynamics, steps a second, {options.threads} threads, one rank",
        ("", "atoms", "ASE", "LAMMPS", "LAMMPS over ASE", "by processor time"),
    )
    for name, found in rows.items():
        speeds = [
            f"{found['steps_per_second'][each]:.3g} ± {found['timings'][each]['spread'] * 50:.0f} %"
            for each in ("ASE", "LAMMPS")
        ]
        ratios = [f"{found[each]:.2f} ×" for each in ("lammps_over_ase", "lammps_over_ase_by_processor_time")]
        table.add_row(name, str(found["atoms"]), *speeds, *ratios)
    Console().print(table)
    config = {"steps": STEPS, "timestep_fs": 0.5, "rounds": options.rounds, "networks": networks}
    about = {"benchmark": "LAMMPS on a CPU", "engine": contest.atoms.calc.engine, "quick": options.quick}
    result = {**about, "config": config, "seed": 0, "rows": rows}
    save(result, options, "lammps-cpu.json", ("torch", "numpy", "ase", "lammps", "vesin"))


if __name__ == "__main__":
    main()
