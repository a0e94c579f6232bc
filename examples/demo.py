"""What `make demo` runs: sample a posterior on real data, then ask it about frames it never saw.

The data are rMD17 ethanol (PBE/def2-SVP; Christensen & von Lilienfeld 2020), bundled with the package.
"""

import argparse
import sys
import time
from pathlib import Path

import numpy as np

from equibayes.cli.main import main as equibayes
from equibayes.data import read
from equibayes.evaluation import metrics
from equibayes.posterior.file import load
from equibayes.posterior.predict import predict
from equibayes.units import KCAL_PER_MOL

TRAIN, TEST = "bundled:ethanol@train", "bundled:ethanol@test"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("demo-output"), help="folder for the results")
    parser.add_argument("settings", nargs="*", help="section.key=value, to try other settings")
    arguments = parser.parse_args()
    arguments.output.mkdir(parents=True, exist_ok=True)
    file = arguments.output / "ethanol.posterior"

    print(f"$ equibayes sample {TRAIN} -o {file} --preset quick\n", flush=True)
    started = time.monotonic()
    status = equibayes(["sample", TRAIN, "-o", str(file), "--preset", "quick", "--overwrite", *arguments.settings])
    if status:
        return status
    report(file, time.monotonic() - started)
    return 0


def report(file: Path, seconds: float) -> None:
    """Force error, σ and outlier detection on the test frames."""
    posterior, frames = load(file), read(TEST)
    predictions = list(predict(posterior, frames))
    error = np.concatenate([p.forces - s.forces for p, s in zip(predictions, frames)]).ravel()
    sigma = np.concatenate([p.forces_std for p in predictions]).ravel()
    epistemic = np.concatenate([p.forces_epistemic for p in predictions]).ravel()
    auc = metrics.roc_auc(np.abs(error) > KCAL_PER_MOL, sigma)
    print(
        f"\non {len(frames)} frames it never saw, {len(posterior)} samples of {len(set(posterior.chain.tolist()))} chains:"
    )
    print(f"  force error (MAE)                     {1000 * metrics.mean_absolute_error(error):8.1f} meV/Å")
    print(f"  predicted σ (RMS), of which epistemic {1000 * np.sqrt((sigma**2).mean()):8.1f} meV/Å,", end="")
    print(f" {1000 * np.sqrt((epistemic**2).mean()):.1f} meV/Å   (error RMS {1000 * error.std():.1f})")
    print(
        f"  errors below 1 σ                      {100 * metrics.coverage(error, sigma):8.1f} %       (68.3 % is right)"
    )
    print(
        f"  AUC for errors above 1 kcal/(mol Å)   {auc:8.3f}" if auc is not None else "  no error above 1 kcal/(mol Å)"
    )
    ratio = metrics.error_of_most_uncertain(error, sigma)
    print(f"  the most uncertain tenth errs         {ratio:8.1f} times the average")
    print(f"sampling took {seconds:.0f} s; try:  equibayes info {file}")


if __name__ == "__main__":
    sys.exit(main())
