"""One run of the study: rounds of labels chosen in one way, from one seed.

The rounds are those of `equibayes learn` (same selection, same warm start) without its files of structures, so that
torch, numpy, safetensors and vesin are enough.
"""

import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from equibayes.data import Dataset, read
from equibayes.errors import InputError
from equibayes.evaluation import metrics
from equibayes.evaluation.evaluated import evaluate
from equibayes.files import make_folder
from equibayes.learning.diversity import descriptors
from equibayes.learning.select import select_structures
from equibayes.posterior.file import Posterior
from equibayes.posterior.predict import predict
from equibayes.run.prepare import hold_back
from studies.shared.results import provenance, read_json, save_json
from studies.shared.runs import SmallNetwork, resampled, sampled_all

CONTROL = "random"
COLD = "ensemble-"
"""Before the name of a selection: by a deep ensemble, chains at temperature 0 without a prior that matters."""
FLAT = 1e3


@dataclass(frozen=True)
class Study(SmallNetwork):
    """Sizes of the study and of its networks."""

    chains: int = 8
    first: int = 20_000
    warm: int = 10_000
    batch_size: int | None = 4
    final: float | None = 1e-4
    features: int = 32
    layers: int = 3
    radial_depth: int = 2
    seeds: int = 5
    kinds: tuple[str, ...] = ("bald", "diversity", CONTROL)
    pool: int = 1000
    test: int = 1000
    start_labels: int = 50
    per_round: int = 50
    rounds: int = 3


# for one core: a network that fits in minutes.  From 100 labels on its training and test errors are equal, so that more
# labels cannot help, however they are chosen; hence 60 labels
REDUCED = Study(
    kinds=("bald", CONTROL), test=500, start_labels=10, per_round=10, rounds=5, chains=6,
    first=3000, warm=1500, features=16, layers=2, radial_depth=1,
)  # fmt: skip
SHIFTED = Study(
    kinds=("diversity", "sigma", CONTROL, f"{COLD}sigma", f"{COLD}{CONTROL}"), start_labels=20, per_round=20, rounds=6,
    chains=4, first=4000, warm=3000, layers=2, radial_depth=1, noise_free=0.9, mass="matrix",
)  # fmt: skip
"""For `cases.py`."""
QUICK = Study(
    seeds=2, pool=60, test=20, start_labels=8, per_round=8, rounds=2, chains=3, first=60, warm=30, features=4, layers=1,
)  # fmt: skip
OPEN = ("seeds", "kinds")
"""May differ between runs that are reported together."""


@dataclass(frozen=True)
class Frames:
    """Pool and test set.  start: from how many frames of the pool the first labels are drawn (None: from all)."""

    pool: Dataset
    test: Dataset
    start: int | None = None

    @classmethod
    def of(cls, path: str, study: Study) -> "Frames":
        """The first frames of the official first split, none of the test frames in the pool."""
        options: dict[str, Any] = {"energy_unit": "kcal/mol"}
        pool = read(f"{path}@train_01", **options)[: study.pool]
        known = {structure.geometry_digest(): number for number, structure in enumerate(pool)}
        test = read(f"{path}@test_01", **options)
        apart = [structure for structure in test if structure.geometry_digest() not in known][: study.test]
        return cls(pool.subset(sorted(known.values())), Dataset(apart, test.name))

    def fingerprints(self) -> dict[str, str]:
        return {"pool": self.pool.fingerprint(), "test": self.test.fingerprint()}


class Run:
    """One selection from one seed; finished rounds go to a JSON file."""

    def __init__(
        self, study: Study, kind: str, seed: int, frames: Frames, work: Path, output: Path, device: str
    ) -> None:
        self.study, self.kind, self.seed, self.frames, self.device = study, kind, seed, frames, device
        self.config = study.config(seed)
        self.select, cold = kind.removeprefix(COLD), kind.startswith(COLD)
        if cold:
            flat, cold_sampler = replace(self.config.prior, width=FLAT), replace(self.config.sampler, temperature=0.0)
            self.config = replace(self.config, prior=flat, sampler=cold_sampler)
        # the first posterior does not depend on the selection
        start = f"start-{COLD if cold else ''}{seed}"
        self.shared, self.own = make_folder(work / start), make_folder(work / f"{kind}-{seed}")
        self.record = make_folder(output / "runs") / f"{kind}-{seed}.json"

    def go(self, commit: str | None) -> None:
        found = read_json(self.record) or {"rounds": []}
        rounds: list[dict[str, Any]] = found["rounds"]
        about = {
            "study": {n: value for n, value in asdict(self.study).items() if n not in OPEN and value is not None},
            "kind": self.kind,
            "seed": self.seed,
            "data": self.frames.fingerprints(),
        }
        if rounds and any(found[name] != value for name, value in about.items()):
            raise InputError(f"{self.record}: was made with other settings or data; choose another --output and --work")
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
            known = {"config": self.config.to_dict(), "rounds": rounds, "provenance": provenance(commit)}
            save_json(self.record, {**about, **known})
            test, train = row["test"], row["train"]
            print(
                f"{self.kind}-{self.seed}: {row['labels']} labels, force error {1e3 * test['force_mae']:.1f} meV/Å (MAE), "
                f"{1e3 * test['force_rmse']:.1f} (RMS), on training frames {1e3 * train['force_mae']:.1f}, "
                f"σ {1e3 * test['force_sigma']:.1f}, {row['seconds']:.0f} s",
                flush=True,
            )

    def _choose(self, before: Posterior | None, labelled: Sequence[int], number: int) -> tuple[list[int], float | None]:
        """Frames of the pool to label next, and the RMS σ (eV/Å) over all candidates."""
        study, pool, seed = self.study, self.frames.pool, [self.seed, number]
        known = set(labelled)
        candidates = [index for index in range(len(pool)) if index not in known]
        if before is None or self.select == CONTROL:
            count = study.start_labels if before is None else study.per_round
            among = candidates[: self.frames.start] if before is None else candidates
            return [choice.index for choice in select_structures(CONTROL, among, count, seed=seed)], None
        left = [pool[index] for index in candidates]
        found = dict(zip(candidates, predict(before, left, members=True, device=self.device)))
        points: dict[str, Any] = {}
        if self.select == "diversity":
            points["points"] = descriptors(before, left, self.device)
            points["known_points"] = descriptors(before, [pool[index] for index in labelled], self.device)
        predictions = [found.get(index) for index in range(len(pool))]
        chosen = select_structures(
            self.select, candidates, study.per_round, predictions=predictions, seed=seed, **points
        )  # type: ignore[arg-type]
        sigma = float(np.sqrt(np.mean([np.square(p.forces_std).mean() for p in found.values()])))
        return [choice.index for choice in chosen], sigma

    def _posterior(self, number: int, labelled: Sequence[int], before: Posterior | None) -> Posterior:
        """The posterior of a round: loaded if complete, continued if interrupted."""
        path = (self.own if number else self.shared) / f"round-{number}.posterior"
        first, none = hold_back(self.frames.pool.subset(labelled[: self.study.start_labels]), 0, self.seed)
        train = Dataset([*first, *(self.frames.pool[i] for i in labelled[self.study.start_labels :])], first.name)
        if before is None:
            return sampled_all(train, none, self.config, path, device=self.device)
        settings = self.study.warm_start(initial=0.5, decay="linear" if self.study.noise_free else "exponential")
        return resampled(before, train, self.config, settings, path, held_back=none, device=self.device)


def errors(posterior: Posterior, data: Dataset, device: str) -> dict[str, float]:
    """Errors of energies (eV) and force components (eV/Å); p99: 99th percentile of the absolute errors."""
    found = evaluate(posterior, data, device=device, include_training=True)
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
    """Compile the kernels for all sizes of the study; Triton keeps them on disk."""
    began = time.monotonic()
    config = study.config(0)
    first, none = hold_back(frames.pool[: study.start_labels], 0, 0)
    short = replace(config, burn_in=replace(config.burn_in, steps=2))
    posterior = sampled_all(first, none, short, device=device)
    for data in (frames.pool, frames.test, first):
        errors(posterior, data, device)
    print(f"kernels are ready after {time.monotonic() - began:.0f} s", flush=True)


def run(
    study: Study, seeds: Iterable[int], frames: Frames, work: Path, output: Path, device: str, commit: str | None
) -> None:
    """Every selection for every seed; finished rounds are not repeated."""
    for seed in seeds:
        for kind in study.kinds:
            Run(study, kind, seed, frames, work, output, device).go(commit)
