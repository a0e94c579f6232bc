"""What novelty adds to a call of the calculator on a CPU: the same posterior with and without it.

    python benchmarks/novelty.py            two minutes; writes results/speed/novelty-cpu.json
    python benchmarks/novelty.py --quick    seconds: shows that it runs, not how much it costs

Energy, forces, σ and novelty of atoms that move a little between calls, k = 8 and 1 samples.  Both are
timed in turn, for a few milliseconds each; the share is the median of the ratios of neighbours, in processor time, so
that other work on the machine meets both alike.  Novelty is fitted to rattled copies, so that no atom is novel.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from ase import Atoms
from command import number_table, parse, save
from lammps_md import posterior_for, silicon, water
from measure import spent
from native import Moving
from predict import SAMPLES
from rich.console import Console

from equibayes.allocator import keep_freed_memory
from equibayes.data import Dataset, Structure, bundled_ethanol
from equibayes.posterior.fit_novelty import FEWEST_FRAMES, with_novelty

MOST = 4.0
"""Seconds for the calls without novelty."""


def cost(name: str, atoms: Atoms, samples: int, rounds: int) -> dict[str, Any]:
    """Seconds of a call with and without novelty, and the share that it adds."""
    rng, frames = np.random.default_rng(0), []
    for _ in range(2 * FEWEST_FRAMES):
        moved = atoms.copy()
        moved.positions += rng.normal(scale=0.03, size=moved.positions.shape)
        frames.append(Structure.from_atoms(moved))
    known = with_novelty(posterior_for(atoms, name, samples), Dataset(frames), Dataset([]), device="cpu")
    pair = [Moving(replace(known, novelty=None), atoms), Moving(known, atoms)]
    for call in pair:
        spent(call, 3)
    single = min(spent(call, 1) for call in pair)
    repeats, pairs = max(1, int(0.003 / single)), max(2, min(rounds, int(MOST / single)))
    times = np.array([[spent(call, repeats) for call in pair] for _ in range(pairs)]) / repeats
    low, share, high = np.quantile(times[:, 1] / times[:, 0] - 1, [0.25, 0.5, 0.75])
    seconds = float(np.median(times[:, 0]))
    about = {"atoms": len(atoms), "k": samples, "pairs": pairs, "seconds_without": seconds}
    return about | {"share": float(share), "quartiles": [float(low), float(high)], "ms": 1e3 * share * seconds}


def main() -> None:
    options = parse(__doc__, rounds=801, quick="a tiny network, few repeats", default_threads=1)
    options.rounds = 2 if options.quick else options.rounds
    keep_freed_memory()
    torch.set_num_threads(options.threads)
    molecule = bundled_ethanol("test")[0].to_atoms()
    systems = {"ethanol": molecule, "water": water(4), "silicon": silicon(5)}
    cases = [("small", system) for system in systems] + [("paper", "ethanol")]
    if options.quick:
        cases, systems = [("tiny", "silicon")], {"silicon": silicon(2)}
    rows = {
        f"{system}, {name} network, k = {samples}": cost(name, systems[system], samples, options.rounds)
        for name, system in cases
        for samples in (SAMPLES, 1)
    }
    table = number_table("Calculator calls", ("", "atoms", "ms", "novelty adds, ms", "%"))
    for system, row in rows.items():
        numbers = (1e3 * row["seconds_without"], row["ms"], 100 * row["share"])
        table.add_row(system, str(row["atoms"]), *(f"{number:.2f}" for number in numbers))
    Console().print(table)
    result = {"benchmark": "the cost of novelty", "quick": options.quick, "seed": 0, "rows": rows}
    save(result, options, "novelty-cpu.json", ("torch", "numpy", "vesin", "ase"))


if __name__ == "__main__":
    main()
