"""Run by `make demo`: sample a posterior on real data, calibrate it and evaluate it on unseen frames.

The data are rMD17 ethanol (PBE/def2-SVP; Christensen & von Lilienfeld 2020), bundled with the package.
"""

import argparse
import json
import sys
import time
from pathlib import Path

from equibayes.cli.main import main as equibayes

TRAIN, TEST = "bundled:ethanol@train", "bundled:ethanol@test"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("demo-output"), help="folder for the results")
    parser.add_argument("settings", nargs="*", help="section.key=value, to try other settings")
    arguments = parser.parse_args()
    folder: Path = arguments.output
    folder.mkdir(parents=True, exist_ok=True)
    posterior, metrics, page = (str(folder / name) for name in ("ethanol.posterior", "metrics.json", "report.html"))
    took: dict[str, float] = {}
    for words in (
        ["sample", TRAIN, "-o", posterior, "--preset", "quick", "--overwrite", *arguments.settings],
        ["calibrate", posterior, TRAIN],  # uses the held-back frames of TRAIN
        ["evaluate", posterior, TEST, "--k", "1,2,4", "--json", metrics, "--report", page],
    ):
        print(f"\n$ equibayes {' '.join(words)}\n", flush=True)
        began = time.monotonic()
        status = equibayes(words)
        if status:
            return status
        took[words[0]] = time.monotonic() - began
    conclude(json.loads(Path(metrics).read_text(encoding="utf-8"))["data"][TEST])
    parts = ", ".join(f"{verb} {seconds:.0f} s" for verb, seconds in took.items())
    print(f"finished in {sum(took.values()):.0f} s ({parts}); open {page} in a browser")
    return 0


def conclude(by_k: dict[str, dict[str, float]]) -> None:
    """Force error, σ and outlier detection, in a few lines."""
    values = by_k[max(by_k, key=int)]
    auc = values["force_auc"]
    print(f"\non {values['n_frames']} unseen frames, with {values['k']} posterior samples:")
    print(f"  force error                            {1000 * values['force_mae']:7.1f} meV/Å (mean absolute)")
    print(f"  predicted σ                            {1000 * values['force_median_sigma']:7.1f} meV/Å (median)")
    print(f"  errors within the 68 % interval        {100 * values['force_coverage_68']:7.1f} %")
    print(
        f"  ROC AUC, errors above 3 times the MAE  {auc:7.3f}"
        if auc is not None
        else "  no error above 3 times the MAE"
    )
    print(f"  error of the most uncertain tenth      {values['force_most_uncertain_tenth']:7.1f} times the average")


if __name__ == "__main__":
    sys.exit(main())
