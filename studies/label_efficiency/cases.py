"""Pools where labels of a special kind matter, and test frames of that kind; all labels are those of GFN2-xTB.

| case         | first labels | pool                                                   | test frames          |
|--------------|--------------|--------------------------------------------------------|----------------------|
| 3bpa         | 300 K        | 300 at 300 K, 150 at 600 K, 150 at 1200 K              | 100 at 1200 K        |
| dissociation | 500 K        | 300 of ethanol at 500 K, 150 with a stretched C–O bond | 100 of the last kind |

A pool such as dynamics gives it that seldom leaves where it began.  Test frames of 3BPA are from trajectories of which
no frame is in the pool.  `python -m studies.label_efficiency.cases` makes the frames of the dissociation.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np

from equibayes.data import Dataset, Structure, bundled_ethanol, read
from equibayes.files import make_folder, write_atomically
from equibayes.labelling.labellers import Labeller
from equibayes.learning.propose import bare
from studies.domain_shift.cases import evenly
from studies.doubt.probes import bonds, fragment
from studies.label_efficiency.rounds import Frames
from studies.shared.labels import labelled

CASES = ("3bpa", "dissociation")
BPA = Path(__file__).resolve().parent.parent / "domain_shift" / "data"
DISSOCIATION = Path(__file__).resolve().parent / "data" / "dissociation.npz"
COLD, HOT, TEST = 300, 150, 100
FRAMES_OF_A_START = 25
"""In the trajectories of 3BPA."""
LONGEST = 3.5
"""Å, of a stretched bond."""


def case(name: str) -> Frames:
    """Pool and test frames."""
    if name == "3bpa":
        cold = evenly(read(BPA / "bpa_train.npz"), COLD)
        warm, hot = (read(BPA / f"bpa_md_{kelvin}K.npz") for kelvin in (600, 1200))
        assert HOT % FRAMES_OF_A_START == 0
        pool = Dataset.concatenate([cold, warm[:HOT], hot[:HOT]], "3BPA at 300, 600 and 1200 K")
        return Frames(pool, hot[HOT : HOT + TEST], COLD)
    frames = read(DISSOCIATION)
    return Frames(frames[: COLD + HOT], frames[COLD + HOT :], COLD)


def stretched(frames: Dataset, rng: np.random.Generator) -> list[Structure]:
    """The C–O bond of each frame between its length and `LONGEST`, its fragments unchanged."""
    found = []
    for structure in frames:
        pairs = [pair for pair in bonds(structure) if sorted(structure.numbers[list(pair)]) == [6, 8]]
        (i, j) = pairs[0]
        moved = fragment(structure, i, j)
        assert moved is not None, "no ring"
        along = structure.positions[j] - structure.positions[i]
        length = float(np.linalg.norm(along))
        target, positions = rng.uniform(length, LONGEST), structure.positions.copy()
        positions[moved] += (target - length) * along / length
        found.append(replace(bare(structure), positions=positions, source=f"C–O at {target:.2f} Å"))
    return found


def main() -> None:
    frames = bundled_ethanol("train")
    order = np.random.default_rng(0).permutation(len(frames))
    cold = [bare(frames[i]) for i in order[:COLD]]
    rest = Dataset([frames[i] for i in order[COLD : COLD + 2 * (HOT + TEST)]])
    with Labeller("gfn2-xtb") as engine:  # it refuses some stretched frames
        first = labelled(engine, cold)
        far = labelled(engine, stretched(rest, np.random.default_rng(1)))
    make_folder(DISSOCIATION.parent)
    made = Dataset([*first, *far[: HOT + TEST]], "ethanol, C–O dissociation")
    write_atomically(DISSOCIATION, made.save_npz)
    print(f"{DISSOCIATION}: {len(made)} frames")


if __name__ == "__main__":
    main()
