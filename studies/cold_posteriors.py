"""Where the error of a posterior beside an ensemble comes from: bias and spread, with and without noise and prior.

    python -m studies.cold_posteriors --molecule ethanol     one molecule; a few minutes on one core
    python -m studies.cold_posteriors --report               table and figure from all molecules that are there
    python -m studies.cold_posteriors --molecule ethanol --quick --output build/cold       to see that it runs

Eight chains with one sample each learn from 970 frames with the matrix mass; they differ in what acts in the last tenth
of the steps, and nothing else: weights at the start, minibatches and noise are the same.  Errors are those on 400
held-back frames.  RMSE² of the mean over k samples is b² + v/k: b is the bias that all samples share, v their variance.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from equibayes.config import merge
from equibayes.run.settings import sample_config
from studies.presets.frames import FOLDER, frames
from studies.presets.trial import trial
from studies.shared.options import add_commit, add_device, parser_of, start
from studies.shared.results import provenance, read_json, save_figure, save_json

CHAINS = 8
MOLECULES = ("ethanol", "malonaldehyde", "aspirin")
BASE: dict[str, Any] = {
    "chains": CHAINS,
    "samples": CHAINS,
    "sampler": {"mass": "matrix"},
    "labels": {"noise": 1.0},
    "burn_in": {"epochs": None, "batch_size": 4, "initial": 3e-2, "final": 1e-4, "decay": "linear", "noise_free": 0.9},
    "output": {"validations": 2},
}
FLAT = {"prior": {"width": 1e3}}
CASES: dict[str, dict[str, Any]] = {
    "no noise, no prior (ensemble)": merge(FLAT, {"sampler": {"temperature": 0.0}}),
    "noise, no prior": FLAT,
    "noise and prior (posterior)": {},
    "label noise 0.3 σ²": {"labels": {"noise": 0.3}},
    "label noise 0.1 σ²": {"labels": {"noise": 0.1}},
    "label noise 0.01 σ²": {"labels": {"noise": 0.01}},
    "noise and prior from the start": {"burn_in": {"noise_free": 0.0}},
}


def molecule(name: str, given: Any) -> None:
    """All cases of a molecule, each kept as soon as it is done."""
    path = given.output / f"{name}.json"
    data, judged = frames(name, None, given.folder)
    found = read_json(path) or {"molecule": name, "network": given.network, "steps": given.steps, "cases": {}}
    for case, changes in CASES.items():
        if case in found["cases"]:
            continue
        values = merge(BASE, {"burn_in": {"steps": given.steps}, "seed": given.seed}, changes)
        result = trial(sample_config("quick", given.network, values), data, judged, given.device)
        found["cases"][case] = {
            **{key: result[key] for key in ("members", "steps", "cpu_seconds", "engine")},
            "raw": result["views"][str(CHAINS)]["raw"],
            "one": result["views"]["1"]["raw"],
            "events": result["verdict"]["events"],
        }
        found["provenance"] = provenance(given.commit)
        save_json(path, found)
        print(name, case, {key: round(value, 3) for key, value in found["cases"][case]["raw"].items()}, flush=True)


def report(output: Path) -> None:
    """A table for each molecule, and the figure."""
    all_found = [found for name in MOLECULES if (found := read_json(output / f"{name}.json"))]
    for found in all_found:
        print(f"\n{found['molecule']}, `{found['network']}`, {next(iter(found['cases'].values()))['steps']} steps:\n")
        print("| last tenth of the steps | b | √v | RMSE, k = 1 | k = 8 | MAE, k = 8 | σ of one | ln p | in 68 % |")
        print("|---|---|---|---|---|---|---|---|---|")
        for case, row in found["cases"].items():
            b2, v = row["members"]["b2"], row["members"]["v"]
            raw, one = row["raw"], row["one"]
            numbers = [np.sqrt(max(b2, 0)), np.sqrt(v), np.sqrt(b2 + v), raw["rmse"], raw["mae"], one["sigma"]]
            words = " | ".join(f"{value:.1f}" for value in numbers)
            print(f"| {case} | {words} | {raw['mll']:.3f} | {raw['in_68']:.1f} |")
    plot(all_found, output / "decomposition.png")


def plot(all_found: list[dict[str, Any]], path: Path) -> None:
    """RMSE² against 1/k: a straight line, whose intercept is the bias that more chains do not reduce."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(1, len(all_found), figsize=(3.4 * len(all_found), 3), squeeze=False)
    inverse = np.linspace(0, 1, 50)
    for panel, found in zip(panels[0], all_found):
        for case, row in found["cases"].items():
            panel.plot(inverse, np.sqrt(row["members"]["b2"] + row["members"]["v"] * inverse), label=case)
        panel.set(title=found["molecule"], xlabel="1/k", xlim=(0, 1))
    panels[0][0].set_ylabel("force RMSE, meV/Å")
    panels[0][-1].legend(fontsize=6)
    figure.tight_layout()
    save_figure(figure, path)
    pyplot.close(figure)


def main(argv: Sequence[str] | None = None) -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--molecule", nargs="+", choices=MOLECULES, default=[])
    parser.add_argument("--report", action="store_true", help="table and figure from all molecules that are there")
    parser.add_argument("--network", default="small", help="named network (default: %(default)s)")
    parser.add_argument("--steps", type=int, default=6000, help="steps of each chain (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="50 steps: shows that it runs")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="folder of the data (default: %(default)s)")
    parser.add_argument("--output", type=Path, default=Path("results/cold-posteriors"), help="default: %(default)s")
    add_device(parser)
    add_commit(parser)
    given = parser.parse_args(argv)
    torch.set_num_threads(1)
    if given.quick:
        given.steps = 50
    for name in given.molecule:
        molecule(name, given)
    if given.report:
        report(given.output)


if __name__ == "__main__":
    start(lambda: main())
