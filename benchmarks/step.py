"""Speed of the fused kernels on a GPU, beside the official NequIP package in eager mode in the same call.

    python benchmarks/step.py --prepare frames.npz --rmd17 FOLDER   frames of six molecules from the rMD17 archive
    python benchmarks/step.py --data frames.npz      all measurements, about three minutes; results/speed/step-gpu.json
    python benchmarks/step.py --data frames.npz --official-compiled ethanol     the official package compiled, 8 min
    python benchmarks/step.py --figure                              the figure from the stored numbers

A step is a whole step of the sampler: minibatch, energy and forces, likelihood with both heads, gradient, prior,
update.
"""

import argparse
import json
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from provenance import RESULTS, provenance, write_json

from equibayes.bayes.model import StochasticModel
from equibayes.bayes.potential import Potential
from equibayes.bayes.prior import StandardNormal
from equibayes.data.elements import atomic_number
from equibayes.data.graph import graph_of
from equibayes.data.resident import ResidentData
from equibayes.data.structures import Structure
from equibayes.engine.triton.precompile import precompile
from equibayes.network.config import NetworkConfig, preset
from equibayes.network.scales import fit_scales
from equibayes.sampling import sghmc
from equibayes.sampling.chain import Stretch
from equibayes.sampling.noise import NoiseKey
from equibayes.sampling.schedule import StepPlan
from equibayes.units import KCAL_PER_MOL

PRECISIONS = ("mixed", "bf16x3", "tf32x3", "float32")
CURVES = "mixed"
MOLECULES = ("ethanol", "malonaldehyde", "benzene", "toluene", "aspirin", "azobenzene")
GOALS: dict[str, float | None] = {
    "ethanol K=1": 0.9,
    "ethanol K=8": 0.45,
    "aspirin K=1": 2.0,
    "aspirin K=8": 1.4,
    "MD aspirin k=8": 0.4,
    "MD aspirin k=8, with the host": None,
    "1000 atoms k=8": 12.0,
    "1000 atoms k=8, with the host": None,
}
"""ms; the second row of a prediction is one call by itself, which waits for its results."""
RESULT = RESULTS / "step-gpu.json"


def prepare(path: Path, archive: Path) -> None:
    arrays = {}
    for name in MOLECULES:
        data = np.load(archive / f"rmd17_{name}.npz")
        chosen = np.load(archive / f"splits_{name}.npz")["train_01"][:100]
        arrays[f"{name}_z"], arrays[f"{name}_R"] = data["nuclear_charges"], data["coords"][chosen]
        arrays[f"{name}_E"], arrays[f"{name}_F"] = (
            data["energies"][chosen] * KCAL_PER_MOL,
            data["forces"][chosen] * KCAL_PER_MOL,
        )
    np.savez_compressed(path, **arrays)


def frames_of(data: Any, name: str) -> list[Structure]:
    box, free = np.zeros((3, 3)), np.zeros(3, bool)
    rows = zip(data[f"{name}_R"], data[f"{name}_E"], data[f"{name}_F"])
    return [Structure(data[f"{name}_z"], R, box, free, energy=float(E), forces=F) for R, E, F in rows]


def species_of(config: NetworkConfig) -> dict[int, int]:
    return {atomic_number(name): i for i, name in enumerate(config.type_names)}


def milliseconds(work: Callable[[], Any], repeats: int = 7) -> float:
    """Median time of `work` on the device."""
    times = []
    for _ in range(repeats):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        work()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end))
    return float(np.median(times))


def sampler_step(
    frames: list[Structure], chains: int, batch: int, precision: str, steps: int = 20, *, compiled: bool = False
) -> dict[str, Any]:
    """ms of a step and of a chain's share; GiB on the device."""
    from equibayes.engine.triton.steps import TritonStepper

    torch.cuda.reset_peak_memory_stats()
    config = fit_scales(preset("paper"), frames)
    mean = float(np.mean([frame.energy or 0.0 for frame in frames]))
    data = ResidentData(
        frames, r_max=config.r_max, species_of=species_of(config), reference=[mean] * len(frames), device="cuda"
    )
    if not compiled:
        precompile(config, precision, chains, chains * batch * len(frames[0]), training=True)
    model = StochasticModel(config)
    state = sghmc.init(model.layout.start(chains, 0).cuda())
    key, sampler = NoiseKey(0, tuple(range(chains))), sghmc.SGHMCConfig()
    stepper = TritonStepper(
        Potential(model, data, StandardNormal()), state, key, sampler, longest=steps, precision=precision
    )
    plans = [StepPlan(1e-4, 1.0, "burn_in", i, -1, False, False) for i in range(steps)]
    rates = torch.full((steps, chains), 1e-4, dtype=torch.float64)
    chosen = torch.randint(0, len(frames), (steps, chains, batch), generator=torch.Generator().manual_seed(0))
    stretch = Stretch(0, plans, chosen)
    stepper.advance(stretch, rates)
    ms = milliseconds(lambda: stepper.advance(stretch, rates)) / steps
    memory = torch.cuda.max_memory_allocated() / 2**30
    return {
        "atoms": len(frames[0]),
        "chains": chains,
        "batch": batch,
        "precision": precision,
        "ms": ms,
        "ms_per_chain": ms / chains,
        "GiB": memory,
    }


def official(frames: list[Structure], batch: int, mode: str = "eager") -> dict[str, Any]:
    """The same network and batch by the official package: mean squared errors, double backward, no sampler and no
    heads.

    mode: eager, or compile, which takes the package many minutes.
    """
    from contestants import official_settings
    from nequip.data import AtomicDataDict, from_ase
    from nequip.data.transforms import ChemicalSpeciesToAtomTypeMapper, NeighborListTransform
    from nequip.model import NequIPGNNModel
    from nequip.utils.global_state import set_global_state

    set_global_state()
    config = fit_scales(preset("paper"), frames)
    model = NequIPGNNModel(compile_mode=mode, **official_settings(config, 0)).cuda()
    species, neighbors = ChemicalSpeciesToAtomTypeMapper(config.type_names), NeighborListTransform(r_max=config.r_max)
    listed = [neighbors(species(from_ase(frame.to_atoms()))) for frame in frames[:batch]]
    data = {key: value.cuda() for key, value in AtomicDataDict.batched_from_list(listed).items()}
    one = {key: value.cuda() for key, value in AtomicDataDict.batched_from_list(listed[:1]).items()}
    parameters = [p for p in model.parameters() if p.requires_grad]
    energy, forces = data["total_energy"].clone(), data["forces"].clone()

    def step() -> None:
        output = model(data.copy())
        loss = ((output["total_energy"] - energy) ** 2).mean() + ((output["forces"] - forces) ** 2).mean()
        torch.autograd.grad(loss, parameters)

    began = time.perf_counter()
    step()
    torch.cuda.synchronize()
    first = time.perf_counter() - began
    for _ in range(3):
        step()
    result = {"mode": mode, "batch": batch, "step_ms": milliseconds(step), "first_step_s": first}
    if mode == "eager":  # one molecule has other shapes, for which it would compile again
        model(one.copy())
        result["one_molecule_ms"] = milliseconds(lambda: model(one.copy()))
    return result


def moving(
    frame: Structure, config: NetworkConfig, k: int, precision: str, skin: float = 0.5, *, compiled: bool = False
) -> dict[str, Any]:
    """A step of dynamics without the integrator: positions up, energy, forces and deviations of k samples down."""
    from equibayes.engine.triton.dynamics import TritonDynamics

    torch.cuda.reset_peak_memory_stats()
    model = StochasticModel(config)
    weights = model.layout.forward_weights(model.layout.start(k, 0).cuda())
    start = time.perf_counter()
    graph = graph_of(frame, r_max=config.r_max + skin, species_of=species_of(config)).to("cuda")
    listed = time.perf_counter() - start
    if not compiled:
        precompile(config, precision, k, k * len(frame), training=False)
    system = TritonDynamics(model, weights, graph, precision)
    system.load(graph, frame.positions)
    system(frame.positions)
    system(frame.positions)
    times = []
    for _ in range(15):
        begin = time.perf_counter()
        system(frame.positions)
        times.append(time.perf_counter() - begin)
    replay_once = system.evaluate
    rounds = 40  # one after the other, so that the host's part of a launch does not count
    replay = milliseconds(lambda: [replay_once() for _ in range(rounds)]) / rounds
    pairs = int((graph.vector.norm(dim=-1) < config.r_max).sum())
    result = {
        "atoms": len(frame), "neighbours": pairs / len(frame), "k": k, "precision": precision, "ms": float(np.median(times)) * 1e3,
        "kernels_ms": replay, "GiB": torch.cuda.max_memory_allocated() / 2**30, "neighbour_list_s": listed, "lean": system.passes.lean,
    }  # fmt: skip
    del system, graph, weights
    torch.cuda.empty_cache()
    return result


def silicon(cells: int) -> Structure:
    """A rattled diamond crystal of 8·cells³ atoms."""
    corner = np.array([[0, 0, 0], [0, 2, 2], [2, 0, 2], [2, 2, 0], [1, 1, 1], [1, 3, 3], [3, 1, 3], [3, 3, 1]]) / 4
    shifts = np.stack(np.meshgrid(*[np.arange(cells)] * 3, indexing="ij"), -1).reshape(-1, 1, 3)
    positions = ((corner + shifts).reshape(-1, 3)) * 5.43
    positions += 0.05 * np.random.default_rng(0).normal(size=positions.shape)
    return Structure(np.full(len(positions), 14), positions, np.eye(3) * 5.43 * cells, np.ones(3, bool))


def silicon_network(r_max: float, neighbours: float) -> NetworkConfig:
    return preset("paper", r_max=r_max, avg_num_neighbors=neighbours, type_names=["Si"], per_type_energy_scales=1.0)


def measure(
    data: Any, save: Callable[[dict[str, Any]], None], precisions: Sequence[str], quick: bool, only_moving: bool = False
) -> dict[str, Any]:
    result: dict[str, Any] = {"curves": CURVES, "steps": [], "official": {}, "moving": [], "failed": []}

    def attempt(place: Any, key: Any, work: Callable[[], Any]) -> None:
        try:
            found = work()
            place.append(found) if isinstance(place, list) else place.__setitem__(key, found)
            print(key, json.dumps(found), flush=True)
        except Exception as cause:
            traceback.print_exc()
            result["failed"].append(f"{key}: {str(cause).splitlines()[-1:]}")
        torch.cuda.empty_cache()
        save(result)

    all_frames = {name: frames_of(data, name) for name in MOLECULES}

    def step(name: str, chains: int, batch: int, precision: str) -> None:
        key = f"{name} K={chains} B={batch} {precision}"
        attempt(
            result["steps"], key, lambda: {"name": name, **sampler_step(all_frames[name], chains, batch, precision)}
        )

    def move(name: str, frame: Structure, config: NetworkConfig, k: int, precision: str, skin: float) -> None:
        key = f"{name}, {len(frame)} atoms, k={k} {precision}"
        attempt(result["moving"], key, lambda: {"name": name, **moving(frame, config, k, precision, skin)})

    aspirin = all_frames["aspirin"]
    wide, narrow = silicon_network(6.0, 46.0), silicon_network(4.0, 16.0)
    if not only_moving:
        for name, chains, precision in product(("ethanol", "aspirin"), (1, 8), precisions):
            step(name, chains, 32, precision)
    # mixed differs from bf16x3 in the gradient by the weights only
    predicting = [name for name in precisions if name != "mixed"]
    for k, precision in product((1, 8), predicting):
        move("aspirin", aspirin[0], fit_scales(preset("paper"), aspirin), k, precision, 0.5)
    for k, precision in product((1, 8), (name for name in predicting if name != "float32")):
        move("silicon, cutoff 6 Å", silicon(5), wide, k, precision, 0.0)
    if only_moving:
        return result
    if not quick:
        for chains in (2, 4, 16):
            step("ethanol", chains, 32, CURVES)
        for batch, chains in product((4, 8, 16, 64), (1, 8)):
            step("ethanol", chains, batch, CURVES)
        for name in ("benzene", "toluene", "azobenzene"):
            step(name, 8, 32, CURVES)
        for cells in (2, 5, 10, 16, 23):
            move("silicon, cutoff 4 Å", silicon(cells), narrow, 1, "bf16x3", 0.0)
    # last, because the official package changes the default precision of torch
    for name in ("ethanol", "aspirin"):
        attempt(result["official"], name, lambda name=name: official(all_frames[name], 32))
    return result


def figure(result: dict[str, Any], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    drawn, axes = pyplot.subplots(1, 4, figsize=(15, 3.4), constrained_layout=True)
    steps = [row for row in result["steps"] if row["precision"] == result["curves"]]
    by_chains = sorted({row["chains"]: row for row in steps if row["name"] == "ethanol" and row["batch"] == 32}.items())
    axes[0].plot([k for k, _ in by_chains], [row["ms_per_chain"] for _, row in by_chains], "o-")
    axes[0].set(xlabel="chains", ylabel="ms a step and chain", title="ethanol, batch 32", xscale="log", ylim=(0, None))
    for chains in (1, 8):
        rows = sorted(
            (row["batch"], row["ms_per_chain"]) for row in steps if row["name"] == "ethanol" and row["chains"] == chains
        )
        axes[1].plot(*zip(*rows), "o-", label=f"{chains} chains" if chains > 1 else "1 chain")
    axes[1].set(xlabel="batch", ylabel="ms a step and chain", title="ethanol", ylim=(0, None))
    axes[1].legend()
    rows = sorted((row["atoms"], row["ms_per_chain"]) for row in steps if row["chains"] == 8 and row["batch"] == 32)
    axes[2].plot(*zip(*rows), "o-")
    axes[2].set(
        xlabel="atoms of a molecule",
        ylabel="ms a step and chain",
        title="8 chains, batch 32",
        ylim=(0, None),
        xlim=(0, None),
    )
    rows = sorted((row["atoms"], row["ms"]) for row in result["moving"] if row["name"] == "silicon, cutoff 4 Å")
    axes[3].loglog(*zip(*rows), "o-")
    axes[3].set(xlabel="atoms", ylabel="ms for energy and forces", title="silicon, k = 1, 16 neighbours")
    drawn.savefig(path, dpi=150)


def table(result: dict[str, Any]) -> list[str]:
    """The numbers that were asked for, beside their goals."""
    found = {}
    for row in result["steps"]:
        if row["batch"] == 32 and row["name"] in ("ethanol", "aspirin") and row["chains"] in (1, 8):
            found[f"{row['name']} K={row['chains']}", row["precision"]] = row["ms_per_chain"]
    for row in result["moving"]:
        name = (
            "MD aspirin" if row["name"] == "aspirin" else "1000 atoms" if row["name"] == "silicon, cutoff 6 Å" else None
        )
        if name and row["k"] == 8:
            found[f"{name} k=8", row["precision"]] = row["kernels_ms"]
            found[f"{name} k=8, with the host", row["precision"]] = row["ms"]
    lines = [f"| ms | goal | {' | '.join(PRECISIONS)} | official, eager |", "|---" * (len(PRECISIONS) + 3) + "|"]
    for name, goal in GOALS.items():
        numbers = [f"{found[name, p]:.3g}" if (name, p) in found else "–" for p in PRECISIONS]
        molecule = name.split()[0]
        theirs = result["official"].get(molecule, {}).get("step_ms") if name.endswith("K=1") else None
        lines.append(f"| {name} | {goal or '–'} | {' | '.join(numbers)} | {f'{theirs:.0f}' if theirs else '–'} |")
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prepare", type=Path, metavar="FILE", help="write frames of six molecules there and stop")
    parser.add_argument("--rmd17", type=Path, metavar="FOLDER", help="where the rMD17 archive lies, for --prepare")
    parser.add_argument("--data", type=Path, metavar="FILE", help="what --prepare wrote")
    parser.add_argument("--output", type=Path, default=RESULT)
    parser.add_argument("--commit", help="of the code, where there is no repository")
    parser.add_argument("--precisions", default=",".join(PRECISIONS), help="of the table (default: %(default)s)")
    parser.add_argument("--quick", action="store_true", help="only the numbers of the table")
    parser.add_argument("--moving", action="store_true", help="only predictions for atoms that move")
    parser.add_argument(
        "--official-compiled", metavar="MOLECULE", help="only the official package in its compiled mode"
    )
    parser.add_argument("--figure", action="store_true", help="draw the stored result and print its table")
    given = parser.parse_args()
    if given.prepare:
        prepare(given.prepare, given.rmd17)
        return 0
    if given.figure:
        result = json.loads(given.output.read_text())
        figure(result, given.output.with_suffix(".png"))
        print("\n".join(table(result)))
        return 0
    if not torch.cuda.is_available():
        print("benchmarks/step.py needs a GPU; --figure shows the stored numbers", file=sys.stderr)
        return 2
    torch.backends.cuda.matmul.allow_tf32 = False
    about = {"command": "python benchmarks/step.py --data frames.npz", "network": "paper", "seed": 0, **provenance()}
    if given.commit:
        about["commit"] = given.commit
    if given.official_compiled:
        name = given.official_compiled
        with np.load(given.data) as data:
            frames = frames_of(data, name)
        found = {mode: official(frames, 32, mode) for mode in ("eager", "compile")}
        write_json(RESULTS / f"official-compiled-{name}.json", {**about, "molecule": name, **found})
        print(json.dumps(found))
        return 0
    with np.load(given.data) as data:
        result = measure(
            data,
            lambda found: write_json(given.output, {**about, **found}),
            given.precisions.split(","),
            given.quick,
            given.moving,
        )
    print("\n".join(table(result)))
    return 1 if result["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
