"""The paper's study on one molecule of revised MD17: our posterior beside one chain, a deep ensemble, dropout and a point estimate.

    python examples/rmd17/study.py ethanol --data rmd17_ethanol.npz --device cuda --folder work --output results/rmd17
    python examples/rmd17/study.py ethanol --data rmd17_ethanol.npz … --train 50         learn from 50 frames instead of 970
    python examples/rmd17/study.py ethanol --data rmd17_ethanol.npz … --seconds 100      stop in time; the same command goes on
    python examples/rmd17/study.py ethanol --data rmd17_ethanol.npz … --methods bayes,single
    python examples/rmd17/study.py ethanol --data rmd17_ethanol.npz … --paper-chain chain.posterior
    python examples/rmd17/study.py ethanol --data rmd17_ethanol.npz --folder work --output out --quick    half a minute on a CPU

The split file (splits_ethanol.npz) lies beside the data.  FOLDER/ethanol keeps the posteriors and unfinished runs, OUTPUT/ethanol gets
METHOD.json as soon as a method is tested; what is there is not done again.  Several processes may share the methods of a molecule.
Needs torch, numpy, safetensors and vesin only.  `tables.py` makes tables and figures of the results.
"""

import argparse
import json
import signal
import sys
import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from protocol import METHODS, Case, compete, finished_elsewhere, make_case
from testing import Frames, describe, held_back_history

from benchmarks.provenance import provenance
from equibayes.baselines.contestants import Contestant
from equibayes.config import parse_overrides
from equibayes.data import Dataset
from equibayes.errors import InputError
from equibayes.evaluation.tables import measure
from equibayes.files import make_folder, write_text
from equibayes.posterior.file import Posterior, load
from equibayes.run.loop import Interrupted
from equibayes.run.progress import Silent, choose_display

PAPER_CHAIN = "paper-chain"
HALF = "half-precision.json"
HALF_FRAMES = 1000
"""Test frames on which half precision is compared with single."""
# what nobody needs who only uses a posterior, and what would make the small file large
LEFT_OUT = ("probes", "kinetic_by_group", "configurational_by_group")


class UntilDeadline(Silent):
    """The usual display, which also ends a run in good order when its time is over."""

    def __init__(self, deadline: float) -> None:
        self.shown, self.deadline = choose_display(), deadline
        self.start, self.show, self.say, self.stop = (  # type: ignore[method-assign]
            getattr(self.shown, name) for name in ("start", "show", "say", "stop")
        )

    def advance(self, step: int) -> None:
        self.shown.advance(step)
        if time.monotonic() > self.deadline:
            signal.raise_signal(signal.SIGTERM)  # the runner writes a checkpoint, as for anybody who stops it


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("molecule", help="such as ethanol")
    parser.add_argument("--data", type=Path, required=True, help="rmd17_MOLECULE.npz")
    parser.add_argument("--device", default="cuda", help="cuda (default) or cpu")
    parser.add_argument("--folder", type=Path, required=True, help="for posteriors and unfinished runs (large)")
    parser.add_argument("--output", type=Path, required=True, help="for the results (small)")
    parser.add_argument("--train", type=int, metavar="N", help="learn from N frames of train_01 and hold back 30 more")
    parser.add_argument("--methods", help=f"some of {','.join(METHODS)} (default: all, in this order)")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="of this call, after which sampling stops")
    parser.add_argument(
        "--set",
        nargs="+",
        default=[],
        metavar="KEY=VALUE",
        help="settings that differ from the preset's: burn_in.steps=12000",
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--paper-chain", type=Path, metavar="FILE", help="test a finished posterior of the same frames")
    parser.add_argument(
        "--keep-compact", action="store_true", help="also write the members in half precision to OUTPUT"
    )
    parser.add_argument("--commit", help="of the code, where there is no git")
    parser.add_argument("--quick", action="store_true", help="few frames and steps, to see that it runs (CPU)")
    options = parser.parse_args()
    deadline = time.monotonic() + options.seconds
    methods = options.methods.split(",") if options.methods else [] if options.paper_chain else METHODS
    unknown = [method for method in methods if method not in METHODS]
    if unknown:
        raise InputError(f"--methods {unknown[0]}: choose from {', '.join(METHODS)}")
    device = torch.device("cpu" if options.quick else options.device)
    changes = parse_overrides(options.set)
    case = make_case(
        options.molecule, options.data, train=options.train, seed=options.seed, quick=options.quick, changes=changes
    )
    counts = f"{case.learned_from} frames to learn from, {len(case.held_back)} held back, {len(case.test)} to test on"
    print(f"{case.name}: {counts}", flush=True)
    study = Study(case, device, make_folder(options.folder / case.name), make_folder(options.output / case.name))
    study.about = {"commit": options.commit} if options.commit else {}
    with study.pool:
        if options.paper_chain:
            study.test_finished(options.paper_chain, compact=options.keep_compact)
        for method in methods:
            if not study.carry_out(method, deadline, compact=options.keep_compact and method == "bayes"):
                print(f"{case.name}: not finished; the same command goes on with {method}", flush=True)
                break
    study.check()
    return 130 if study.stopped else 0


class Study:
    """One case on one device.  Metrics are taken in the background, while the device goes on with the next method."""

    def __init__(self, case: Case, device: torch.device, folder: Path, output: Path) -> None:
        self.case, self.device, self.folder, self.output = case, device, folder, output
        self.frames = Frames(case.held_back, case.test, device)
        self.pool = ThreadPoolExecutor(1)
        self.pending: list[Future[None]] = []
        self.about: dict[str, Any] = {}
        self.begun = False
        self.stopped = False  # by somebody, before its time was over

    def carry_out(self, method: str, deadline: float, *, compact: bool = False) -> bool:
        """Sample, test, write; False if there was no time for it."""
        compact = compact and not self._compact().exists()
        if self._result(method).exists() and not compact:
            print(f"{self.case.name} {method}: done before", flush=True)
            return True
        if self.begun and time.monotonic() > deadline:
            return False
        self.begun = True  # every call gets a little further, however short it is
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
        """Predict all frames; the rest is done in the background.  The posterior comes back calibrated."""
        began = time.monotonic()
        calibrated, results = frames.ask(found.posterior)
        seconds = time.monotonic() - began
        content = self._origin(found, frames.held_back) | {"prediction_seconds": round(seconds, 3)}

        def finish() -> None:
            content.update(describe(results, calibrated.calibration or {}))
            path = self._result(found.method)
            write_text(path, json.dumps(content, ensure_ascii=False, allow_nan=False) + "\n")
            raw, fixed = (list(content[part].values())[-1] for part in ("raw", "recalibrated"))
            print(
                f"{self.case.name} {found.method}: force error {1e3 * raw['force_mae']:.2f} meV/Å, MLL {raw['force_mll']:.3f} "
                f"(recalibrated {fixed['force_mll']:.3f}), {len(results[0].structures)} frames in {seconds:.1f} s -> {path}",
                flush=True,
            )

        self.pending.append(self.pool.submit(finish))
        return calibrated

    def write_compact(self, calibrated: Posterior, held_back: Dataset) -> None:
        """A small file for the documentation, and what half precision changes."""
        path = self._compact()
        kept = [record for record in calibrated.history if "validation_force_mae" in record]
        kept = [{name: value for name, value in record.items() if name not in LEFT_OUT} for record in kept]
        small = replace(calibrated, history=kept)
        small.save(path, half_precision=True)
        some = Frames(held_back, self.case.test[:HALF_FRAMES], self.device)
        before, after = (some.ask(posterior)[1][-1] for posterior in (calibrated, load(path)))
        moved, sigma = after.force_mean - before.force_mean, after.force_sigma / before.force_sigma - 1
        effect = {
            "file": path.name,
            "bytes": path.stat().st_size,
            "members": len(small),
            "frames": len(some.test),
            "force_change_rms": float((moved**2).mean() ** 0.5),
            "force_change_max": float(abs(moved).max()),
            "energy_change_rms": float(((after.energy_mean - before.energy_mean) ** 2).mean() ** 0.5),
            "sigma_relative_change_rms": float((sigma**2).mean() ** 0.5),
            "sigma_relative_change_max": float(abs(sigma).max()),
            "force_mae_before": float(abs(before.force_error).mean()),
            "force_mae_after": float(abs(after.force_error).mean()),
            "force_mll_before": measure(before)["force_mll"],
            "force_mll_after": measure(after)["force_mll"],
            "units": {"force": "eV/Å", "energy": "eV"},
            "provenance": provenance() | self.about,
        }
        write_text(self.output / HALF, json.dumps(effect, indent=1, ensure_ascii=False) + "\n")
        moved_by = f"{1e3 * effect['force_change_rms']:.3f} meV/Å (RMS)"
        print(f"{self.case.name} half precision: forces move by {moved_by} -> {path}", flush=True)

    def check(self) -> None:
        """Whatever went wrong in the background goes wrong here."""
        for each in self.pending:
            each.result()

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
            **provenance(),
            **self.about,
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
    try:
        raise SystemExit(main())
    except InputError as error:
        raise SystemExit(f"{error}") from None
