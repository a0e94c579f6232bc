"""Settings of the presets, tried on held-back frames of molecules and crystals.

    python -m studies.presets --name long --data ethanol --network medium --set burn_in.steps=30000
    python -m studies.presets --table --output results/presets     trials of the folder into trials.json; prints a table

Settings start from the preset `quick` and are given as for `equibayes sample`.
"""

import time
from collections.abc import Sequence
from pathlib import Path

import torch

from equibayes.config import parse_overrides
from equibayes.errors import InputError
from equibayes.run.settings import sample_config
from studies.presets.frames import FOLDER, frames
from studies.presets.table import collect, table
from studies.presets.trial import trial
from studies.shared.options import add_commit, add_device, parser_of, start
from studies.shared.results import provenance, save_json


def main(argv: Sequence[str] | None = None) -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--name", help="of the trial")
    parser.add_argument("--table", action="store_true", help="collect the trials of the folder and print a table")
    parser.add_argument("--data", default="ethanol", help="molecule of rMD17, or silicon, lithium, molybdenum")
    parser.add_argument("--frames", type=int, help="frames to learn from (default: all)")
    parser.add_argument("--preset", default="quick", help="preset to start from (default: %(default)s)")
    parser.add_argument("--network", help="named network (default: that of the preset)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE", help="settings to change")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="folder of the data (default: %(default)s)")
    parser.add_argument("--output", type=Path, default=Path("build/presets"), help="folder (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=1)
    add_device(parser)
    add_commit(parser)
    given = parser.parse_args(argv)
    if given.table:
        print(table(collect(given.output)))
        return
    if not given.name:
        raise InputError("--name: say how the trial is called")
    torch.set_num_threads(given.threads)
    config = sample_config(given.preset, given.network, {"seed": given.seed}, parse_overrides(given.set))
    size = f"-{given.frames}" if given.frames else ""
    path = given.output / f"{given.name}-{given.data}{size}-{given.seed}.json"
    if path.exists():
        print(f"{path}: already there")
        return
    began = time.monotonic()
    data, judged = frames(given.data, given.frames, given.folder)
    found = {
        "name": given.name,
        "data": given.data,
        "seed": given.seed,
        "preset": given.preset,
        "network": given.network,
        "set": given.set,
        **trial(config, data, judged, given.device),
        "provenance": provenance(given.commit),
    }
    save_json(path, found, indent=None)
    last = list(found["views"].values())[-1]
    view = last.get("calibrated", last["raw"])
    words = " ".join(f"{key} {view[key]:.4g}" for key in ("mae", "mll", "in_68", "most_uncertain_tenth", "auc"))
    raw = last["raw"]
    print(
        f"{path.stem}: {words}; raw in_68 {raw['in_68']:.3g} mll {raw['mll']:.3f}; {found['steps']} steps, "
        f"{found['cpu_seconds']:.0f} s CPU, {time.monotonic() - began:.0f} s in all",
        flush=True,
    )


if __name__ == "__main__":
    start(main)
