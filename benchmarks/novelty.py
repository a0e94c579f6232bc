"""What novelty adds to a call of the calculator on a CPU: the same posterior with and without it.

    python benchmarks/novelty.py            two minutes; writes results/speed/novelty-cpu.json
    python benchmarks/novelty.py --quick    seconds: shows that it runs, not how much it costs

Energy, forces, σ and novelty of atoms that move a little between calls, network `small`, k = 8 and 1 samples.  Times
are processor time, and the ratio is that of the best of all rounds.  Novelty is fitted to rattled copies, so that no
atom is novel.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from ase import Atoms
from command import number_table, parse, save
from lammps_md import posterior_for, silicon, water
from measure import processor_time
from native import Moving
from predict import SAMPLES
from rich.console import Console

from equibayes.allocator import keep_freed_memory
from equibayes.data import Dataset, Structure, bundled_ethanol
from equibayes.posterior.fit_novelty import FEWEST_FRAMES, with_novelty


def cost(name: str, atoms: Atoms, samples: int, rounds: int) -> dict[str, Any]:
    """Seconds of a call with and without novelty, and the share that it adds."""
    rng, frames = np.random.default_rng(0), []
    for _ in range(2 * FEWEST_FRAMES):
        moved = atoms.copy()
        moved.positions += rng.normal(scale=0.03, size=moved.positions.shape)
        frames.append(Structure.from_atoms(moved))
    known = with_novelty(posterior_for(atoms, name, samples), Dataset(frames), Dataset([]), device="cpu")
    calls = {"with": Moving(known, atoms), "without": Moving(replace(known, novelty=None), atoms)}
    rows: dict[str, Any] = processor_time(calls, rounds)
    added = rows["with"]["best"] - rows["without"]["best"]
    return {"atoms": len(atoms), "k": samples, **rows, "ms": 1e3 * added, "share": added / rows["without"]["best"]}


def main() -> None:
    options = parse(__doc__, rounds=41, quick="a tiny network, few repeats", default_threads=1)
    keep_freed_memory()
    torch.set_num_threads(options.threads)
    systems = {"ethanol": bundled_ethanol("test")[0].to_atoms(), "water": water(4), "silicon": silicon(5)}
    if options.quick:
        systems = {"silicon": silicon(2)}
    rounds, name = (2, "tiny") if options.quick else (options.rounds, "small")
    rows = {
        f"{system}, k = {samples}": cost(name, atoms, samples, rounds)
        for system, atoms in systems.items()
        for samples in (SAMPLES, 1)
    }
    table = number_table(f"Calculator calls, {name} network", ("", "atoms", "ms", "novelty adds, ms", "%"))
    for system, row in rows.items():
        numbers = (1e3 * row["without"]["best"], row["ms"], 100 * row["share"])
        table.add_row(system, str(row["atoms"]), *(f"{number:.2f}" for number in numbers))
    Console().print(table)
    result = {"benchmark": "the cost of novelty", "quick": options.quick, "preset": name, "seed": 0, "rows": rows}
    save(result, options, "novelty-cpu.json", ("torch", "numpy", "vesin", "ase"))


if __name__ == "__main__":
    main()
