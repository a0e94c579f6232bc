"""Which cut of the work into programs is fastest on this GPU?  `Tuning` holds what was found on one H200.

    python benchmarks/tuning.py --data frames.npz            results/speed/tuning-mixed.json; five minutes on 16 cores
    python benchmarks/tuning.py --data frames.npz --compile  the first part alone, which leaves the GPU to others

For ethanol and aspirin with 1 and 8 chains of 32 frames a whole step of the sampler, and for one aspirin and 1000
silicon atoms energy and forces from 8 samples (all as in `step.py`): the time as it is, with each number of `Tuning`
changed by itself, and with all changes together that made it faster.  frames.npz is from `step.py --prepare`.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from provenance import RESULTS, provenance, write_json
from step import frames_of, moving, sampler_step, silicon, silicon_network

from equibayes.data.structures import Structure
from equibayes.engine.triton.precompile import share_of_work
from equibayes.engine.triton.tuning import Tuning
from equibayes.network.config import NetworkConfig, preset
from equibayes.network.scales import fit_scales

BATCH = 32
CHOICES: dict[str, tuple[int, ...]] = {
    "slots_collecting": (1, 2, 4),
    "slots_giving": (1, 2, 4),
    "rows": (16, 32, 64),
    "warps": (2, 4),
    "stages": (2, 3, 4),
    "registers": (128, 168, 255),
    "gradient_rows": (16, 32),
    "gradient_warps": (2, 4),
    "gradient_stages": (3, 4),
    "gradient_parts": (8, 16, 32),
    "pieces": (1, 2, 3, 6),
    "radial_rows": (32, 64, 128),
    "radial_columns": (320, 640, 4096),
    "radial_stages": (2, 3),
    "radial_last_warps": (2, 4, 8),
    "radial_back_rows": (32, 64),
    "radial_back_warps": (2, 4),
    "radial_block": (32, 64),
    "radial_warps": (4, 8),
}
CHOICES |= {f"tangent_{name}": CHOICES[name] for name in ("registers", "rows", "warps", "stages")}
IN_PREDICTIONS = (
    "slots_collecting",
    "slots_giving",
    "registers",
    "rows",
    "warps",
    "stages",
    "pieces",
    "radial_rows",
    "radial_columns",
    "radial_stages",
    "radial_last_warps",
)
"""The others belong to the gradient by the weights."""
WORTH_IT = 0.995
"""A change is taken over if it saves half a percent; less is chance."""


@dataclass(frozen=True)
class Case:
    """Something to be made faster: a network, how many weight sets and atoms, whether it learns, and ms of one round
    of it."""

    name: str
    config: NetworkConfig
    chains: int
    rows: int
    training: bool
    round: Callable[[str], float]

    def work(self, precision: str, tuning: Tuning) -> dict[str, Any]:
        return share_of_work(self.config, precision, self.chains, tuning, training=self.training)

    def milliseconds(self, precision: str, tuning: Tuning) -> float | str:
        """Of a round with this cut, or why there is none."""
        Tuning.best = classmethod(lambda cls, precision, rows, **_: tuning)  # type: ignore[method-assign, assignment]
        try:
            return self.round(precision)
        except Exception as cause:  # too many registers or too much shared memory, mostly
            return f"{type(cause).__name__}: {str(cause).splitlines()[-1] if str(cause) else ''}"[:200]
        finally:
            torch.cuda.empty_cache()


def all_cases(molecules: dict[str, list[Structure]]) -> list[Case]:
    def step(name: str, chains: int) -> Case:
        frames = molecules[name]

        def ms(precision: str) -> float:
            return float(sampler_step(frames, chains, BATCH, precision, compiled=True)["ms"])

        rows = chains * BATCH * len(frames[0])
        return Case(f"{name} K={chains}", fit_scales(preset("paper"), frames), chains, rows, True, ms)

    def predict(name: str, frame: Structure, network: NetworkConfig, skin: float) -> Case:
        def ms(precision: str) -> float:
            return float(moving(frame, network, 8, precision, skin, compiled=True)["kernels_ms"])

        return Case(f"{name} k=8", network, 8, 8 * len(frame), False, ms)

    aspirin = molecules["aspirin"]
    return [
        *(step(name, chains) for name in molecules for chains in (1, 8)),
        predict("MD aspirin", aspirin[0], fit_scales(preset("paper"), aspirin), 0.5),
        predict("1000 atoms", silicon(5), silicon_network(6.0, 46.0), 0.0),
    ]


def neighbours(base: Tuning, training: bool = True, known: Iterable[Tuning] = ()) -> list[Tuning]:
    """Every cut of the work that differs in one number, or in two that belong together: few rows go with few warps;
    and those known."""
    names = CHOICES if training else IN_PREDICTIONS
    single = [{name: value} for name in names for value in CHOICES[name] if value != getattr(base, name)]
    pairs = [
        {"gradient_rows": 16, "gradient_warps": 2},
        {"radial_rows": 32, "radial_last_warps": 2},
        {"radial_rows": 128, "radial_last_warps": 8},
        {"rows": 32, "warps": 2},
        {"tangent_rows": 32, "tangent_stages": 2},
        {"radial_block": 32, "radial_warps": 4},
    ]
    changed = [replace(base, **change) for change in [*single, *pairs] if set(change) <= set(names)]
    return [cut for cut in dict.fromkeys([*changed, *known]) if cut != base]


def difference(tuning: Tuning, base: Tuning) -> dict[str, int]:
    return {name: value for name, value in asdict(tuning).items() if value != getattr(base, name)}


def compile_all(work: Iterable[dict[str, Any]], processes: int) -> None:
    """Each in a process of its own that never touches the GPU; kernels that several share are found in Triton's
    cache."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    unique = list(dict.fromkeys(json.dumps(each) for each in work))

    def compile_one(each: str) -> None:
        command = [sys.executable, "-m", "equibayes.engine.triton.precompile", each, "1", "0"]
        # what fails here fails again, and is reported, when it is measured
        subprocess.run(command, env=environment, capture_output=True, check=False)

    with ThreadPoolExecutor(processes) as pool:
        list(pool.map(compile_one, unique))


def improve(case: Case, precision: str, base: Tuning, others: Iterable[Tuning]) -> dict[str, Any]:
    found: list[tuple[Tuning, float | str]] = []
    as_it_is = case.milliseconds(precision, base)
    assert isinstance(as_it_is, float), as_it_is
    for tuning in others:
        found.append((tuning, case.milliseconds(precision, tuning)))
        print(case.name, difference(tuning, base), found[-1][1], "against", round(as_it_is, 4), flush=True)
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
        result["together"] = {"change": together, "ms": case.milliseconds(precision, replace(base, **together))}
        print(case.name, "together", result["together"], flush=True)
    return result


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, metavar="FILE", help="what step.py --prepare wrote")
    parser.add_argument("--precision", default="mixed", help="float32, tf32x3, bf16x3 or mixed (default)")
    parser.add_argument("--compile", action="store_true", help="compile what will be measured and stop")
    parser.add_argument("--output", type=Path, help="default results/speed/tuning-PRECISION.json")
    parser.add_argument("--commit", help="of the code, where there is no repository")
    given = parser.parse_args()
    if not torch.cuda.is_available():
        print("benchmarks/tuning.py needs a GPU", file=sys.stderr)
        return 2
    precision, output = given.precision, given.output or RESULTS / f"tuning-{given.precision}.json"
    with np.load(given.data) as data:
        cases = all_cases({name: frames_of(data, name) for name in ("ethanol", "aspirin")})
    base = {case.name: Tuning.best(precision, case.rows) for case in cases}  # before `best` is replaced
    others = {
        case.name: neighbours(
            base[case.name], case.training, [Tuning.best(other, case.rows) for other in ("tf32", "tf32x3")]
        )
        for case in cases
    }
    as_they_are = [case.work(precision, base[case.name]) for case in cases]
    changed = [case.work(precision, cut) for case in cases for cut in others[case.name]]
    for work in (as_they_are, changed):  # the second share most kernels with the first
        compile_all(work, os.cpu_count() or 1)
    if given.compile:
        return 0
    about = {"command": f"python benchmarks/tuning.py --precision {precision}", **provenance()}
    about |= {"commit": given.commit} if given.commit else {}
    results: dict[str, Any] = {}
    for case in cases:
        results[case.name] = improve(case, precision, base[case.name], others[case.name])
        write_json(output, {**about, "precision": precision, "batch": BATCH, "cases": results})
    return 0


if __name__ == "__main__":
    sys.exit(main())
