"""Which cut of the work into programs is fastest on this GPU?  `Tuning` holds what was found on one H200.

    python benchmarks/tuning.py --data frames.npz --precision bf16x3     results/speed/tuning-bf16x3.json; five minutes on 16 cores
    python benchmarks/tuning.py --data frames.npz --compile              the first part alone, which leaves the GPU to others

For ethanol and aspirin with 1 and 8 chains of 32 frames: the time of a whole step of the sampler (`step.py`) as it is, with each number
of `Tuning` changed by itself, and with all changes together that made it faster.  frames.npz is from `step.py --prepare`.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from provenance import RESULTS, provenance, write_json
from step import frames_of, sampler_step

from equibayes.network.config import NetworkConfig, preset
from equibayes.network.scales import fit_scales
from equibayes.network.triton.tuning import Tuning
from equibayes.sampling.precompile import share_of_work

CASES = tuple(product(("ethanol", "aspirin"), (1, 8)))
BATCH = 32
CHOICES: dict[str, tuple[int, ...]] = {
    "slots_collecting": (1, 2, 4),
    "slots_giving": (1, 2, 4),
    "rows": (32, 64),
    "warps": (2, 4),
    "stages": (2, 3, 4),
    "gradient_rows": (16, 32),
    "gradient_warps": (2, 4),
    "gradient_stages": (3, 4),
    "radial_rows": (32, 64),
    "radial_stages": (2, 3),
    "radial_last_warps": (2, 4),
    "radial_back_rows": (32, 64),
    "radial_back_warps": (2, 4),
    "radial_block": (32, 64),
    "radial_warps": (4, 8),
}
WORTH_IT = 0.995
"""A change is taken over if it saves half a percent; less is chance."""


def neighbours(base: Tuning) -> list[Tuning]:
    """Every cut of the work that differs in one number, and in the two that belong together: few rows go with few warps."""
    single = [
        replace(base, **{name: value})
        for name, values in CHOICES.items()
        for value in values
        if value != getattr(base, name)
    ]
    pairs = [
        replace(base, gradient_rows=16, gradient_warps=2),
        replace(base, radial_rows=32, radial_last_warps=2),
        replace(base, rows=32, warps=2),
        replace(base, radial_block=32, radial_warps=4),
    ]
    return [*single, *(pair for pair in pairs if pair not in [base, *single])]


def difference(tuning: Tuning, base: Tuning) -> dict[str, int]:
    return {name: value for name, value in asdict(tuning).items() if value != getattr(base, name)}


def compile_all(work: Iterable[dict[str, Any]], processes: int) -> None:
    """Each in a process of its own that never touches the GPU; kernels that several share are found in Triton's cache."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    unique = list(dict.fromkeys(json.dumps(each) for each in work))

    def compile_one(each: str) -> None:
        command = [sys.executable, "-m", "equibayes.sampling.precompile", each, "1", "0"]
        subprocess.run(
            command, env=environment, capture_output=True, check=False
        )  # what fails here fails when it is measured

    # the first alone: the others share most of its kernels
    compile_one(unique[0])
    with ThreadPoolExecutor(processes) as pool:
        list(pool.map(compile_one, unique[1:]))


def milliseconds(frames: Any, chains: int, precision: str, tuning: Tuning) -> float | str:
    """A step, or why there is none."""
    Tuning.best = classmethod(lambda cls, precision, rows: tuning)  # type: ignore[method-assign, assignment]
    try:
        return float(sampler_step(frames, chains, BATCH, precision, compiled=True)["ms"])
    except Exception as cause:  # too many registers or too much shared memory, mostly
        return f"{type(cause).__name__}: {str(cause).splitlines()[-1] if str(cause) else ''}"[:200]
    finally:
        torch.cuda.empty_cache()


def improve(frames: Any, chains: int, precision: str, base: Tuning) -> dict[str, Any]:
    found: list[tuple[Tuning, float | str]] = []
    as_it_is = milliseconds(frames, chains, precision, base)
    assert isinstance(as_it_is, float), as_it_is
    for tuning in neighbours(base):
        found.append((tuning, milliseconds(frames, chains, precision, tuning)))
        print(chains, difference(tuning, base), found[-1][1], "against", round(as_it_is, 4), flush=True)
    better = [(ms, tuning) for tuning, ms in found if isinstance(ms, float) and ms < WORTH_IT * as_it_is]
    together: dict[str, int] = {}
    for _, tuning in sorted(better, key=lambda pair: pair[0], reverse=True):  # the best has the last word
        together |= difference(tuning, base)
    result = {
        "tuning": asdict(base),
        "ms": as_it_is,
        "changes": [{"change": difference(tuning, base), "ms": ms} for tuning, ms in found],
    }
    if together:
        all_of_them = replace(base, **together)
        result["together"] = {"change": together, "ms": milliseconds(frames, chains, precision, all_of_them)}
        print(chains, "together", result["together"], flush=True)
    return result


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, metavar="FILE", help="what step.py --prepare wrote")
    parser.add_argument("--precision", default="tf32x3", help="float32, tf32x3, bf16x3 or tf32 (default tf32x3)")
    parser.add_argument("--compile", action="store_true", help="compile what will be measured and stop")
    parser.add_argument("--output", type=Path, help="default results/speed/tuning-PRECISION.json")
    parser.add_argument("--commit", help="of the code, where there is no repository")
    given = parser.parse_args()
    if not torch.cuda.is_available():
        print("benchmarks/tuning.py needs a GPU", file=sys.stderr)
        return 2
    precision, output = given.precision, given.output or RESULTS / f"tuning-{given.precision}.json"
    with np.load(given.data) as data:
        frames = {name: frames_of(data, name) for name, _ in CASES}
    config: dict[str, NetworkConfig] = {name: fit_scales(preset("paper"), own) for name, own in frames.items()}
    base = {(name, chains): Tuning.best(precision, chains * BATCH * len(frames[name][0])) for name, chains in CASES}
    compile_all(
        (
            share_of_work(config[name], precision, chains, tuning, training=True)
            for name, chains in CASES
            for tuning in [base[name, chains], *neighbours(base[name, chains])]
        ),
        os.cpu_count() or 1,
    )
    if given.compile:
        return 0
    about = {"command": f"python benchmarks/tuning.py --precision {precision}", **provenance()}
    about |= {"commit": given.commit} if given.commit else {}
    cases: dict[str, Any] = {}
    for name, chains in CASES:
        print(name, flush=True)
        cases[f"{name} K={chains}"] = improve(frames[name], chains, precision, base[name, chains])
        write_json(output, {**about, "precision": precision, "batch": BATCH, "cases": cases})
    return 0


if __name__ == "__main__":
    sys.exit(main())
