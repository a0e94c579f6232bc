"""An exact Gaussian process on the forces of ethanol, on the frames that `equibayes compare` uses.

    python -m studies.rivals.gp -o results/comparison                 970 frames; 7 GB, about ten minutes on one core
    python -m studies.rivals.gp -o results/comparison --frames 50     seconds

Inverse distances, a Gaussian or Matérn 5/2 kernel summed over the six permutations of equivalent hydrogens
(`kernel.py`), conditioned without approximation (`process.py`).  Kernel, length scale and noise maximise the marginal
likelihood on subsets of the training frames, the signal variance that on all of them.  Writes gp.json or gp-N.json with

    gp           the predictions of the Gaussian process
    gp, scaled   force and energy σ each multiplied by the factor of largest likelihood on the held-back frames
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from equibayes.data import Dataset
from equibayes.evaluation.evaluated import Evaluated
from equibayes.files import make_folder
from studies.rivals.kernel import Kernel, group_of
from studies.rivals.process import Process, Settings, search
from studies.rivals.protocol import Clock, arrays_of, evaluated, frames_of, held_back_factors, scaled, write
from studies.shared.options import parser_of

# C C O, two H on the first C, three on the second, one on O.  The methyl group rotates; the mirror image, with the same
# distances, exchanges the two hydrogens of CH2 and two of CH3.  All other permutations would break a bond.
ETHANOL = group_of([(0, 1, 2, 3, 4, 6, 7, 5, 8), (0, 1, 2, 4, 3, 6, 5, 7, 8)])
STARTS = (Settings(Kernel("gauss", 1.0), 1e-5), Settings(Kernel("matern", 6.0), 1e-7))


def fitted(
    data: Dataset, subsets: Sequence[int], group: Sequence[Sequence[int]] = ETHANOL
) -> tuple[Settings, list[dict[str, Any]]]:
    """Settings of largest marginal likelihood, and all settings tried.

    On the first subset everything is searched.  With more frames the length scale stays the same and the noise
    decreases, so that on larger subsets only the noise is searched again.
    """
    arrays = arrays_of(data)
    sizes = sorted({min(size, len(data)) for size in subsets})
    candidates: tuple[Settings, ...] = STARTS
    tried: list[dict[str, Any]] = []
    for size in sizes:
        positions, forces, _ = (torch.from_numpy(array[:size]) for array in arrays)
        how: dict[str, Any] = {} if size == sizes[0] else {"steps": (0.0, 1.2), "rounds": 1}
        found = [search(positions, forces, group, start, **how) for start in candidates]
        best, _ = max(found, key=lambda each: max(row["log_evidence"] for row in each[1]))
        for settings, rows in found:
            about = {"frames": size, "kernel": settings.kernel.kind}
            tried += [about | row for row in rows if math.isfinite(row["log_evidence"])]
        print(f"{size} frames: {best}", flush=True)
        candidates = (best,)
    return candidates[0], tried


def asked(process: Process, data: Dataset) -> Evaluated:
    """Energies and forces with exact variances, together with the labels."""
    out = process.predict(torch.from_numpy(arrays_of(data)[0]))
    return evaluated(
        data,
        (out.energy.numpy(), out.energy_sigma.numpy(), 0.0),
        (out.forces.numpy(), out.forces_sigma.numpy(), process.noise_sigma),
    )


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--frames", type=int, metavar="N", help="training frames (default 970)")
    parser.add_argument("--test", type=int, metavar="N", help="test frames (default all 1000)")
    parser.add_argument(
        "--subsets", type=int, nargs="+", default=[50, 200, 400], help="numbers of frames to fit the kernel on"
    )
    parser.add_argument("--threads", type=int, default=1, help="threads for the large matrix (default 1)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the choice of held-back frames")
    parser.add_argument("-o", "--output", type=Path, required=True, help="folder for the results")
    options = parser.parse_args()
    torch.set_num_threads(1)  # for the many small matrices of the search
    frames, clock = frames_of(options.frames, seed=options.seed, test=options.test), Clock()
    with clock("fit kernel"):
        settings, tried = fitted(frames.learned, options.subsets)
    torch.set_num_threads(options.threads)
    positions, forces, energy = arrays_of(frames.learned)
    with clock("condition"):
        process = Process(
            torch.from_numpy(positions), torch.from_numpy(forces), float(energy.mean()), settings, ETHANOL
        )
    print(f"conditioned in {clock.wall['condition']:.0f} s, noise {1e3 * process.noise_sigma:.2f} meV/Å", flush=True)
    with clock("predict held-back frames"):
        held = asked(process, frames.held_back)
    print(f"{len(held.structures)} held-back frames in {clock.wall['predict held-back frames']:.0f} s", flush=True)
    factors = held_back_factors(held)
    with clock("predict with variances"):
        result = asked(process, frames.test)
    with clock("predict means alone of 100 frames"):
        process.predict(torch.from_numpy(arrays_of(frames.test[:100])[0]), variances=False)
    fit: dict[str, Any] = {
        "kernel": settings.kernel.kind,
        "length_per_angstrom": settings.kernel.length,
        "noise_over_signal": settings.noise,
        "signal_ev": process.signal**0.5,
        "noise_ev_per_angstrom": process.noise_sigma,
        "log_evidence": process.log_evidence,
        "subsets": options.subsets,
        "permutations": len(ETHANOL),
        "rows": process.known.size,
        "held_back_factors": {"forces": factors[0], "energy": factors[1]},
        "tried": tried,
    }
    name = "gp.json" if options.frames is None else f"gp-{options.frames}.json"
    results = {"gp": result, "gp, scaled": scaled(result, *factors)}
    write(make_folder(options.output) / name, frames, results, clock, settings=fit)


if __name__ == "__main__":
    main()
