"""The constants of the floor of σ, from parts of training data that were left out (`splits.py`).

    python -m studies.doubt.constants results/doubt/splits --shared ../shared/data --output results/doubt

For every floor own = FACTOR · F · (ν − BEGIN)^POWER the mean ln p of the force components is computed, without a floor
and with it, over the part that was left out and over frames like those learned.  Every split has the same weight.
OUTPUT/constants.json has the numbers; the best floor is the one with the largest sum of both over the splits of all
systems but one, and is tested on that one.
"""

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np

from equibayes.data import Dataset
from equibayes.data.structures import FloatArray
from equibayes.posterior.floor import Shape, floors
from studies.doubt.splits import frames_of
from studies.shared.options import parser_of, start
from studies.shared.results import save_json
from studies.shared.tables import markdown

SHAPES = [Shape(0.5, 0.0, 2.0)] + [
    Shape(*each) for each in product((0.0, 0.25, 0.5, 0.75, 1.0), (0.03, 0.06, 0.125, 0.25, 0.5, 1.0), (1.0, 2.0, 3.0))
]
"""The first has no floor."""
NOW = Shape()
SETS = ("left", "inside")


@dataclass(frozen=True, eq=False)
class Atoms:
    """One set of one split: frames; novelty, RMS error and σ without a floor (eV/Å) of their atoms; F; the cutoff."""

    frames: Dataset
    novelty: FloatArray
    error: FloatArray
    sigma: FloatArray
    scale: float
    r_max: float

    def with_floor(self, shape: Shape) -> FloatArray:
        found = floors(self.frames.structures, self.novelty, self.scale, self.r_max, shape)
        return self.sigma if found is None else np.hypot(self.sigma, found[1])


def numbers(atoms: Atoms, shape: Shape) -> dict[str, float]:
    """Mean ln p of a component, share of atoms with σ ≥ error/3, and median error/σ."""
    sigma = atoms.with_floor(shape)
    ratio = atoms.error / sigma
    log_p = -0.5 * ratio**2 - np.log(sigma) - 0.5 * np.log(2 * np.pi)
    return {
        "log_p": float(log_p.mean()),
        "wide_enough": float((ratio <= 3).mean()),
        "ratio_median": float(np.median(ratio)),
    }


def read(folder: Path, shared: Path) -> Iterator[tuple[str, str, dict[str, Atoms]]]:
    """System, part, and the two sets of every split that there is."""
    known: dict[str, Dataset] = {}
    for path in sorted(folder.glob("*.npz")):
        system, _, part = path.stem.partition("-")
        data = known.setdefault(system, frames_of(system, shared))
        with np.load(path) as held:
            sets = {
                name: Atoms(
                    data.subset(held[f"{name}_frames"]),
                    *(held[f"{name}_{key}"].astype(float) for key in ("novelty", "error", "sigma")),
                    float(held["scale"]),
                    float(held["r_max"]),
                )
                for name in SETS
            }
        yield system, part, sets


def best(table: dict[tuple[str, str], dict[Shape, dict[str, dict[str, float]]]], without: str | None) -> Shape:
    """The largest ln p of both sets over all splits of other systems."""
    own = [found for (system, _), found in table.items() if system != without]
    return max(own[0], key=lambda shape: sum(found[shape][name]["log_p"] for found in own for name in SETS))


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("folder", type=Path, help="with the files of studies.doubt.splits")
    parser.add_argument("--shared", type=Path, required=True, help="folder with rmd17/ and periodic/")
    parser.add_argument("--output", type=Path, required=True)
    report(parser.parse_args())


def report(options: argparse.Namespace) -> None:
    table = {
        (system, part): {shape: {name: numbers(sets[name], shape) for name in SETS} for shape in {*SHAPES, NOW}}
        for system, part, sets in read(options.folder, options.shared)
    }
    whole, rows, splits = best(table, None), [], {}
    for (system, part), found in table.items():
        others = best(table, system) if len({name for name, _ in table}) > 1 else whole
        used = {"none": SHAPES[0], "present": NOW, "best of the other systems": others}
        splits[f"{system}, {part}"] = {words: found[shape] | {"shape": str(shape)} for words, shape in used.items()}
        cells = [f"{found[shape][name]['log_p']:.2f}" for name in SETS for shape in used.values()]
        wide = [f"{100 * found[shape]['left']['wide_enough']:.1f}" for shape in used.values()]
        rows.append([system, part, *cells, *wide])
    heads = [
        f"{name}: {words}" for name in ("left out", "inside", "wide enough, %") for words in ("none", "now", "best")
    ]
    save_json(options.output / "constants.json", {"best": str(whole), "present": str(NOW), "splits": splits})
    print(f"best of all: {whole}")
    print("\n".join(markdown(["system", "part", *heads], rows)))


if __name__ == "__main__":
    start(main)
