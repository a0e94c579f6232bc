"""Steps of molecular dynamics in LAMMPS on several MPI ranks, which share the samples of the posterior or the atoms.

    python benchmarks/lammps_ranks.py            about ten minutes; writes results/speed/lammps-ranks-cpu.json
    python benchmarks/lammps_ranks.py --quick    a few seconds on a small cell: shows that it runs, not how fast
    python benchmarks/lammps_ranks.py --only "1000 atoms"      one system; the file keeps the others

Silicon, `small` network, 8 samples, velocity Verlet from rest, 0.5 fs: one rank with one thread, two ranks with one
thread each, one rank with two threads.  Each round starts all of them one after the other.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from command import number_table, parse, ran_job, save_parts
from lammps_md import STEPS, lammps_of, posterior_for, silicon
from measure import summary
from rich.console import Console

from equibayes.allocator import keep_freed_memory
from equibayes.data.structures import Structure
from equibayes.simulate.lammps_library import leave_ranks

LAYOUTS = {
    "1 rank": (1, 1, "auto"),
    "2 ranks, samples": (2, 1, "samples"),
    "2 ranks, atoms": (2, 1, "atoms"),
    "1 rank, 2 threads": (1, 2, "auto"),
}
"""Ranks, threads of each, and what the ranks divide."""
SYSTEMS = {"512 atoms": (4, 6), "1000 atoms": (5, 6), "4096 atoms": (8, 2), "10648 atoms": (11, 1)}
"""Cells of 8 atoms along each edge, and stretches of steps that are timed."""


def simulate(job: dict[str, Any]) -> dict[str, Any]:
    """Seconds per step of each stretch, processor seconds of the evaluation, and the forces after the last one."""
    keep_freed_memory()
    torch.set_num_threads(job["threads"])
    atoms = silicon(job["cells"])
    posterior = posterior_for(atoms, job["network"], job["samples"])
    lmp, potential = lammps_of(atoms, posterior, divide=job["divide"])
    sampled, used = potential.share.sampled, []

    def timed(structure: Structure) -> Any:
        start = time.process_time()  # without the time that a rank waits for others
        found = sampled(structure)
        used.append(time.process_time() - start)
        return found

    potential.share.sampled = timed
    seconds = []
    for _ in range(1 + job["stretches"]):
        start = time.perf_counter()
        lmp.command(f"run {STEPS} pre no post no")
        seconds.append((time.perf_counter() - start) / STEPS)
    forces, first = list(lmp.gather_atoms("f", 1, 3)), potential.ranks.first
    lmp.close()
    leave_ranks()
    if not first:
        sys.exit()  # one rank prints
    return {"seconds": seconds[1:], "processor_seconds": used[STEPS:], "forces": forces}


def on_ranks(job: dict[str, Any]) -> dict[str, Any]:
    """The same in processes of its own."""
    mpirun = [str(Path(sys.executable).parent / "mpirun"), "-launcher", "fork", "-n", str(job["ranks"])]
    command = [*mpirun, sys.executable, __file__, "--job", json.dumps(job)]
    environment = os.environ | {"OMP_NUM_THREADS": str(job["threads"])}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode:
        raise RuntimeError(f"{job} failed: {done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def row(shared: dict[str, Any], rounds: int) -> dict[str, Any]:
    """All layouts for one system."""
    seconds: dict[str, list[float]] = {name: [] for name in LAYOUTS}
    processor: dict[str, list[float]] = {name: [] for name in LAYOUTS}
    forces: dict[str, np.ndarray] = {}
    for _ in range(rounds):
        for name, (ranks, threads, divide) in LAYOUTS.items():
            found = on_ranks(shared | {"ranks": ranks, "threads": threads, "divide": divide})
            seconds[name] += found["seconds"]
            processor[name] += found["processor_seconds"]
            forces[name] = np.array(found["forces"])
    one = forces["1 rank"]
    timings = {name: summary(values) for name, values in seconds.items()}
    return {
        **shared,
        "timings": {name: timing.to_dict() for name, timing in timings.items()},
        "over_one_rank": {name: timings["1 rank"].seconds / timing.seconds for name, timing in timings.items()},
        "processor_seconds_of_first_rank": {name: median(values) for name, values in processor.items()},
        "force_disagreement": {name: float(np.abs(f - one).max() / np.abs(one).max()) for name, f in forces.items()},
    }


def main() -> None:
    if ran_job(simulate):
        return
    options = parse(__doc__, rounds=3, quick="a small cell, tiny network, one round", parts=tuple(SYSTEMS))
    network, rounds = ("tiny", 1) if options.quick else ("small", options.rounds)
    systems = {"64 atoms": (2, 2)} if options.quick else {name: SYSTEMS[name] for name in options.only}
    config = {"steps": STEPS, "timestep_fs": 0.5, "rounds": rounds}
    about = {"benchmark": "LAMMPS on several ranks", "quick": options.quick, "config": config, "seed": 0}
    packages = ("torch", "numpy", "ase", "lammps", "mpi4py")
    found: dict[str, Any] = {}
    for name, (cells, stretches) in systems.items():
        shared = {"cells": cells, "network": network, "samples": 8, "stretches": stretches}
        found[name] = row(shared, rounds)
        result = save_parts(found, options, "lammps-ranks-cpu.json", packages, **about)
    show({name: part["rows"] for name, part in result["parts"].items()})


def show(rows: dict[str, Any]) -> None:
    columns = ("", *LAYOUTS, "samples: over 1 rank", "atoms: over 1 rank")
    table = number_table("Molecular dynamics in LAMMPS, ms per step", columns)
    for name, found in rows.items():
        times = [f"{1e3 * t['seconds']:.1f} ± {t['spread'] * 50:.0f} %" for t in found["timings"].values()]
        gains = [f"{found['over_one_rank'][f'2 ranks, {what}']:.2f} ×" for what in ("samples", "atoms")]
        table.add_row(name, *times, *gains)
    Console().print(table)


if __name__ == "__main__":
    main()
