"""Time and memory of one structure with 1000 to 110 592 atoms: energy, forces, stress and deviations on a CPU.

    python benchmarks/large.py            about six minutes; writes results/speed/large-cpu.json and .png
    python benchmarks/large.py --quick    a few seconds with few atoms: shows that it runs
    python benchmarks/large.py --only "small, 1 sample"       one part; the file keeps the others

Rattled silicon, 16 neighbours within the cutoff, called like molecular dynamics: atoms move a little between calls.
Each size has a process of its own, so that its peak of memory is known.  Times are processor time, little disturbed by
other work on the machine.  "New list" is a call that also searches the neighbours, as every 10 to 50 steps of a
simulation.
"""

import time
from pathlib import Path
from typing import Any

import torch
from command import number_table, parse, ran_job, save_parts
from lammps_md import posterior_for, silicon
from measure import MemoryPeak, growth, in_fresh_process
from native import Moving
from provenance import RESULTS
from rich.console import Console

from equibayes.allocator import keep_freed_memory
from equibayes.evaluation.figures.style import figure, series, styled

SIZES = {
    "small, 1 sample": ("small", 1, (5, 8, 10, 15, 20, 24)),
    "small, 8 samples": ("small", 8, (5, 8, 10, 15, 20, 24)),
    "the paper's, 1 sample": ("paper", 1, (5, 8, 10, 15)),
}
"""Network, samples, and cells of 8 atoms along each edge."""
QUICK = {"tiny, 1 sample": ("tiny", 1, (2, 3))}


def measured(job: dict[str, Any]) -> dict[str, Any]:
    """Best processor seconds of a call and of one with a new list, and the peak of memory."""
    keep_freed_memory()
    torch.set_num_threads(job["threads"])
    atoms = silicon(job["cells"])
    posterior = posterior_for(atoms, job["network"], job["samples"])
    Moving(posterior, silicon(1))()  # loads what any call needs
    peak = MemoryPeak()
    call = Moving(posterior, atoms)
    times: dict[str, list[float]] = {"new list": [], "call": []}
    begun = time.process_time()
    while len(times["call"]) < 3 or (time.process_time() - begun < 1 and len(times["call"]) < 100):
        fresh = len(times["call"]) % 3 == 0
        for name in ["new list", "call"] if fresh else ["call"]:
            if name == "new list":
                call.calculator.forget()
            start = time.process_time()
            call()
            times[name].append(time.process_time() - start)
    return {"atoms": len(atoms), "seconds": {name: min(each) for name, each in times.items()}, "mib": peak.extra()}


def part(network: str, samples: int, cells: tuple[int, ...], threads: int) -> list[dict[str, Any]]:
    shared = {"network": network, "samples": samples, "threads": threads}
    return [shared | in_fresh_process(__file__, shared | {"cells": each}) for each in cells]


def microseconds(row: dict[str, Any], what: str) -> float:
    """Of an atom and a sample."""
    return 1e6 * row["seconds"][what] / row["atoms"] / row["samples"]


def show(parts: dict[str, Any], console: Console) -> None:
    columns = ("", "atoms", "µs per atom and sample", "with a new list", "MiB", "KiB per atom")
    table = number_table("Energy, forces, stress and deviations of silicon", columns)
    for name, found in parts.items():
        rows = found["rows"]
        for row in rows:
            times = [f"{microseconds(row, what):.1f}" for what in ("call", "new list")]
            table.add_row(
                name, str(row["atoms"]), *times, f"{row['mib']:.0f}", f"{1024 * row['mib'] / row['atoms']:.1f}"
            )
        large = [row for row in rows if row["atoms"] >= 4000]
        if len(large) > 1:
            sizes = [row["atoms"] for row in large]
            values = [row["seconds"]["call"] for row in large], [row["mib"] for row in large]
            powers = [growth(sizes, each) for each in values]
            table.add_row(f"{name}, exponent from 4000 atoms", "", f"{powers[0]:.2f}", "", f"{powers[1]:.2f}", "")
    console.print(table)


def draw(parts: dict[str, Any], path: Path) -> None:
    """Time and memory per atom against the number of atoms."""
    with styled():
        picture, grid = figure(7, 3, columns=2)
        time_axes, memory_axes = grid[0]
        for number, (name, found) in enumerate(parts.items()):
            rows, look = found["rows"], series(number)
            atoms = [row["atoms"] for row in rows]
            time_axes.plot(atoms, [microseconds(row, "call") for row in rows], label=name, **look)
            memory_axes.plot(atoms, [1024 * row["mib"] / row["atoms"] for row in rows], label=name, **look)
        for axes, title in ((time_axes, "µs per atom and sample"), (memory_axes, "KiB per atom")):
            axes.set(xscale="log", yscale="log", xlabel="atoms", ylabel=title)
        time_axes.legend()
        picture.savefig(path)


def main() -> None:
    if ran_job(measured):
        return
    options = parse(__doc__, rounds=1, quick="few atoms", default_threads=1, parts=tuple(SIZES))
    cases = QUICK if options.quick else {name: SIZES[name] for name in options.only}
    about = {"benchmark": "large structures on a CPU", "quick": options.quick, "seed": 0}
    found: dict[str, Any] = {}
    for name, case in cases.items():
        found[name] = part(*case, options.threads)
        result = save_parts(found, options, "large-cpu.json", ("torch", "numpy", "ase", "vesin"), **about)
    show(result["parts"], Console())
    if not options.quick:
        draw(result["parts"], (options.output or RESULTS / "large-cpu.json").with_suffix(".png"))


if __name__ == "__main__":
    main()
