"""Training, held-back and test frames of each case; test frames are in distribution or shifted.

| case    | training frames                       | held back | in distribution        | shifted                |
|---------|---------------------------------------|-----------|------------------------|------------------------|
| pedot   | 50 + 50 frames of 8 and 12 units      | 15 + 15   | later steps of 8, 12   | 16 units               |
| alkanes | 250 frames each of C4, C5, C6, C7     | 30 in all | the other C4–C7 frames | C8, C9, C10            |
| 3bpa    | 470 frames at 300 K                   | 30        | 500 others at 300 K    | 600 K and 1200 K       |
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from equibayes.data.dataset import Dataset
from equibayes.data.read import read
from equibayes.run.prepare import hold_back

HERE = Path(__file__).resolve().parent
HELD_BACK = 30
INSIDE, CONTROL, OUTSIDE = "inside", "control", "outside"
"""In distribution; the same conditions but generated in another way; shifted."""
ALKANES_OF_EACH = 250


@dataclass(frozen=True)
class Case:
    """train, validation: disjoint.  tests: name -> (INSIDE, CONTROL or OUTSIDE, frames).

    settings  of the sampler, over those of the preset `standard`
    ks        numbers of samples to test with
    """

    name: str
    train: Dataset
    validation: Dataset
    tests: dict[str, tuple[str, Dataset]]
    settings: dict[str, Any] = field(default_factory=dict)
    ks: tuple[int, ...] = (1, 8)

    def fingerprints(self) -> dict[str, Any]:
        """What was used, for the record."""
        sets = {"train": self.train, "validation": self.validation}
        sets |= {name: frames for name, (_, frames) in self.tests.items()}
        return {name: {"frames": len(frames), "fingerprint": frames.fingerprint()} for name, frames in sets.items()}


def pedot(folder: Path, seed: int) -> Case:
    """The paper's 100 training and 30 validation frames, with every tenth test frame.  Molecules of 106 to 210 atoms,
    so that minibatches are small.

    The ground state of each chain is the zero of energy, as in the paper, so that energies of 16 units can be compared;
    an offset per length would leave them undefined.
    """
    del seed  # the split is fixed
    sizes = {"burn_in": {"steps": 8_000, "batch_size": 2}, "cycles": {"batch_size": 2}}
    return Case(
        "pedot",
        read(folder / "pedot.npz@train"),
        read(folder / "pedot.npz@validation"),
        {
            "length 8": (INSIDE, read(folder / "pedot_8.npz")),
            "length 12": (INSIDE, read(folder / "pedot_12.npz")),
            "length 16": (OUTSIDE, read(folder / "pedot_16.npz")),
        },
        {"data": {"energy_reference": "zero"}, **sizes},
        ks=(1, 2, 4, 8, 16),
    )


def alkanes(folder: Path, seed: int) -> Case:
    """Energies are relative to the minimum of each molecule: one offset per molecule, unknown for unseen molecules."""
    train, held, tests = [], [], {}
    for index, carbons in enumerate(range(4, 8)):
        frames = read(folder / f"c{carbons:02d}.npz")
        order = np.random.default_rng([seed, carbons]).permutation(len(frames))
        ends = np.cumsum([ALKANES_OF_EACH, HELD_BACK // 4 + (index < HELD_BACK % 4)])
        learned, validated, others = (np.sort(part) for part in np.split(order, ends))
        train.append(frames.subset(learned))
        held.append(frames.subset(validated))
        tests[f"C{carbons}"] = (INSIDE, frames.subset(others))
    tests |= {f"C{carbons}": (OUTSIDE, read(folder / f"c{carbons:02d}.npz")) for carbons in range(8, 11)}
    settings = {"data": {"energy_reference": "per_structure"}}
    return Case("alkanes", Dataset.concatenate(train), Dataset.concatenate(held), tests, settings)


def bpa(folder: Path, seed: int) -> Case:
    """Labels of GFN2-xTB throughout (see bpa_frames.py).  The hot frames come from dynamics with GFN2-xTB, those at 300
    K do not; a control set from such dynamics at 300 K shows the effect of this difference."""
    train, validation = hold_back(read(folder / "bpa_train.npz"), HELD_BACK, seed)
    return Case(
        "3bpa",
        train,
        validation,
        {
            "300 K": (INSIDE, read(folder / "bpa_300K.npz")),
            "300 K, own dynamics": (CONTROL, read(folder / "bpa_md_300K.npz")),
            "600 K": (OUTSIDE, read(folder / "bpa_md_600K.npz")),
            "1200 K": (OUTSIDE, read(folder / "bpa_md_1200K.npz")),
        },
    )


def small(case: Case) -> Case:
    """A few frames of each set, to see that the study runs."""
    sizes = {"burn_in": {"steps": 20, "batch_size": 2}, "cycles": {"length": 4, "batch_size": 2}}
    network = {"num_features": 4, "num_layers": 2, "l_max": 1, "radial_mlp_width": 8, "radial_mlp_depth": 1}
    output = {"output": {"validations": 2}}
    return replace(
        case,
        train=evenly(case.train, 8),
        validation=evenly(case.validation, 10),
        tests={name: (kind, evenly(frames, 4)) for name, (kind, frames) in case.tests.items()},
        settings={**case.settings, **sizes, **output, "chains": 2, "samples": 4, "network": network},
        ks=(1, 2, 4),
    )


def evenly(frames: Dataset, count: int) -> Dataset:
    """At most `count` frames, evenly spaced."""
    return frames.subset(np.linspace(0, len(frames) - 1, min(count, len(frames))).round().astype(int))


CASES: dict[str, tuple[Callable[[Path, int], Case], Path]] = {
    "pedot": (pedot, HERE.parent / "pedot/data"),
    "alkanes": (alkanes, HERE.parents[2] / "shared/data/alkanes"),
    "3bpa": (bpa, HERE / "data"),
}
"""How each case is made, and the default folder of its data."""
