"""`equibayes md` that asks: labels are kept, learned from at once, and a killed run goes on to the same files."""

import json
import random
import re
from pathlib import Path

from equibayes.data.extxyz import read_exact
from tests.cli import program
from tests.simulate.posteriors import ETHANOL

ASKS = (
    f"md {ETHANOL} bundled:ethanol@0:1 -o t.xyz --steps 24 --temperature 300 --threads 1 --device cpu --every 4 --save-every 5 "
    "--trust-lo 1e-6 --candidate-gap 8 --labeller tests.labelling.shifted_emt:ShiftedEmt labeller_settings.zero=-4210 "
)
LABEL = [*ASKS.split(), "--on-uncertain", "label"]
LEARN = (
    ASKS
    + "--on-uncertain learn --data bundled:ethanol@0:300 sample.samples=2 sample.burn_in.steps=14 sample.burn_in.batch_size=40 "
    "sample.cycles.batch_size=40 resample.burn_in=1 sample.guard.interval=2 sample.output.checkpoint_seconds=0"
).split()
FILES = ("t.xyz", "t-md/md.log", "t-md/labels.xyz", "t-md/asked.json", "t-md/summary.json", "t-md/candidates.xyz")


def test_labels_and_goes_on(tmp_path: Path) -> None:
    status, out, err = program.run(LABEL, tmp_path)
    assert (status, err) == (0, "")
    assert re.search(r"step 8: σ \d+\.\d meV/Å, error \d+\.\d meV/Å \(RMS\); 2 labels", out)
    assert "labels       4 asked: 16.67 % of the steps called the labeller; 0 refused" in out
    labels = read_exact(tmp_path / "t-md/labels.xyz")
    assert len(labels) == 4
    assert all(label.forces is not None and label.energy is not None for label in labels)
    summary = json.loads((tmp_path / "t-md/summary.json").read_text())
    assert summary["labels"] == {"asked": 4, "share_of_steps": 4 / 24, "refused": 0, "learned": 0, "posterior": None}
    assert not list(tmp_path.glob("t-md/label-*/fly.posterior"))


def test_labels_of_another_level_of_theory_are_refused(tmp_path: Path) -> None:
    words = ["labeller_settings.zero=0" if word.startswith("labeller_settings") else word for word in LABEL]
    status, _, err = program.run(words, tmp_path)
    assert status == 2
    assert "step 0: the labeller's energy differs from the model's by 468 eV per atom" in err
    assert not (tmp_path / "t-md/labels.xyz").exists()


def test_on_the_fly_killed_at_random_moments(tmp_path: Path) -> None:
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    whole.mkdir()
    broken.mkdir()
    status, out, err = program.run(LEARN, whole)
    assert (status, err) == (0, ""), out
    assert "learned      from 4 labels; latest posterior: label-0003/fly.posterior" in out

    def labels() -> int:
        return len(list(broken.glob("t-md/label-*")))

    rng, resume, seen = random.Random(0), [], 0
    for _ in range(3):
        program.killed([*LEARN, *resume], broken, labels, seen, rng.uniform(0.0, 0.5), slow_disk=0.02)
        resume, seen = ["--resume"], labels()
    status, out, err = program.run([*LEARN, "--resume"], broken)
    assert (status, err) == (0, ""), out
    posteriors = [f"t-md/label-{n:04d}/{name}" for n in range(4) for name in ("label.xyz", "data.xyz", "fly.posterior")]
    for name in [*FILES, *posteriors]:
        assert (broken / name).read_bytes() == (whole / name).read_bytes(), name
