"""All studies in `results/` that need a GPU, by one command that respects a time limit and continues an earlier call.

    python -m studies.reproduce --list                                            names and commands
    python -m studies.reproduce --data DATA --work work                           all of them, one H200: some hours
    python -m studies.reproduce --data DATA --work work --only 'rmd17-*' chain    some, by name or pattern, in order
    python -m studies.reproduce --data DATA --work work --seconds 1500 --lanes 4  stop after 25 minutes; four at a time

The paper's chain starts first, and the other studies are paused whenever it would not finish in time.

DATA holds rmd17/ (rmd17_MOLECULE.npz, splits_MOLECULE.npz) and alkanes/ (c04.npz …).  Small networks leave most of a
GPU idle, so that several studies share it (NVIDIA's MPS is started where it is installed); seconds in the results are
then those of a shared GPU.  WORK keeps unfinished runs, and WORK/logs the output of each study; results go to
--results. Finished results are not repeated.
"""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from studies.reproduce.jobs import all_jobs, chosen
from studies.reproduce.lanes import Lanes
from studies.shared.options import add_commit, add_device, add_settings, parser_of


def share_the_gpu(folder: Path) -> None:
    """Start NVIDIA's MPS, which lets kernels of several processes run concurrently."""
    daemon = shutil.which("nvidia-cuda-mps-control")
    if daemon is None or "CUDA_MPS_PIPE_DIRECTORY" in os.environ:
        return
    os.environ["CUDA_MPS_PIPE_DIRECTORY"] = os.environ["CUDA_MPS_LOG_DIRECTORY"] = str(folder)
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run([daemon, "-d"], check=False)


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--data", type=Path, default=Path("data"), help="folder with rmd17/ and alkanes/")
    parser.add_argument(
        "--work", type=Path, default=Path("build/studies"), help="folder for unfinished runs, posteriors and logs"
    )
    parser.add_argument(
        "--results", type=Path, default=Path("results"), help="folder for results (default: %(default)s)"
    )
    parser.add_argument("--only", nargs="+", default=["*"], metavar="NAME", help="names or patterns, see --list")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="time limit")
    parser.add_argument("--lanes", type=int, default=4, help="studies at a time (default 4)")
    add_settings(parser)
    add_device(parser, "cuda")
    add_commit(parser)
    parser.add_argument("--list", action="store_true", help="print names and commands and stop")
    given = parser.parse_args()
    jobs = chosen(all_jobs(given), given.only)
    if given.list:
        for job in jobs:
            print(f"{job.name:24s} {' '.join(job.command)}")
        return 0
    deadline = time.monotonic() + given.seconds
    logs = given.work / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    if given.device == "cuda" and given.lanes > 1:
        share_the_gpu(given.work / "mps")
    ended = Lanes(jobs, logs, deadline).run(given.lanes)
    return max(ended.values(), default=0)


if __name__ == "__main__":
    sys.exit(main())
