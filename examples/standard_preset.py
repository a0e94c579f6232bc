"""What the `standard` preset gives on ethanol: sample, calibrate on the held-back frames, evaluate on frames never seen.

    python examples/standard_preset.py --device cuda                     results/standard-preset/report.json
    python examples/standard_preset.py --device cuda --burn-in 11000     a shorter burn-in than the preset's

Needs torch, numpy, safetensors and vesin only, so that it also runs where little else is installed.
"""

import argparse
import json
import platform
import subprocess
import time
from pathlib import Path
from typing import Any

import torch

from equibayes.data import bundled_ethanol
from equibayes.evaluation.evaluated import evaluate_each
from equibayes.evaluation.tables import measure
from equibayes.posterior.calibrate import calibrate
from equibayes.posterior.file import Posterior
from equibayes.posterior.sample import sample
from equibayes.run.prepare import hold_back
from equibayes.run.progress import Silent
from equibayes.run.settings import sample_config

KS = [1, 2, 4, 8, 16]
SHOWN = ("force_mae", "force_auc", "force_coverage_68", "force_mll", "energy_mae")


class Lines(Silent):
    """The force error on held-back frames as the run goes on."""

    def __init__(self) -> None:
        self.began = time.monotonic()

    def show(self, record: dict[str, Any]) -> None:
        error = record.get("validation_force_mae_of_mean")
        if error is not None:
            print(f"step {record['step']}  {1000 * error:.1f} meV/Å  {time.monotonic() - self.began:.0f} s", flush=True)

    def say(self, message: str) -> None:
        print(message, flush=True)


def evaluated(posterior: Posterior, device: str) -> dict[str, Any]:
    """Metrics on the test frames by number of samples."""
    ks = [k for k in KS if k <= len(posterior)]
    results = evaluate_each(posterior, bundled_ethanol("test"), ks, device=device)
    return {str(k): measure(result) for k, result in zip(ks, results)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--burn-in", type=int, help="steps of the burn-in (default: the preset's)")
    parser.add_argument("--network", help="another network than the preset's, to try it on a CPU")
    parser.add_argument("--output", type=Path, default=Path("results/standard-preset"), help="folder of report.json")
    parser.add_argument("--commit", help="of the code, where there is no git")
    options = parser.parse_args()
    changes = {"burn_in": {"steps": options.burn_in}} if options.burn_in else {}
    config = sample_config("standard", options.network, changes)
    data = bundled_ethanol("train")
    began = time.monotonic()
    posterior = sample(data, config, device=options.device, display=Lines())
    seconds = time.monotonic() - began
    _, held_back = hold_back(data, config.data.validation, config.seed)
    calibrated = calibrate(posterior, held_back, device=options.device)
    head = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True).stdout.strip()
    on_gpu = options.device.startswith("cuda")
    report = {
        "config": posterior.config,
        "seed": config.seed,
        "commit": options.commit or head or "unknown",
        "hardware": torch.cuda.get_device_name() if on_gpu else platform.processor() or platform.machine(),
        "torch": torch.__version__,
        "total_steps": config.schedule(len(data) - config.data.validation).total_steps,
        "sampling_seconds": seconds,
        "verdict": posterior.verdict,
        "history": [r for r in posterior.history if "validation_force_mae_of_mean" in r],
        "calibration": calibrated.calibration,
        "test": evaluated(posterior, options.device),
        "test_calibrated": evaluated(calibrated, options.device),
    }
    options.output.mkdir(parents=True, exist_ok=True)
    (options.output / "report.json").write_text(json.dumps(report, indent=1) + "\n")
    for part in ("test", "test_calibrated"):
        for k, values in report[part].items():  # type: ignore[attr-defined]
            print(part, f"k={k}", "  ".join(f"{key} {values[key]:.4f}" for key in SHOWN))
    print(f"{report['total_steps']} steps in {seconds:.0f} s")


if __name__ == "__main__":
    main()
