"""The paper's study on revised MD17: posterior, single chain, deep ensemble, dropout and point estimate.

    python -m studies.rmd17 all --data RMD17 --preset quick --folder work --output results/rmd17-cpu    on a CPU
    python -m studies.rmd17 all --data RMD17 --device cuda --folder work --output results/rmd17         on a GPU
    python -m studies.rmd17 ethanol --data rmd17_ethanol.npz …                    one molecule, and no tables
    python -m studies.rmd17 ethanol --data rmd17_ethanol.npz … --train 50         50 training frames instead of 970
    python -m studies.rmd17 ethanol --data rmd17_ethanol.npz … --seconds 100      stop in time; repeat it to continue
    python -m studies.rmd17 ethanol --data rmd17_ethanol.npz … --methods bayes,single
    python -m studies.rmd17 ethanol --data rmd17_ethanol.npz … --paper-chain chain.posterior
    python -m studies.rmd17 ethanol --data rmd17_ethanol.npz --folder work --output out --quick   half a minute on a CPU

`all` takes every molecule whose file rmd17_MOLECULE.npz is in the folder, and makes the tables at the end.  The split
files (splits_ethanol.npz) lie beside the data.  FOLDER/ethanol keeps the posteriors and unfinished runs;
OUTPUT/ethanol/METHOD.json is written as soon as a method is tested and is not repeated.  Several processes may share
the methods of a molecule.  Needs torch, numpy, safetensors and vesin only (tables and figures also matplotlib).
"""

import argparse
import signal
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch

from equibayes.baselines.contestants import Contestant
from equibayes.config import parse_overrides
from equibayes.data import Dataset
from equibayes.errors import InputError
from equibayes.files import make_folder
from equibayes.posterior.file import Posterior
from equibayes.run.interrupt import Interrupted
from equibayes.run.progress import Silent, choose_display
from studies.rmd17.collected import MOLECULES
from studies.rmd17.compact import NOTE, write_compact
from studies.rmd17.protocol import METHODS, Case, compete, finished_elsewhere, make_case
from studies.rmd17.testing import Frames, describe, held_back_history
from studies.shared.options import add_commit, add_device, add_folders, add_quick, add_settings, parser_of, start
from studies.shared.results import provenance, save_json

PAPER_CHAIN, ALL = "paper-chain", "all"


class UntilDeadline(Silent):
    """The usual display, which also ends a run in good order at the deadline."""

    def __init__(self, deadline: float) -> None:
        self.shown, self.deadline = choose_display(), deadline
        self.start, self.show, self.say, self.stop = (  # type: ignore[method-assign]
            getattr(self.shown, name) for name in ("start", "show", "say", "stop")
        )

    def advance(self, step: int) -> None:
        self.shown.advance(step)
        if time.monotonic() > self.deadline:
            signal.raise_signal(signal.SIGTERM)  # the runner writes a checkpoint and stops


def main() -> int:
    options = parse()
    deadline = time.monotonic() + options.seconds
    molecules = there(options.data) if options.molecule == ALL else {options.molecule: options.data}
    for molecule, file in molecules.items():
        study = Study(case_of(molecule, file, options), options)
        study.carry_out_all(deadline)
        if study.stopped:
            return 130
    if options.molecule == ALL:
        from studies.rmd17.tables import write_page

        write_page(options.output)
    return 0


def parse() -> argparse.Namespace:
    parser = parser_of(__doc__)
    parser.add_argument("molecule", help="such as ethanol, or all")
    parser.add_argument("--data", type=Path, required=True, help="rmd17_MOLECULE.npz, or for all the folder of such")
    add_device(parser, "cuda" if torch.cuda.is_available() else "cpu")
    add_folders(parser, "rmd17", defaults=False)
    parser.add_argument("--train", type=int, metavar="N", help="N training frames of train_01, and 30 more held back")
    parser.add_argument("--methods", help=f"some of {','.join(METHODS)} (default: all, in this order)")
    parser.add_argument(
        "--seconds", type=float, default=float("inf"), help="time limit of this call; sampling stops then"
    )
    parser.add_argument(
        "--preset", default="standard", help="schedule and network; other than standard: with 8 chains of one sample"
    )
    parser.add_argument("--network", help="network preset (default: that of the preset)")
    add_settings(parser)
    parser.add_argument("--seed", type=int, default=0, help="seed of chains and held-back frames (default 0)")
    parser.add_argument("--paper-chain", type=Path, metavar="FILE", help="test a finished posterior of the same frames")
    parser.add_argument("--keep-compact", action="store_true", help="also write a small posterior file to OUTPUT")
    add_commit(parser)
    add_quick(parser, "few frames and steps, on a CPU")
    options = parser.parse_args()
    given = options.methods.split(",") if options.methods else [] if options.paper_chain else METHODS
    unknown = [method for method in given if method not in METHODS]
    if unknown:
        raise InputError(f"--methods {unknown[0]}: choose from {', '.join(METHODS)}")
    if options.paper_chain and options.molecule == ALL:
        raise InputError("--paper-chain belongs to one molecule, not to all")
    options.methods = given
    options.device = torch.device("cpu" if options.quick else options.device)
    return options


def there(folder: Path) -> dict[str, Path]:
    """The molecules whose data are in the folder, in the order of the tables."""
    found = {path.stem.removeprefix("rmd17_"): path for path in sorted(folder.glob("rmd17_*.npz"))}
    if not found:
        raise InputError(f"{folder}: has no file rmd17_MOLECULE.npz; name the folder of these with --data")
    known = [molecule for molecule in MOLECULES if molecule in found]
    return {molecule: found[molecule] for molecule in [*known, *sorted(set(found) - set(known))]}


def case_of(molecule: str, file: Path, options: argparse.Namespace) -> Case:
    case = make_case(
        molecule,
        file,
        train=options.train,
        preset=options.preset,
        network=options.network,
        seed=options.seed,
        quick=options.quick,
        changes=parse_overrides(options.set),
    )
    counts = f"{case.learned_from} training frames, {len(case.held_back)} held back, {len(case.test)} test frames"
    print(f"{case.name}: {counts}", flush=True)
    return case


class Study:
    """One case on one device.  Metrics are computed in the background while the device samples the next method."""

    def __init__(self, case: Case, options: argparse.Namespace) -> None:
        self.case, self.options, self.device, self.commit = case, options, options.device, options.commit
        self.folder, self.output = (make_folder(place / case.name) for place in (options.folder, options.output))
        self.frames = Frames(case.held_back, case.test, self.device)
        self.pool = ThreadPoolExecutor(1)
        self.pending: list[Future[None]] = []
        self.begun = False
        self.stopped = False  # by a signal, before the deadline

    def carry_out_all(self, deadline: float) -> None:
        """The methods asked for, as far as there is time."""
        compact = self.options.keep_compact
        with self.pool:
            if self.options.paper_chain:
                self.test_finished(self.options.paper_chain, compact=compact)
            for method in self.options.methods:
                if not self.carry_out(method, deadline, compact=compact and method == "bayes"):
                    print(f"{self.case.name}: not finished; the same command continues with {method}", flush=True)
                    break
        for each in self.pending:
            each.result()  # raises the errors of the background

    def carry_out(self, method: str, deadline: float, *, compact: bool = False) -> bool:
        """Sample, test and write; False if there was no time."""
        compact = compact and not self._compact().exists()
        if self._result(method).exists() and not compact:
            print(f"{self.case.name} {method}: done before", flush=True)
            return True
        if self.begun and time.monotonic() > deadline:
            return False
        self.begun = True  # every call makes some progress, however short it is
        try:
            found = compete(method, self.case, self.folder, self.device, UntilDeadline(deadline))
        except Interrupted as stop:
            print(f"{self.case.name} {method}: stopped at step {stop.step}", flush=True)
            self.stopped = time.monotonic() < deadline
            return False
        calibrated = self.test(found, self.frames)
        if compact:
            self.write_compact(calibrated, self.case.held_back)
        return True

    def test_finished(self, file: Path, *, compact: bool = False) -> None:
        """The posterior of a file, as `paper-chain`."""
        found, held_back = finished_elsewhere(file, self.case)
        if self._result(PAPER_CHAIN).exists():
            print(f"{self.case.name} {PAPER_CHAIN}: done before", flush=True)
            calibrated = Frames(held_back, self.case.test[:1], self.device).ask(found.posterior)[0] if compact else None
        else:
            calibrated = self.test(found, Frames(held_back, self.case.test, self.device))
        if compact and calibrated is not None:
            self.write_compact(calibrated, held_back)

    def test(self, found: Contestant, frames: Frames) -> Posterior:
        """Predict all frames; metrics follow in the background.  Returns the calibrated posterior."""
        began = time.monotonic()
        calibrated, results = frames.ask(found.posterior)
        seconds = time.monotonic() - began
        content = self._origin(found, frames.held_back) | {"prediction_seconds": round(seconds, 3)}

        def finish() -> None:
            content.update(describe(results, calibrated.calibration or {}))
            path = self._result(found.method)
            save_json(path, content, indent=None)
            raw, fixed = (list(content[part].values())[-1] for part in ("raw", "recalibrated"))
            print(
                f"{self.case.name} {found.method}: force error {1e3 * raw['force_mae']:.2f} meV/Å, MLL {raw['force_mll']:.3f} "
                f"(recalibrated {fixed['force_mll']:.3f}), {len(results[0].structures)} frames in {seconds:.1f} s -> {path}",
                flush=True,
            )

        self.pending.append(self.pool.submit(finish))
        return calibrated

    def write_compact(self, calibrated: Posterior, held_back: Dataset) -> None:
        """A small posterior file, and what is lost by it."""
        path = self._compact()
        effect = write_compact(path, calibrated, held_back, self.case.test, self.device)
        save_json(self.output / NOTE, effect | {"provenance": provenance(self.commit)})
        moved = f"{1e3 * effect['force_change_rms']:.3f} meV/Å (RMS)"
        print(f"{self.case.name}: half precision changes forces by {moved} -> {path}", flush=True)

    def _origin(self, found: Contestant, held_back: Dataset) -> dict[str, Any]:
        posterior, case = found.posterior, self.case
        return {
            "study": "rmd17",
            "case": case.name,
            "molecule": case.molecule,
            "method": found.method,
            "frames": {"learned": posterior.data["frames"], "held_back": len(held_back), "test": len(case.test)},
            "data": {
                "learned": posterior.data["fingerprint"],
                "test": case.test.fingerprint(),
                "name": case.learn.name,
            },
            "config": posterior.config,
            "seed": posterior.config["seed"],
            "precision": posterior.config["precision"],
            "device": str(self.device),
            "engine": posterior.engine,
            **provenance(self.commit),
            "networks": found.networks,
            "members": len(posterior),
            "steps": found.steps,
            "seconds": found.seconds,
            "verdict": posterior.verdict,
            "history": list(held_back_history(posterior)),
        }

    def _compact(self) -> Path:
        return self.output / f"{self.case.name}.posterior"

    def _result(self, method: str) -> Path:
        return self.output / f"{method}.json"


if __name__ == "__main__":
    start(main)
