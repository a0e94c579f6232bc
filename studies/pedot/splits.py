"""The paper's training, validation and test sets (appendix B) from the runs of `python -m studies.pedot`.

    python -m studies.pedot.splits pedot-runs studies/pedot/data

| set        | lengths   | frames                                              |
|------------|-----------|-----------------------------------------------------|
| train      | 8 and 12  | 50 of each, drawn at random from steps 1 to 1500    |
| validation | 8 and 12  | 15 of each, drawn at random from steps 1501 to 1600 |
| test       | 8 and 12  | steps 1601 to 2000                                  |
| test       | 16        | steps 1 to 2000                                     |

The energy of each relaxed geometry is zero.  `pedot.npz` holds train and validation (two lengths in one file),
`pedot_8.npz`, `pedot_12.npz` and `pedot_16.npz` the test sets.  The repository keeps every tenth test frame (--every
10, the default): neighbouring frames are 0.5 fs apart and nearly the same.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from equibayes.data import Dataset, Structure
from equibayes.data.splits import save_splits
from studies.pedot import trajectory
from studies.shared.options import parser_of
from studies.shared.results import save_json

TRAINING_LENGTHS = (8, 12)
TEST_STEPS = {8: range(1601, 2001), 12: range(1601, 2001), 16: range(1, 2001)}
TRAIN_FROM, VALIDATE_FROM = range(1, 1501), range(1501, 1601)
TRAIN, VALIDATE = 50, 15
"""Frames of each length."""
EVERY = 10
STORED = "every {}th of the test steps"


def drawn_steps(length: int, seed: int = 0) -> dict[str, np.ndarray]:
    """Steps of the training and validation frames of one length, in rising order."""
    generator = np.random.default_rng([seed, length])
    train = generator.choice(TRAIN_FROM, TRAIN, replace=False)
    return {"train": np.sort(train), "validation": np.sort(generator.choice(VALIDATE_FROM, VALIDATE, replace=False))}


def write_sets(runs: Path, output: Path, every: int = EVERY) -> None:
    output.mkdir(parents=True, exist_ok=True)
    records = {length: _finished(runs / f"pedot_{length}.npz") for length in TEST_STEPS}
    _write_training(records, output)
    for length, steps in TEST_STEPS.items():
        _write_test(records[length], length, np.array(steps)[every - 1 :: every], output)
    origins = {length: json.loads((runs / f"pedot_{length}.json").read_text()) for length in TEST_STEPS}
    for origin in origins.values():
        origin["test_frames_stored"] = STORED.format(every)
    save_json(output / "provenance.json", origins)
    total = sum(file.stat().st_size for file in output.glob("*.npz"))
    print(f"{output}: {total / 1e6:.1f} MB")


def _finished(file: Path) -> trajectory.Record:
    length = file.stem.partition("_")[2]
    done = 0
    if file.exists():
        record = trajectory.Record.load(file)
        done = len(record.energies) - 1
        if done >= trajectory.STEPS:
            return record
    remedy = f"continue with python -m studies.pedot {length} --folder {file.parent}"
    raise SystemExit(f"{file}: {done} of {trajectory.STEPS} steps; {remedy}")


def _write_training(records: dict[int, trajectory.Record], output: Path) -> None:
    """Both lengths in the format of the package, which can hold several molecules; Å, eV, eV/Å."""
    structures, splits = [], {"train": [], "validation": []}
    for length in TRAINING_LENGTHS:
        record = records[length]
        for name, steps in drawn_steps(length).items():
            splits[name] += range(len(structures), len(structures) + len(steps))
            structures += [_structure(record, length, step) for step in steps]
    Dataset(structures, name="pedot").save_npz(output / "pedot.npz")
    save_splits(output / "pedot.splits.npz", {name: np.array(indices) for name, indices in splits.items()})


def _structure(record: trajectory.Record, length: int, step: int) -> Structure:
    return Structure(
        record.numbers,
        centred(record.positions[step]),
        energy=record.energies[step] - record.energies[0],
        forces=record.forces[step],
        config_type=f"pedot_{length}",
        source=f"{length} units, step {step}",
    )


def _write_test(record: trajectory.Record, length: int, steps: np.ndarray, output: Path) -> None:
    """In the names of sGDML files.  Single precision: within 30 Å of the origin an error of 1e-6 Å."""
    np.savez_compressed(
        output / f"pedot_{length}.npz",
        z=record.numbers.astype(np.uint8),
        R=np.array([centred(record.positions[step]) for step in steps], dtype=np.float32),
        E=np.array([record.energies[step] - record.energies[0] for step in steps]),
        F=np.array([record.forces[step] for step in steps], dtype=np.float32),
        e_unit=np.array("eV"),
        r_unit=np.array("Ang"),
        step=steps.astype(np.int16),
        relaxed_positions=centred(record.positions[0]).astype(np.float32),
        about=np.array(
            "GFN2-xTB, see provenance.json; energies relative to the relaxed geometry; see step for the steps stored"
        ),
    )


def centred(positions: np.ndarray) -> np.ndarray:
    """Å, relative to their mean, which single precision represents best."""
    return positions - positions.mean(0)


if __name__ == "__main__":
    parser = parser_of(__doc__)
    parser.add_argument("runs", type=Path, help="folder of the runs")
    parser.add_argument("output", type=Path, help="folder for the npz files")
    parser.add_argument("--every", type=int, default=EVERY, help="test frames to keep (default: every tenth)")
    given = parser.parse_args()
    write_sets(given.runs, given.output, given.every)
