"""One system with so many frames and one seed: all methods at equal processor time.

    python -m studies.tangent ethanol 100 0 -o results/tangent            one core, some minutes
    python -m studies.tangent ethanol 100 0 -o /tmp/tangent --quick       a minute, to see that it runs

Writes SYSTEM-N-SEED.json after every method; methods that the file has already stay as they are, so that others can be
added with --methods.  Further methods: ensemble-refined, dropout, point, llpr (after point), gp, and limits-R-M
(refined with at most R labels and M directions).
"""

import argparse
import time
from pathlib import Path
from typing import Any

import torch

from equibayes.allocator import keep_freed_memory
from studies.shared.options import parser_of
from studies.shared.results import provenance, read_json, save_json
from studies.tangent.cases import case
from studies.tangent.contest import METHODS, Contest, settings, smaller


def main() -> None:
    options = _options()
    torch.set_num_threads(1)
    keep_freed_memory()
    frames = case(options.system, options.frames, options.seed)
    if options.quick:
        frames = smaller(frames)
    config = settings(
        options.network, options.mass, options.seed, options.chains, 60 if options.quick else options.steps
    )
    about = {
        name: getattr(options, name)
        for name in ("system", "frames", "seed", "network", "mass", "chains", "steps", "labels", "directions")
    }
    variant = "".join(
        f"-{word}" for word, usual in ((options.network, "small"), (options.mass, "matrix")) if word != usual
    )
    path = Path(options.output) / f"{options.system}-{options.frames}-{options.seed}{variant}{options.tag}.json"

    def save(found: dict[str, Any]) -> None:
        save_json(path, about | {"settings": config.to_dict(), "provenance": provenance(), "methods": found})

    before = read_json(path)
    if before is not None and before["settings"] != config.to_dict():
        raise SystemExit(f"{path}: from other settings; choose another --tag or remove it")
    limits = {"labels": options.labels, "directions": options.directions}
    contest = Contest(options.system, frames, config, save, limits, before["methods"] if before else {})
    begun = time.process_time()
    for method in options.methods.split(","):
        if method in contest.found:
            continue
        spent = time.process_time() - begun
        expected = contest.budget if "refined" in contest.found else 0.0
        if spent + expected > options.seconds:
            print(f"{method}: left out, {spent:.0f} s are spent")
            continue
        contest.run(method)


def _options() -> argparse.Namespace:
    parser = parser_of(__doc__)
    parser.add_argument("system")
    parser.add_argument("frames", type=int)
    parser.add_argument("seed", type=int)
    parser.add_argument("-o", "--output", required=True, help="folder for the results")
    parser.add_argument("--methods", default=",".join(METHODS), help="in this order (default: %(default)s)")
    parser.add_argument("--network", default="small", help="default: %(default)s")
    parser.add_argument("--mass", default="matrix", help="default: %(default)s")
    parser.add_argument("--chains", type=int, default=8, help="default: %(default)s")
    parser.add_argument("--steps", type=int, default=2500, help="of each chain (default: %(default)s)")
    parser.add_argument("--labels", type=int, help="labels around each network (default: as equibayes refine)")
    parser.add_argument("--directions", type=int, help="random directions (default: as equibayes refine)")
    parser.add_argument("--tag", default="", help="end of the name of the file")
    parser.add_argument("--seconds", type=float, default=1e9, help="no method is begun that would end after this time")
    parser.add_argument("--quick", action="store_true", help="a few frames and steps")
    return parser.parse_args()


if __name__ == "__main__":
    main()
