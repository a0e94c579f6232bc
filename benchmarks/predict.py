"""Speed and memory of predictions on a CPU, beside eight separate evaluations by the official NequIP package.

    python benchmarks/predict.py            all of it; about ten minutes; writes results/speed/predict-cpu.json
    python benchmarks/predict.py --quick    half a minute: shows that it runs, not how fast

Two tables: structures per second with k = 1 and k = 8 samples beside eight official networks with the same weights,
and the memory of `equibayes predict` over files of different length.
"""

import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from command import number_table, parse, ran_job, save
from contestants import Official, ethanol_config, ethanol_frames
from measure import MemoryPeak, in_fresh_process, interleaved
from rich.console import Console

from equibayes.allocator import keep_freed_memory
from equibayes.bayes.model import StochasticModel
from equibayes.data import Structure, bundled_ethanol
from equibayes.data.reference import EnergyReference
from equibayes.network.official import convert_official
from equibayes.posterior.file import Posterior
from equibayes.posterior.predict import predict

SAMPLES = 8
GOAL = 5.0  # times faster than eight official evaluations


class OfficialEnsemble:
    """Official networks of one architecture with different weights, on prepared batches: neighbour lists are not
    timed."""

    def __init__(self, networks: Sequence[Official], frames: Sequence[Structure], batch: int) -> None:
        from nequip.data import AtomicDataDict, from_ase
        from nequip.data.transforms import ChemicalSpeciesToAtomTypeMapper, NeighborListTransform

        self.networks = networks
        config = ethanol_config(networks[0].name)
        species, neighbors = ChemicalSpeciesToAtomTypeMapper(config.type_names), NeighborListTransform(config.r_max)
        prepared = [neighbors(species(from_ase(frame.to_atoms()))) for frame in frames]
        self.batches = [
            AtomicDataDict.batched_from_list(prepared[start : start + batch]) for start in range(0, len(frames), batch)
        ]

    def forces(self) -> list[np.ndarray]:
        """[atoms of all frames, 3] from each network."""
        return [
            np.concatenate([each.model(batch.copy())["forces"].detach().numpy() for batch in self.batches])
            for each in self.networks
        ]

    def posterior(self) -> Posterior:
        """The same eight networks as a posterior; the deviations are those at the start."""
        found = [convert_official(each.settings, each.model.state_dict()) for each in self.networks]
        model = StochasticModel(found[0].config)
        heads = model.layout.start(SAMPLES, 0)[:, model.network.layout.size :]
        weights = torch.cat([torch.cat([each.weights.float() for each in found]), heads], 1)
        return posterior_of(model, weights)


def posterior_of(model: StochasticModel, weights: torch.Tensor) -> Posterior:
    nothing = EnergyReference("given", {1: 0.0, 6: 0.0, 8: 0.0})
    count = torch.arange(len(weights))
    return Posterior(weights, count, torch.zeros_like(count), model.config, nothing)


def speed(name: str, frames: Sequence[Structure], batches: Sequence[int], rounds: int) -> dict[str, Any]:
    """Official with the batch that suits it best; ours from structures to σ, neighbour lists included."""
    networks = [Official(name, seed) for seed in range(SAMPLES)]
    tried = {}
    for batch in batches:
        one = OfficialEnsemble(networks[:1], frames, batch)
        tried[batch] = interleaved({"": one.forces}, 2, warm_up=1)[""].seconds / len(frames)
    best = min(tried, key=lambda batch: tried[batch])
    official = OfficialEnsemble(networks, frames, best)
    posterior = official.posterior()

    def ours(k: int) -> Callable[[], Any]:
        return lambda: list(predict(posterior.subset(k), frames))

    calls = {"official, eight times": official.forces, "ours, k = 8": ours(SAMPLES), "ours, k = 1": ours(1)}
    timings = interleaved(calls, rounds, warm_up=1)
    base = timings["official, eight times"].seconds
    theirs = np.mean(official.forces(), axis=0)
    mean = np.concatenate([prediction.forces for prediction in predict(posterior, frames)])
    return {
        "preset": name,
        "frames": len(frames),
        "official_batch": best,
        "official_seconds_per_structure_by_batch": tried,
        "force_disagreement": float(abs(mean - theirs).max() / abs(theirs).max()),
        "rows": {
            contestant: {
                **timing.to_dict(),
                "structures_per_second": len(frames) / timing.seconds,
                "faster": base / timing.seconds,
            }
            for contestant, timing in timings.items()
        },
        "cost_of_k8_over_k1": timings["ours, k = 8"].seconds / timings["ours, k = 1"].seconds,
    }


def streaming(name: str, sizes: Sequence[int], threads: int) -> dict[str, Any]:
    """`equibayes predict` on xyz files of different length, each in a process of its own: time, peak of memory, size
    of the files."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        posterior, data = Path(folder) / "a.posterior", Path(folder) / "frames.xyz"
        model = StochasticModel(ethanol_config(name))
        posterior_of(model, model.layout.start(SAMPLES, 0)).save(posterior)
        for size in sizes:
            write_frames(data, size)
            job = {"posterior": str(posterior), "data": str(data), "output": str(Path(folder) / "out.xyz")}
            row = in_fresh_process(__file__, {**job, "threads": threads})
            rows.append({"frames": size, "input_mib": data.stat().st_size / 2**20, **row})
    growth = rows[-1]["peak_mib"] - rows[0]["peak_mib"]
    return {"preset": name, "k": SAMPLES, "rows": rows, "peak_grows_by_mib": growth}


def write_frames(path: Path, count: int) -> None:
    """The bundled ethanol frames over and over, shaken by 0.01 Å so that no two are alike; no labels."""
    source, rng = list(bundled_ethanol()), np.random.default_rng(0)
    symbols = {1: "H", 6: "C", 8: "O"}
    with path.open("w") as file:
        for number in range(count):
            frame = source[number % len(source)]
            positions = frame.positions + rng.normal(scale=0.01, size=frame.positions.shape)
            file.write(f'{len(frame)}\nProperties=species:S:1:pos:R:3 pbc="F F F"\n')
            file.writelines(
                f"{symbols[int(z)]} {x:.8f} {y:.8f} {w:.8f}\n" for z, (x, y, w) in zip(frame.numbers, positions)
            )


def job(request: dict[str, Any]) -> dict[str, Any]:
    """One run of the program in a fresh process."""
    from equibayes.cli.main import main as program

    argv = ["predict", request["posterior"], request["data"], "-o", request["output"], "--device", "cpu"]
    memory, start = MemoryPeak(), time.perf_counter()
    status = program([*argv, "--threads", str(request["threads"]), "--overwrite"])
    seconds = time.perf_counter() - start
    if status:
        raise RuntimeError(f"status {status}")
    size = Path(request["output"]).stat().st_size
    return {"seconds": seconds, "peak_mib": memory.before + memory.extra(), "output_mib": size / 2**20}


def show(result: dict[str, Any], threads: int, console: Console) -> None:
    part = result["speed"]
    table = number_table(
        f"{part['frames']} ethanol molecules, {part['preset']} network, {threads} threads",
        ("", "time", "structures a second", "faster"),
    )
    for contestant, row in part["rows"].items():
        spread = f"{row['seconds']:.2f} s ± {row['spread'] * 50:.0f} %"
        table.add_row(contestant, spread, f"{row['structures_per_second']:.1f}", f"{row['faster']:.2f} ×")
    console.print(table)
    verdict = "reached" if part["rows"]["ours, k = 8"]["faster"] >= GOAL else "NOT reached"
    console.print(
        f"k = 8 costs {part['cost_of_k8_over_k1']:.2f} times k = 1.  Goal of {GOAL:g} times: {verdict}.  The mean "
        f"forces of both are the same: largest difference {part['force_disagreement']:.1e}.  Official in batches of "
        f"{part['official_batch']}, its best."
    )
    part = result["streaming"]
    title = f"equibayes predict, {part['preset']} network, k = {part['k']}, {threads} threads"
    table = number_table(title, ("frames", "time", "frames a second", "peak memory", "input", "output"))
    for row in part["rows"]:
        sizes = (f"{row[name]:.0f} MiB" for name in ("peak_mib", "input_mib", "output_mib"))
        table.add_row(str(row["frames"]), f"{row['seconds']:.0f} s", f"{row['frames'] / row['seconds']:.0f}", *sizes)
    console.print(table)
    times = part["rows"][-1]["frames"] / part["rows"][0]["frames"]
    console.print(f"With {times:g} times the frames the peak grows by {part['peak_grows_by_mib']:.0f} MiB.")


def main() -> None:
    keep_freed_memory()  # for both contestants, as the program does
    if ran_job(job):
        return
    options = parse(__doc__, rounds=7, quick="tiny network, few frames")
    torch.set_num_threads(options.threads)
    quick = options.quick
    name, small, sizes = ("tiny", "tiny", [100, 200]) if quick else ("paper", "tiny", [10_000, 100_000])
    frames = list(bundled_ethanol()[: 16 if quick else 64])
    assert frames[0].geometry_digest() == ethanol_frames()[0].geometry_digest()  # the scales are from the same set
    result = {
        "benchmark": "predictions on a CPU",
        "quick": quick,
        "config": ethanol_config(name).to_dict(),
        "seed": 0,
        "speed": speed(name, frames, [4, 16] if quick else [1, 4, 16, 64], 2 if quick else options.rounds),
        "streaming": streaming(small, sizes, options.threads),
    }
    show(result, options.threads, Console())
    save(result, options, "predict-cpu.json", ("torch", "numpy", "nequip", "e3nn", "vesin", "ase"))


if __name__ == "__main__":
    main()
