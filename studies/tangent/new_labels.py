"""What exact inference saves when labels arrive one batch after the other: against sampling again after each.

    python -m studies.tangent.new_labels -o results/tangent            one core, about three minutes
    python -m studies.tangent.new_labels -o /tmp/tangent --quick       a minute

A posterior of 40 frames of ethanol gets 10 more frames four times.  `refined`: exact inference around the first chains
with all labels so far; `resampled`: chains go on from their samples (a quarter of the burn-in, as `equibayes learn`
does), then without and with exact inference.  Writes new-labels.json.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from equibayes.allocator import keep_freed_memory
from equibayes.learning.resample import resample
from equibayes.posterior.file import Posterior
from equibayes.posterior.sample import sample
from equibayes.posterior.tangent import refine
from equibayes.run import Run
from studies.shared.options import add_quick, parser_of
from studies.shared.results import provenance, save_json
from studies.tangent.cases import case, evenly
from studies.tangent.contest import settings
from studies.tangent.measures import measured

FIRST, MORE, ROUNDS = 40, 10, 4


def main() -> None:
    parser = parser_of(__doc__)
    add_quick(parser, "a minute")
    parser.add_argument("-o", "--output", type=Path, required=True, help="folder for new-labels.json")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    keep_freed_memory()
    frames = case("ethanol", FIRST + MORE * ROUNDS, options.seed)
    tests = {name: evenly(data, 20 if options.quick else 200) for name, data in frames.tests.items()}
    config = settings("small", "matrix", options.seed, 4, 60 if options.quick else 4000)
    records: list[dict[str, Any]] = []

    def timed(kind: str, count: int, make: Callable[[], Posterior]) -> Posterior:
        begun = time.process_time()
        posterior = make()
        seconds = time.process_time() - begun
        records.append(
            {"kind": kind, "frames": count, "seconds": seconds} | measured(posterior, frames.held, tests)["test"]
        )
        print(
            kind, count, f"{seconds:.1f} s", f"{records[-1]['mae']:.1f} meV/Å", f"{records[-1]['ln_p']:.3f}", flush=True
        )
        save_json(options.output / "new-labels.json", {"records": records, "provenance": provenance()})
        return posterior

    known = frames.train.subset(range(FIRST))
    run = Run(device="cpu")
    first = timed("sampled", FIRST, lambda: sample(known, config, validation=frames.held, run=run))
    timed("refined", FIRST, lambda: refine(first, known, frames.held))
    before, seen = first, known
    for count in range(FIRST + MORE, FIRST + MORE * ROUNDS + 1, MORE):
        data = frames.train.subset(range(count))
        timed("refined", count, lambda data=data: refine(first, data, frames.held))
        before = timed(
            "resampled",
            count,
            lambda data=data, before=before, seen=seen: resample(before, data, frames.held, config, seen=seen, run=run),
        )
        seen = data
    timed("resampled, refined", len(seen), lambda: refine(before, seen, frames.held))


if __name__ == "__main__":
    main()
