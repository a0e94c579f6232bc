"""How many labels active learning saves on a pool: rMD17 malonaldehyde, whose labels are all known.

For every seed the same random labels to begin with, then rounds of as many labels and as many sampling steps, once chosen by the
posterior and once at random.  The question: with how many chosen labels is the test error that of random labels at the end?

    python examples/label_efficiency.py --data rmd17_malonaldehyde.npz --device cuda     for a GPU; hours on one core
    python examples/label_efficiency.py --data rmd17_malonaldehyde.npz --reduced         forty minutes on one core
    python examples/label_efficiency.py --data rmd17_malonaldehyde.npz --quick           half a minute, to see that it runs

All go on after a kill.
"""

import argparse
import json
import shutil
import sys
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from equibayes.data import Dataset, read
from equibayes.learning.curve import rows_of
from equibayes.learning.learn import Learner
from equibayes.learning.measure import errors_on
from equibayes.learning.pool_labels import PoolLabeller
from equibayes.learning.rounds import Round
from equibayes.learning.settings import LearnConfig, learn_config
from equibayes.learning.study import Inputs
from equibayes.posterior.file import load

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.provenance import provenance

CONTROL = "random"


@dataclass(frozen=True)
class Study:
    """Steps are those of a chain: `first` for the first posterior, `warm` for each that follows."""

    seeds: int = 5
    kinds: tuple[str, ...] = ("bald", CONTROL)
    pool: int = 1000
    test: int = 500
    start_labels: int = 50
    per_round: int = 50
    rounds: int = 3
    chains: int = 6
    first: int = 8000
    warm: int = 6000
    features: int = 32
    layers: int = 3
    radial_depth: int = 2

    def config(self, kind: str, seed: int) -> LearnConfig:
        network = {"num_features": self.features, "num_layers": self.layers, "radial_mlp_width": self.features}
        sample = {
            "seed": seed,
            "chains": self.chains,
            "samples": self.chains,
            "network": {**network, "radial_mlp_depth": self.radial_depth},
            "burn_in": {"steps": self.first, "freeze_mass": 0.5},
            "output": {"validations": 0},
        }
        values: dict[str, Any] = {
            "start_labels": self.start_labels,
            "per_round": self.per_round,
            "rounds": self.rounds,
            "select": {"kind": kind, "deviation": "epistemic"},
            "resample": {"burn_in": self.warm / self.first, "initial": 0.5},
            "sample": sample,
        }
        return learn_config("quick", "small", values)


# for one core: a network that fits in minutes.  From 100 labels on it errs on the training frames as on others, so more labels cannot
# help it however they are chosen; the question is asked with 60
REDUCED = Study(start_labels=10, per_round=10, rounds=5, first=3000, warm=1500, features=16, layers=2, radial_depth=1)
QUICK = Study(
    seeds=2, pool=60, test=20, start_labels=8, per_round=8, rounds=2, chains=3, first=60, warm=30, features=4, layers=1
)


def frames(path: str, study: Study) -> Inputs:
    """Pool and test set: the first frames of the official first split, none of the test frames in any pool."""
    options = {"energy_unit": "kcal/mol"}
    pool = read(f"{path}@train_01", **options)[: study.pool]
    known = {structure.geometry_digest() for structure in pool}
    test = read(f"{path}@test_01", **options)
    apart = [structure for structure in test if structure.geometry_digest() not in known][: study.test]
    return Inputs(pool, None, Dataset(apart, test.name))


def run(study: Study, seeds: Iterable[int], inputs: Inputs, work: Path, device: str) -> None:
    """All studies, seed by seed, each in a folder of its own; finished ones are left as they are."""
    for seed in seeds:
        for kind in study.kinds:
            folder = work / f"{kind}-{seed}"
            shared = work / f"{study.kinds[0]}-{seed}" / "round-000"
            if kind != study.kinds[0] and not folder.exists():
                # the first posterior does not depend on how later labels are chosen
                shutil.copytree(shared, folder / "round-000", ignore=shutil.ignore_patterns("survey.json"))
            begun = time.process_time()
            labeller = PoolLabeller(inputs.pool)
            say = lambda words, name=folder.name: print(f"{name}: {words}", flush=True)  # noqa: E731
            Learner(study.config(kind, seed), inputs, labeller, folder, device=device, say=say).run()
            note = folder / "cpu_seconds.json"
            spent = json.loads(note.read_text()) if note.exists() else 0.0
            note.write_text(json.dumps(spent + time.process_time() - begun))
            fit = folder / "training_error.json"
            if not fit.exists():
                last = Round(folder, study.rounds)
                fit.write_text(json.dumps(errors_on(load(last.posterior), last.training_data({}), device)))


def labels_needed(labels: np.ndarray, errors: np.ndarray, target: float) -> float | None:
    """Where the curve first falls to the target, straight lines between rounds; None where it never does."""
    if errors[0] <= target:
        return float(labels[0])
    for (l0, l1), (e0, e1) in zip(zip(labels, labels[1:]), zip(errors, errors[1:])):
        if e1 <= target:
            return float(l0 + (l1 - l0) * (e0 - target) / (e0 - e1))
    return None


def conclude(study: Study, work: Path) -> dict[str, Any]:
    """Curves, and for each seed the labels that the chosen curve needs for the error of random labels at the end."""
    done = [seed for seed in range(study.seeds) if all(_finished(study, work / f"{k}-{seed}") for k in study.kinds)]
    if not done:
        raise SystemExit(f"{work}: no seed is done yet")
    measures = ("force_mae", "force_rmse", "energy_mae", "force_sigma")
    curves: dict[str, Any] = {}
    for kind in study.kinds:
        rows = [rows_of(work / f"{kind}-{seed}") for seed in done]
        curves[kind] = {
            "labels": [row["labels"] for row in rows[0]],
            **{name: [[row[name] for row in run] for run in rows] for name in measures},
            "training_force_mae": [json.loads((work / f"{kind}-{s}" / "training_error.json").read_text())["force_mae"] for s in done],
            "cpu_seconds": [json.loads((work / f"{kind}-{s}" / "cpu_seconds.json").read_text()) for s in done],
        }  # fmt: skip
    labels = np.array(curves[CONTROL]["labels"], dtype=float)
    verdicts = {}
    for kind in study.kinds:
        if kind == CONTROL:
            continue
        for name in ("force_mae", "force_rmse"):
            control, chosen = np.array(curves[CONTROL][name]), np.array(curves[kind][name])
            needed = [labels_needed(labels, own, end) for own, end in zip(chosen, control[:, -1])]
            at_end = chosen[:, -1] - control[:, -1]
            verdicts[f"{kind}, {name}"] = {
                "labels_needed_by_seed": needed,
                "labels_needed_of_the_mean_curves": labels_needed(labels, chosen.mean(0), float(control[:, -1].mean())),
                "random_labels": int(labels[-1]),
                "difference_at_equal_labels": {
                    "mean_over_rounds_after_the_first": float((chosen - control)[:, 1:].mean()),
                    "at_the_end": float(at_end.mean()),
                    "standard_error_at_the_end": float(at_end.std(ddof=1) / np.sqrt(len(done))) if len(done) > 1 else None,
                },
            }  # fmt: skip
    return {"seeds_done": done, "curves": curves, "verdicts": verdicts}


def _finished(study: Study, folder: Path) -> bool:
    return (Round(folder, study.rounds).path / "measured.json").exists() and (folder / "training_error.json").exists()


def draw(found: dict[str, Any], path: Path) -> None:
    """Test error against labels: every seed thin, the mean thick."""
    from equibayes.evaluation.figures.style import figure, series, styled

    with styled():
        drawn, axes = figure(7.2, 3.2, columns=2)
        for axis, name, words in zip(axes[0], ("force_mae", "force_rmse"), ("MAE", "RMSE")):
            for index, (kind, curve) in enumerate(found["curves"].items()):
                errors = 1e3 * np.array(curve[name])
                for own in errors:
                    axis.plot(curve["labels"], own, alpha=0.3, linewidth=0.7, **series(index))
                axis.plot(curve["labels"], errors.mean(0), marker="o", markersize=4, label=kind, **series(index))
            axis.set(xlabel="labels", ylabel=f"force error ({words}), meV/Å")
            axis.legend()
        drawn.savefig(path, dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="rmd17_malonaldehyde.npz with its splits beside it")
    parser.add_argument("--quick", action="store_true", help="half a minute, too short to conclude anything")
    parser.add_argument("--reduced", action="store_true", help="a smaller network and 60 labels in place of 200")
    parser.add_argument("--seeds", type=int, help="default 5")
    parser.add_argument("--only", type=int, metavar="SEED", help="one of them; several processes can share the work")
    parser.add_argument("--device", default="cpu", help="cpu (default) or cuda")
    parser.add_argument("--work", type=Path, help="folder for the studies (default: build/label-efficiency)")
    parser.add_argument("--output", type=Path, help="folder for report and figure (default: results/label-efficiency)")
    parser.add_argument("--report", action="store_true", help="only report on the seeds that are done")
    options = parser.parse_args()
    torch.set_num_threads(1)
    study = QUICK if options.quick else REDUCED if options.reduced else Study()
    study = study if options.seeds is None else replace(study, seeds=options.seeds)
    name = "-quick" if options.quick else "-reduced" if options.reduced else ""
    suffix = "-reduced" if options.reduced else ""
    work = options.work or Path(f"build/label-efficiency{name}")
    output = options.output or (work if options.quick else Path("results/label-efficiency"))
    inputs = frames(options.data, study)
    if not options.report:
        run(study, range(study.seeds) if options.only is None else [options.only], inputs, work, options.device)
    if options.only is not None:
        return
    found = conclude(study, work)
    report = {"study": asdict(study), "data": inputs.fingerprints(), **found, "provenance": provenance()}
    output.mkdir(parents=True, exist_ok=True)
    (output / f"report{suffix}.json").write_text(json.dumps(report, indent=1) + "\n")
    draw(found, output / f"curves{suffix}.png")
    print(json.dumps(found["verdicts"], indent=1))


if __name__ == "__main__":
    main()
