"""How many labels active learning saves on a pool: rMD17 malonaldehyde, whose labels are all known.

For every seed the same random labels to begin with, then rounds of as many labels and as many sampling steps, chosen by the posterior
in one way or another and, as a control, at random.  The question: with how many chosen labels is the test error that of random labels
at the end?  The rounds are those of `equibayes learn` (same choice, same warm start), without its files of structures, so that torch,
numpy, safetensors and vesin are enough.

    python examples/label_efficiency.py --data rmd17_malonaldehyde.npz --device cuda     for a GPU; hours on one core
    python examples/label_efficiency.py --data rmd17_malonaldehyde.npz --reduced         forty minutes on one core
    python examples/label_efficiency.py --data rmd17_malonaldehyde.npz --quick           half a minute, to see that it runs
    python examples/label_efficiency.py --report                                         tables and figure of what is there

Seeds may run side by side (--only SEED); on a GPU do --compile first, once, or each would compile the same kernels.  Every finished
round is in OUTPUT/runs/KIND-SEED.json at once; these files are all that --report needs.  The same command goes on after a kill.
"""

import argparse
import json
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from equibayes.data import Dataset, read
from equibayes.errors import InputError
from equibayes.evaluation import metrics
from equibayes.evaluation.evaluated import evaluate
from equibayes.files import make_folder, write_atomically, write_text
from equibayes.learning.diversity import descriptors
from equibayes.learning.resample import ResampleSettings, resample
from equibayes.learning.select import choose
from equibayes.posterior.file import Posterior, load
from equibayes.posterior.predict import predict
from equibayes.posterior.sample import run_folder, sample_prepared
from equibayes.run import checkpoint
from equibayes.run.prepare import hold_back, lay_out
from equibayes.run.settings import SampleConfig, sample_config

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.provenance import provenance

CONTROL = "random"
CURVES = ("force_mae", "force_rmse", "force_p99", "energy_mae", "force_sigma", "force_mll")


@dataclass(frozen=True)
class Study:
    """Steps are those of a chain: `first` for the first posterior, `warm` for each that follows."""

    seeds: int = 5
    kinds: tuple[str, ...] = ("bald", "diversity", CONTROL)
    pool: int = 1000
    test: int = 1000
    start_labels: int = 50
    per_round: int = 50
    rounds: int = 3
    chains: int = 8
    first: int = 20_000
    warm: int = 10_000
    batch_size: int = 4
    final: float = 1e-4
    network: str = "small"
    features: int = 32
    layers: int = 3
    radial_depth: int = 2

    def config(self, seed: int) -> SampleConfig:
        network = {"num_features": self.features, "num_layers": self.layers, "radial_mlp_width": self.features}
        values: dict[str, Any] = {
            "seed": seed,
            "chains": self.chains,
            "samples": self.chains,
            "data": {"validation": 0},
            "network": {**network, "radial_mlp_depth": self.radial_depth},
            "burn_in": {
                "steps": self.first,
                "batch_size": self.batch_size,
                "final": self.final,
                "freeze_mass": 0.5,
                "noise_free": 0.0,
            },
            "output": {"validations": 0},
        }
        return sample_config("quick", self.network, values)

    def warm_start(self) -> ResampleSettings:
        return ResampleSettings(burn_in=self.warm / self.first, initial=0.5)


# for one core: a network that fits in minutes.  From 100 labels on it errs on the training frames as on others, so more labels cannot
# help it however they are chosen; the question is asked with 60
REDUCED = Study(
    kinds=("bald", CONTROL), test=500, start_labels=10, per_round=10, rounds=5, chains=6,
    first=3000, warm=1500, batch_size=4, final=1e-4, features=16, layers=2, radial_depth=1,
)  # fmt: skip
QUICK = Study(
    seeds=2, pool=60, test=20, start_labels=8, per_round=8, rounds=2, chains=3, first=60, warm=30, batch_size=4, features=4,
    layers=1,
)  # fmt: skip
OPEN = ("seeds", "kinds")
"""What may differ between runs that are reported together."""


@dataclass(frozen=True)
class Frames:
    """Pool and test set: the first frames of the official first split, none of the test frames in the pool."""

    pool: Dataset
    test: Dataset

    @classmethod
    def of(cls, path: str, study: Study) -> "Frames":
        options: dict[str, Any] = {"energy_unit": "kcal/mol"}
        pool = read(f"{path}@train_01", **options)[: study.pool]
        known = {structure.geometry_digest(): number for number, structure in enumerate(pool)}
        test = read(f"{path}@test_01", **options)
        apart = [structure for structure in test if structure.geometry_digest() not in known][: study.test]
        return cls(pool.subset(sorted(known.values())), Dataset(apart, test.name))

    def fingerprints(self) -> dict[str, str]:
        return {"pool": self.pool.fingerprint(), "test": self.test.fingerprint()}


class Run:
    """One way to choose, from one seed: rounds that end in a JSON file."""

    def __init__(
        self, study: Study, kind: str, seed: int, frames: Frames, work: Path, output: Path, device: str
    ) -> None:
        self.study, self.kind, self.seed, self.frames, self.device = study, kind, seed, frames, device
        self.config = study.config(seed)
        # the first posterior does not depend on how later labels are chosen
        self.shared, self.own = make_folder(work / f"start-{seed}"), make_folder(work / f"{kind}-{seed}")
        self.record = make_folder(output / "runs") / f"{kind}-{seed}.json"

    def go(self, commit: str | None) -> None:
        found = _read(self.record) or {"rounds": []}
        rounds: list[dict[str, Any]] = found["rounds"]
        about = {
            "study": {name: value for name, value in asdict(self.study).items() if name not in OPEN},
            "kind": self.kind,
            "seed": self.seed,
            "data": self.frames.fingerprints(),
        }
        if rounds and any(found[name] != value for name, value in about.items()):
            raise InputError(f"{self.record}: was made with other settings or data; name another --output and --work")
        for number in range(len(rounds), self.study.rounds + 1):
            labelled = [index for row in rounds for index in row["chosen"]]
            before = self._posterior(number - 1, labelled, None) if number else None
            chosen, survey = self._choose(before, labelled, number)
            labelled += chosen
            began, processor = time.monotonic(), time.process_time()
            posterior = self._posterior(number, labelled, before)
            sampled = time.monotonic() - began
            row = {
                "labels": len(labelled),
                "chosen": chosen,
                "pool_sigma_before": survey,
                "test": errors(posterior, self.frames.test, self.device),
                "train": errors(posterior, self.frames.pool.subset(labelled), self.device),
                "steps": int(posterior.step.max()),
                "sampling_seconds": round(sampled, 2),
                "seconds": round(time.monotonic() - began, 2),
                "cpu_seconds": round(time.process_time() - processor, 2),
                "events": posterior.verdict["events"],
            }
            rounds.append(row)
            where = {**provenance(), **({"commit": commit} if commit else {})}
            config = self.config.to_dict()
            write_text(
                self.record, json.dumps({**about, "config": config, "rounds": rounds, "provenance": where}, indent=1)
            )
            test, train = row["test"], row["train"]
            print(
                f"{self.kind}-{self.seed}: {row['labels']} labels, force error {1e3 * test['force_mae']:.1f} meV/Å (MAE), "
                f"{1e3 * test['force_rmse']:.1f} (RMS), on training frames {1e3 * train['force_mae']:.1f}, "
                f"stated σ {1e3 * test['force_sigma']:.1f}, {row['seconds']:.0f} s",
                flush=True,
            )

    def _choose(self, before: Posterior | None, labelled: Sequence[int], number: int) -> tuple[list[int], float | None]:
        """Frames of the pool to label next, and the RMS σ of those that could be asked (eV/Å)."""
        study, pool, seed = self.study, self.frames.pool, [self.seed, number]
        known = set(labelled)
        candidates = [index for index in range(len(pool)) if index not in known]
        if before is None:
            return [choice.index for choice in choose("random", candidates, study.start_labels, seed=seed)], None
        if self.kind == CONTROL:
            return [choice.index for choice in choose(CONTROL, candidates, study.per_round, seed=seed)], None
        left = [pool[index] for index in candidates]
        found = dict(zip(candidates, predict(before, left, members=True, device=self.device)))
        points: dict[str, Any] = {}
        if self.kind == "diversity":
            points["points"] = descriptors(before, left, self.device)
            points["known_points"] = descriptors(before, [pool[index] for index in labelled], self.device)
        predictions = [found.get(index) for index in range(len(pool))]
        chosen = choose(self.kind, candidates, study.per_round, predictions=predictions, seed=seed, **points)  # type: ignore[arg-type]
        sigma = float(np.sqrt(np.mean([np.square(p.forces_std).mean() for p in found.values()])))
        return [choice.index for choice in chosen], sigma

    def _posterior(self, number: int, labelled: Sequence[int], before: Posterior | None) -> Posterior:
        """Of a round: loaded where it is there, gone on with where it was interrupted."""
        path = (self.own if number else self.shared) / f"round-{number}.posterior"
        if path.exists():
            return load(path)
        first, none = hold_back(self.frames.pool.subset(labelled[: self.study.start_labels]), 0, self.seed)
        train = Dataset([*first, *(self.frames.pool[i] for i in labelled[self.study.start_labels :])], first.name)
        begun = bool(checkpoint.newest_first(run_folder(path))) if run_folder(path).is_dir() else False
        options: dict[str, Any] = {"output": path, "resume": begun, "device": self.device}
        if before is None:
            sample_prepared(lay_out(train, none, self.config), train, **options)
        else:
            resample(before, train, none, self.config, self.study.warm_start(), **options)
        return load(path)


def errors(posterior: Posterior, data: Dataset, device: str) -> dict[str, float]:
    """Of energies (eV) and force components (eV/Å); p99: below which 99 % of the absolute errors are."""
    found = evaluate(posterior, data, device=device)
    force = found.force_error
    return {
        "force_mae": metrics.mean_absolute_error(force),
        "force_rmse": metrics.root_mean_square_error(force),
        "force_p99": float(np.quantile(np.abs(force), 0.99)),
        "force_sigma": metrics.sharpness(found.force_sigma),
        "force_epistemic": metrics.sharpness(found.force_epistemic),
        "force_mll": metrics.mean_log_likelihood(force, found.force_sigma),
        "energy_mae": metrics.mean_absolute_error(found.energy_error),
    }


def compile_kernels(study: Study, frames: Frames, device: str) -> None:
    """All that a run on a GPU needs, for the sizes that it will have; Triton keeps them on the disk."""
    began = time.monotonic()
    config = study.config(0)
    first, none = hold_back(frames.pool[: study.start_labels], 0, 0)
    short = replace(config, burn_in=replace(config.burn_in, steps=2))
    posterior = sample_prepared(lay_out(first, none, short), first, device=device)
    for data in (frames.pool, frames.test, first):
        errors(posterior, data, device)
    print(f"kernels are ready after {time.monotonic() - began:.0f} s", flush=True)


def run(
    study: Study, seeds: Iterable[int], frames: Frames, work: Path, output: Path, device: str, commit: str | None
) -> None:
    """Seed by seed, each way to choose; what is finished stays as it is."""
    for seed in seeds:
        for kind in study.kinds:
            Run(study, kind, seed, frames, work, output, device).go(commit)


def labels_needed(labels: np.ndarray, errors: np.ndarray, target: float) -> float | None:
    """Where the curve first falls to the target, straight lines between rounds; None where it never does."""
    if errors[0] <= target:
        return float(labels[0])
    for (l0, l1), (e0, e1) in zip(zip(labels, labels[1:]), zip(errors, errors[1:])):
        if e1 <= target:
            return float(l0 + (l1 - l0) * (e0 - target) / (e0 - e1))
    return None


def conclude(output: Path) -> dict[str, Any]:
    """Curves, and for each seed the labels that the chosen curve needs for the error of random labels at the end."""
    records = [_read(path) for path in sorted((output / "runs").glob("*.json"))]
    done = {(r["kind"], r["seed"]): r for r in records if r and len(r["rounds"]) == r["study"]["rounds"] + 1}
    kinds = sorted({kind for kind, _ in done}, key=lambda kind: (kind == CONTROL, kind))
    seeds = sorted(seed for seed in {seed for _, seed in done} if all((kind, seed) in done for kind in kinds))
    if CONTROL not in kinds or not seeds:
        raise InputError(f"{output / 'runs'}: no seed is done yet; run the study first")
    any_run = done[CONTROL, seeds[0]]
    if any(r["study"] != any_run["study"] or r["data"] != any_run["data"] for r in done.values()):
        raise InputError(f"{output / 'runs'}: holds runs of different studies; keep each in a folder of its own")
    curves = {kind: _curve([done[kind, seed]["rounds"] for seed in seeds]) for kind in kinds}
    labels = np.array(curves[CONTROL]["labels"], dtype=float)
    verdicts = {}
    for kind in kinds:
        for name in ("force_mae", "force_rmse", "force_p99"):
            if kind == CONTROL:
                continue
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
                    "standard_error_at_the_end": _standard_error(at_end),
                },
            }
    about = {name: any_run[name] for name in ("study", "data", "config", "provenance")}
    return {"seeds_done": seeds, "curves": curves, "verdicts": verdicts, **about}


def _curve(runs: list[list[dict[str, Any]]]) -> dict[str, Any]:
    """Of one kind over seeds: lists [seed][round]."""
    return {
        "labels": [row["labels"] for row in runs[0]],
        **{name: [[row["test"][name] for row in rows] for rows in runs] for name in CURVES},
        "training_force_mae": [[row["train"]["force_mae"] for row in rows] for rows in runs],
        "training_force_rmse": [[row["train"]["force_rmse"] for row in rows] for rows in runs],
        "steps": [[row["steps"] for row in rows] for rows in runs],
        "seconds": [round(sum(row["seconds"] for row in rows), 1) for rows in runs],
        "cpu_seconds": [round(sum(row["cpu_seconds"] for row in rows), 1) for rows in runs],
        "events": [sum(len(row["events"]) for row in rows) for rows in runs],
    }


def _standard_error(values: np.ndarray) -> float | None:
    return float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else None


def _read(path: Path) -> dict[str, Any] | None:
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def table(found: dict[str, Any]) -> str:
    """Markdown: labels needed by seed, and errors at the end."""
    curves, seeds = found["curves"], found["seeds_done"]
    total = curves[CONTROL]["labels"][-1]
    words = {"force_mae": "MAE", "force_rmse": "RMSE", "force_p99": "99th percentile"}
    lines = [
        f"Labels needed for the error of {total} random ones (`>{total}`: not reached), by seed {', '.join(map(str, seeds))}:",
        "",
        f"| chosen by | error | {' | '.join(f'seed {s}' for s in seeds)} | of the mean curves | "
        f"error with {total} labels less that of random ones, meV/Å |",
        "|---|---|" + "---|" * (len(seeds) + 2),
    ]
    for name, verdict in found["verdicts"].items():
        kind, measure = name.split(", ")
        gap = verdict["difference_at_equal_labels"]
        error = gap["standard_error_at_the_end"]
        cells = [_count(n, total) for n in verdict["labels_needed_by_seed"]]
        cells += [_count(verdict["labels_needed_of_the_mean_curves"], total)]
        cells += [f"{1e3 * gap['at_the_end']:+.1f}" + (f" ± {1e3 * error:.1f}" if error is not None else "")]
        lines.append(f"| {kind} | {words[measure]} | {' | '.join(cells)} |")
    lines += ["", "Force errors on the test frames, mean over seeds, and MAE on the training frames, meV/Å:", ""]
    lines += ["| labels | " + " | ".join(f"{kind}: MAE | RMSE | training MAE" for kind in curves) + " |"]
    lines += ["|---|" + "---|" * (3 * len(curves))]
    for place, count in enumerate(curves[CONTROL]["labels"]):
        cells = []
        for curve in curves.values():
            for name in ("force_mae", "force_rmse", "training_force_mae"):
                cells.append(f"{1e3 * np.mean([row[place] for row in curve[name]]):.1f}")
        lines.append(f"| {count} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _count(needed: float | None, total: int) -> str:
    return f">{total}" if needed is None else f"{needed:.0f}"


def draw(found: dict[str, Any], path: Path) -> None:
    """Test error against labels: every seed thin, the mean thick; dotted: errors on the training frames."""
    from equibayes.evaluation.figures.style import colour, figure, series, styled

    with styled():
        drawn, axes = figure(7.6, 3.4, columns=2)
        for axis, name, words in zip(axes[0], ("force_mae", "force_rmse"), ("MAE", "RMSE")):
            for index, (kind, curve) in enumerate(found["curves"].items()):
                values = 1e3 * np.array(curve[name])
                for own in values:
                    axis.plot(curve["labels"], own, alpha=0.3, linewidth=0.7, **series(index))
                axis.plot(curve["labels"], values.mean(0), marker="o", markersize=4, label=kind, **series(index))
                trained = 1e3 * np.mean(curve[f"training_{name}"], axis=0)
                axis.plot(curve["labels"], trained, linewidth=0.9, color=series(index)["color"], linestyle=":")
            end = 1e3 * np.mean([row[-1] for row in found["curves"][CONTROL][name]])
            axis.axhline(end, color=colour("muted"), linewidth=0.8)
            axis.set(xlabel="labels", ylabel=f"force error ({words}), meV/Å", ylim=(0, None))
            axis.legend()
        axes[0, 0].set_title("dotted: on the training frames", fontsize=8, fontweight="normal")
        write_atomically(path, lambda place: drawn.savefig(place, format="png", dpi=150, facecolor=colour("paper")))


def report(output: Path) -> None:
    found = conclude(output)
    write_text(output / "report.json", json.dumps(found, indent=1) + "\n")
    write_text(output / "table.md", table(found))
    draw(found, output / "curves.png")
    print(table(found))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="rmd17_malonaldehyde.npz with its splits beside it; not needed for --report")
    parser.add_argument("--quick", action="store_true", help="half a minute, too short to conclude anything")
    parser.add_argument("--reduced", action="store_true", help="a smaller network and 60 labels in place of 200")
    parser.add_argument("--seeds", type=int, help="default 5")
    parser.add_argument("--only", type=int, metavar="SEED", help="one of them; several processes can share the work")
    parser.add_argument("--kinds", nargs="+", help="ways to choose (default: bald diversity random)")
    parser.add_argument("--network", help="preset whose rotation orders are taken: small (default), medium")
    parser.add_argument("--first", type=int, help="steps of a chain for the first posterior")
    parser.add_argument("--warm", type=int, help="steps of a chain in every round that follows")
    parser.add_argument("--device", default="cpu", help="cpu (default) or cuda")
    parser.add_argument("--compile", action="store_true", help="only compile the kernels of a GPU")
    parser.add_argument("--work", "--folder", type=Path, help="folder for posteriors (default: build/label-efficiency)")
    parser.add_argument(
        "--output", type=Path, help="folder for runs, report and figure (default: results/label-efficiency)"
    )
    parser.add_argument("--commit", help="of the code, where there is no git")
    parser.add_argument("--report", action="store_true", help="only report on the seeds that are done")
    options = parser.parse_args()
    torch.set_num_threads(1)
    study = QUICK if options.quick else REDUCED if options.reduced else Study()
    given = {name: getattr(options, name) for name in ("seeds", "kinds", "network", "first", "warm")}
    study = replace(study, **{name: value for name, value in given.items() if value is not None})
    study = replace(study, kinds=tuple(study.kinds))
    name = "-quick" if options.quick else "-reduced" if options.reduced else ""
    work = options.work or Path(f"build/label-efficiency{name}")
    results = Path("results/label-efficiency")
    output = options.output or (
        work / "output" if options.quick else results / "reduced" if options.reduced else results
    )
    if not options.report:
        if not options.data:
            raise InputError("--data: name rmd17_malonaldehyde.npz")
        frames = Frames.of(options.data, study)
        if options.compile:
            compile_kernels(study, frames, options.device)
            return
        seeds = range(study.seeds) if options.only is None else [options.only]
        run(study, seeds, frames, work, output, options.device, options.commit)
    if options.only is None:
        report(output)


if __name__ == "__main__":
    try:
        main()
    except InputError as mistake:
        raise SystemExit(f"error: {mistake}") from None
