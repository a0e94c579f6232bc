"""Speed and memory of the network on a CPU, beside the official NequIP package.

    python benchmarks/network.py            all of it; several minutes; writes results/speed/network-cpu.json
    python benchmarks/network.py --quick    a few seconds: shows that it runs, not how fast

Three tables: the time of a training step per weight set, the memory it takes, and how an evaluation grows with the
number of atoms.
"""

import time
from typing import Any

import torch
from command import number_table, parse, ran_job, save
from contestants import BATCH, Official, Ours, disagreement, ethanol_config, silicon_evaluation
from measure import MemoryPeak, growth, in_fresh_process, interleaved
from rich.console import Console

from equibayes.allocator import keep_freed_memory

LINEAR = (0.9, 1.1)  # exponents that we call linear; below, fixed costs still count
LARGE = 500  # atoms from which the exponent is fitted; below, fixed costs rule


def training_step(name: str, chains: list[int], rounds: int) -> dict[str, Any]:
    """Time per step and per weight set: official in eager mode, ours at each K.  One process, turn by turn."""
    official = Official(name)
    contestants = {"official": official.step, **{f"ours K={k}": Ours(name, k).step for k in chains}}
    timings = interleaved(contestants, rounds)
    base = timings["official"].seconds
    rows = {}
    for contestant, timing in timings.items():
        sets = int(contestant.split("=")[1]) if "=" in contestant else 1
        per_set = timing.seconds / sets
        rows[contestant] = {
            **timing.to_dict(),
            "weight_sets": sets,
            "per_weight_set": per_set,
            "faster": base / per_set,
        }
    first, last = rows[f"ours K={chains[0]}"]["seconds"], rows[f"ours K={chains[-1]}"]["seconds"]
    return {"force_disagreement": disagreement(official), "rows": rows, "cost_of_largest_K": last / first}


def training_memory(name: str, chains: list[int], threads: int) -> dict[str, Any]:
    """Peak memory of a step over that of the prepared process, each in a process of its own."""
    jobs: dict[str, dict[str, Any]] = {"official": {"kind": "official"}}
    jobs |= {f"ours K={k}": {"kind": "ours", "chains": k} for k in chains}
    common = {"name": name, "threads": threads, "rounds": 1}
    return {contestant: in_fresh_process(__file__, {**common, **job}) for contestant, job in jobs.items()}


def scaling(name: str, cells: list[int], rounds: int, threads: int) -> dict[str, Any]:
    """Energy and forces of silicon crystals: time, memory and their exponents."""
    common = {"kind": "silicon", "name": name, "threads": threads, "rounds": rounds}
    rows = [in_fresh_process(__file__, {**common, "cells": n}) for n in cells]
    large = [row for row in rows if row["atoms"] >= LARGE]
    atoms = [row["atoms"] for row in large]
    result: dict[str, Any] = {"preset": name, "rows": rows, "exponent_from_atoms": min(atoms, default=None)}
    for quantity in ("seconds", "step_mib"):
        result[f"exponent_{quantity}"] = growth(atoms, [row[quantity] for row in large]) if len(large) > 1 else None
    return result


def job(request: dict[str, Any]) -> dict[str, Any]:
    """One measurement in a fresh process; see `in_fresh_process`."""
    torch.set_num_threads(request["threads"])
    name, extra = request["name"], {}
    if request["kind"] == "silicon":
        start = time.perf_counter()
        call = silicon_evaluation(name, request["cells"])
        extra = {"atoms": 8 * request["cells"] ** 3, "prepare_seconds": time.perf_counter() - start}
    else:
        call = Official(name).step if request["kind"] == "official" else Ours(name, request["chains"]).step
    memory = MemoryPeak()
    timing = interleaved({"": call}, request["rounds"], warm_up=1)[""]
    return {**extra, **timing.to_dict(), "before_mib": memory.before, "step_mib": memory.extra()}


def show(result: dict[str, Any], threads: int, console: Console) -> None:
    training, memory = result["training_step"], result["training_memory"]
    title = f"Training step, {result['preset']} network, {BATCH} ethanol molecules, {threads} threads"
    table = number_table(title, ("", "step", "per weight set", "faster than official", "memory", "per weight set"))
    table.caption = "± half the distance of the quartiles; memory: peak during the step"
    for contestant, row in training["rows"].items():
        held = memory[contestant]["step_mib"]
        table.add_row(
            contestant,
            f"{row['seconds'] * 1e3:.0f} ms ± {row['spread'] * 50:.0f} %",
            f"{row['per_weight_set'] * 1e3:.0f} ms",
            f"{row['faster']:.2f} ×",
            f"{held:.0f} MiB",
            f"{held / row['weight_sets']:.0f} MiB",
        )
    console.print(table)
    largest = list(training["rows"])[-1].removeprefix("ours ")
    console.print(
        f"A step with {largest} costs {training['cost_of_largest_K']:.2f} times one with K=1.  "
        f"Both compute the same forces: largest difference {training['force_disagreement']:.1e}."
    )
    for part in result["scaling"]:
        show_scaling(part, threads, console)


def show_scaling(part: dict[str, Any], threads: int, console: Console) -> None:
    table = number_table(
        f"Energy and forces of silicon, {part['preset']} network, {threads} threads",
        ("atoms", "time", "per atom", "memory", "per atom", "neighbour list and graph"),
    )
    for row in part["rows"]:
        table.add_row(
            str(row["atoms"]),
            f"{row['seconds'] * 1e3:.0f} ms ± {row['spread'] * 50:.0f} %",
            f"{row['seconds'] / row['atoms'] * 1e6:.0f} µs",
            f"{row['step_mib']:.0f} MiB",
            f"{row['step_mib'] / row['atoms'] * 1024:.0f} KiB",
            f"{row['prepare_seconds'] * 1e3:.0f} ms",
        )
    console.print(table)
    for quantity, words in (("seconds", "time"), ("step_mib", "memory")):
        exponent = part[f"exponent_{quantity}"]
        if exponent is not None:
            least, most = LINEAR
            verdict = "less than linear" if exponent < least else "linear" if exponent <= most else "MORE than linear"
            console.print(f"From {part['exponent_from_atoms']} atoms {words} grows as atoms^{exponent:.2f}: {verdict}.")


def main() -> None:
    keep_freed_memory()  # for both contestants; large K gains most
    if ran_job(job):
        return
    options = parse(__doc__, rounds=9, quick="tiny network, few repeats")
    torch.set_num_threads(options.threads)
    quick, threads = options.quick, options.threads
    name, chains = ("tiny", [2]) if quick else ("paper", [1, 2, 4, 8])
    rounds = 2 if quick else options.rounds
    cells = {"tiny": [1]} if quick else {"small": [2, 3, 4, 5, 6, 7, 8], "paper": [2, 3, 4, 5, 6, 7]}
    result = {
        "benchmark": "network on a CPU",
        "quick": quick,
        "preset": name,
        "config": ethanol_config(name).to_dict(),
        "seed": 0,
        "batch": BATCH,
        "training_step": training_step(name, chains, rounds),
        "training_memory": training_memory(name, chains, threads),
        "scaling": [scaling(preset_name, sizes, min(rounds, 5), threads) for preset_name, sizes in cells.items()],
    }
    show(result, threads, Console())
    save(result, options, "network-cpu.json", ("torch", "numpy", "nequip", "e3nn", "vesin"))


if __name__ == "__main__":
    main()
