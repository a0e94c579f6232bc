"""Training, held-back and test frames of each system.

| system                       | labels             | tests                                           |
|------------------------------|--------------------|-------------------------------------------------|
| ethanol, malonaldehyde, …    | rMD17, PBE         | frames of no official split                     |
| 3bpa                         | GFN2-xTB, 300 K    | 300 K; 600 K and 1200 K of studies/domain_shift |
| silicon, lithium, molybdenum | mlearn, PBE        | a tenth of the training file                    |
| water                        | 192 atoms, PBE0-TS | others of the file                              |
| pedot                        | GFN2-xTB, 8 + 12   | 8 and 12 units; 16 units                        |

Frames to learn from are drawn by the seed, and the held-back ones with them; test frames are always the same.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from equibayes.data import Dataset, read
from studies.presets.frames import CRYSTALS, FOLDER, HELD_BACK, MOLECULES, frames

SHIFTED = Path(__file__).resolve().parents[1]
TESTED = 200


@dataclass(frozen=True)
class Case:
    """Disjoint sets of frames; tests by name, the first in distribution."""

    train: Dataset
    held: Dataset
    tests: dict[str, Dataset]


def case(system: str, count: int, seed: int) -> Case:
    """`count` frames to learn from, HELD_BACK to choose by."""
    data, tests = _frames(system)
    order = np.random.default_rng([seed, 23]).permutation(len(data))
    held = order[len(data) - HELD_BACK :]
    if count > len(data) - HELD_BACK:
        raise ValueError(f"{system}: {len(data)} frames, of which {HELD_BACK} are held back")
    return Case(data.subset(np.sort(order[:count])), data.subset(np.sort(held)), tests)


def _frames(system: str) -> tuple[Dataset, dict[str, Dataset]]:
    if system in MOLECULES or system in CRYSTALS:
        data, tests = frames(system, None)
        return data, {"test": evenly(tests, TESTED)}
    if system == "3bpa":
        folder = SHIFTED / "domain_shift/data"
        names = {"300 K": "bpa_300K.npz", "600 K": "bpa_md_600K.npz", "1200 K": "bpa_md_1200K.npz"}
        return read(folder / "bpa_train.npz"), {
            name: evenly(read(folder / file), TESTED // 2) for name, file in names.items()
        }
    if system == "water":
        data = read(FOLDER / "periodic/water_pbe0ts_deepmd.npz")
        last = np.arange(len(data)) % 10 == 9
        return data.subset(np.flatnonzero(~last)), {"test": data.subset(np.flatnonzero(last))}
    if system == "pedot":
        folder = SHIFTED / "pedot/data"
        known = Dataset.concatenate([read(folder / "pedot.npz@train"), read(folder / "pedot.npz@validation")])
        names = {"8 units": "pedot_8.npz", "12 units": "pedot_12.npz", "16 units": "pedot_16.npz"}
        return known, {name: evenly(read(folder / file), 30) for name, file in names.items()}
    raise ValueError(f"{system}: no such system")


def evenly(data: Dataset, count: int) -> Dataset:
    """At most `count` frames, evenly spaced."""
    return data.subset(np.unique(np.linspace(0, len(data) - 1, min(count, len(data))).astype(int)))
