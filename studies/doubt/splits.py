"""Posteriors that have not seen a part of their data: what their novelty and σ say about the errors there.

    python -m studies.doubt.splits ethanol --shared ../shared/data --output results/doubt/splits

| system                                        | parts that are left out, one at a time                         |
|-----------------------------------------------|----------------------------------------------------------------|
| ethanol, malonaldehyde, aspirin (rMD17), 3bpa | three clusters of inverse distances (k-means); the highest 15 % |
| (GFN2-xTB)                                    | of the energies                                                |
| Si, Mo (mlearn)                               | strained crystals, vacancies, dynamics, surfaces               |

OUTPUT/SYSTEM-PART.npz holds, for frames of the part that was left out (`left_…`) and for others that were not learned
(`inside_…`): numbers of the frames, and novelty, RMS error and σ without a floor of each atom.
`python -m studies.doubt.constants` chooses the floor from them.
"""

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from equibayes.data import Dataset, read
from equibayes.evaluation.evaluated import evaluate_each
from equibayes.files import make_folder, write_atomically
from equibayes.posterior.file import Posterior
from equibayes.posterior.sample import sample
from equibayes.run import Run
from equibayes.run.prepare import hold_back
from equibayes.run.progress import PlainDisplay
from equibayes.run.settings import sample_config
from studies.doubt.measures import per_atom
from studies.doubt.methods import without_floor
from studies.shared.options import add_quick, parser_of, start

MOLECULES = ("ethanol", "malonaldehyde", "aspirin", "3bpa")
SOLIDS = ("Si", "Mo")
BPA = Path(__file__).resolve().parent.parent / "domain_shift" / "data" / "bpa_train.npz"
CLUSTERS, HIGHEST = 3, 0.15
LEARNED, HELD_BACK, TESTED = 200, 20, 60
"""Frames of a split."""
STEPS = 2500


@dataclass(frozen=True)
class Split:
    """Numbers of frames: to learn from (with those to hold back), of the part that is left out, and of the others."""

    part: str
    learned: np.ndarray
    left: np.ndarray
    inside: np.ndarray


def frames_of(system: str, shared: Path) -> Dataset:
    if system == "3bpa":
        return read(BPA)
    if system in SOLIDS:
        return read(shared / "periodic" / f"mlearn_{system}_training.extxyz.gz")
    return read(f"{shared}/rmd17/rmd17_{system}.npz@train_01", energy_unit="kcal/mol")


def splits(system: str, data: Dataset, shared: Path) -> Iterator[Split]:
    """The same on every machine."""
    for part, inside in parts(system, data, shared).items():
        rng = np.random.default_rng(0)
        left, others = (rng.permutation(np.flatnonzero(each)) for each in (inside, ~inside))
        tested = min(TESTED, len(others) // 5)
        yield Split(part, others[tested:][:LEARNED], np.sort(left[:TESTED]), np.sort(others[:tested]))


def parts(system: str, data: Dataset, shared: Path) -> dict[str, np.ndarray]:
    """By name, which frames belong to it."""
    if system in SOLIDS:
        import ase.io

        path = shared / "periodic" / f"mlearn_{system}_training.extxyz.gz"
        groups = np.array([atoms.info["group"] for atoms in ase.io.read(path, ":")])
        return {group: groups == group for group in np.unique(groups).tolist()}
    energy = np.array([structure.energy for structure in data])
    nearest = cluster(np.stack([inverse_distances(structure.positions) for structure in data]))
    found = {f"cluster {number}": nearest == number for number in range(CLUSTERS)}
    return found | {"high energies": energy > np.quantile(energy, 1 - HIGHEST)}


def inverse_distances(positions: np.ndarray) -> np.ndarray:
    i, j = np.triu_indices(len(positions), 1)
    return 1 / np.linalg.norm(positions[i] - positions[j], axis=1)


def cluster(points: np.ndarray, rounds: int = 50) -> np.ndarray:
    """[n] numbers of clusters by k-means."""
    centres = points[np.random.default_rng(0).choice(len(points), CLUSTERS, replace=False)]
    for _ in range(rounds):
        nearest = np.linalg.norm(points[:, None] - centres, axis=2).argmin(1)
        centres = np.stack([points[nearest == number].mean(0) for number in range(CLUSTERS)])
    return np.asarray(nearest)


def measured(posterior: Posterior, data: Dataset, numbers: np.ndarray, name: str) -> dict[str, np.ndarray]:
    found = evaluate_each(without_floor(posterior), data.subset(numbers), [len(posterior)])[0]
    assert found.novelty is not None
    values = {"novelty": found.novelty, "error": per_atom(found.force_error), "sigma": per_atom(found.force_sigma)}
    values |= {"energy_error": found.energy_error, "energy_sigma": found.energy_sigma}
    return {f"{name}_{key}": value.astype(np.float32) for key, value in values.items()} | {f"{name}_frames": numbers}


def run(system: str, options: argparse.Namespace) -> None:
    data = frames_of(system, options.shared)
    for split in splits(system, data, options.shared):
        file = make_folder(options.output) / f"{system}-{split.part.replace(' ', '-')}.npz"
        if file.exists() or (options.quick and file.parent.exists() and any(file.parent.glob(f"{system}-*"))):
            continue
        steps = 40 if options.quick else STEPS
        changes: dict = {"samples": 4, "seed": options.seed, "burn_in": {"steps": steps}, "data": {"validation": 0}}
        if system in SOLIDS:
            changes["network"] = {"r_max": 5.0}
        config = sample_config("quick", "tiny" if options.quick else None, changes)
        train, held = hold_back(data.subset(split.learned), HELD_BACK, options.seed)
        posterior = sample(train, config, validation=held, run=Run(device="cpu", display=PlainDisplay()))
        assert posterior.novelty is not None
        kept = {"scale": np.array(posterior.novelty.force_scale), "r_max": np.array(posterior.network.r_max)}
        kept |= measured(posterior, data, split.left, "left") | measured(posterior, data, split.inside, "inside")

        def write(path: Path, kept: dict = kept) -> None:
            with path.open("wb") as opened:
                np.savez_compressed(opened, **kept)

        write_atomically(file, write)
        print(
            f"{file}: error {kept['left_error'].mean():.3f}, inside {kept['inside_error'].mean():.3f} eV/Å", flush=True
        )


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("systems", nargs="+", choices=(*MOLECULES, *SOLIDS), metavar="SYSTEM")
    parser.add_argument("--shared", type=Path, required=True, help="folder with rmd17/ and periodic/")
    parser.add_argument("--output", type=Path, required=True, help="folder for the numbers")
    parser.add_argument("--seed", type=int, default=0, help="of the chains (default 0)")
    add_quick(parser, "a tiny network, one part")
    options = parser.parse_args()
    torch.set_num_threads(1)
    for system in options.systems:
        run(system, options)


if __name__ == "__main__":
    start(main)
