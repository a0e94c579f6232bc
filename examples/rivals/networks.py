"""The methods of the package on few frames of ethanol, to stand beside `gp.py` and `llpr.py`.

    python examples/rivals/networks.py --frames 50 --folder work -o results/comparison

Preset `quick`; writes networks-N.json.  FOLDER keeps what was trained, which a second call uses again.
"""

import argparse
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from equibayes.baselines.contestants import METHODS, obtain
from equibayes.evaluation.evaluated import Evaluated, evaluate
from equibayes.files import make_folder
from equibayes.sampling.progress import PlainDisplay
from examples.rivals.protocol import Clock, frames_of, write


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--frames", type=int, default=50, metavar="N", help="frames to learn from (default 50)")
    parser.add_argument("--methods", default=",".join(METHODS), help=f"default {','.join(METHODS)}")
    parser.add_argument("--folder", type=Path, required=True, help="for what is trained")
    parser.add_argument("-o", "--output", type=Path, required=True, help="folder of the results")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    frames, clock = frames_of(options.frames, seed=options.seed), Clock()
    folder, methods, costs = make_folder(options.folder / str(options.frames)), options.methods.split(","), {}
    results: dict[str, Evaluated] = {}
    for method in methods:
        with clock(f"{method}: train, or load"):
            found = obtain(method, frames.together, frames.config, folder, device="cpu", display=PlainDisplay())
        costs[method] = {"networks": found.networks, "steps": found.steps, "seconds": found.seconds}
        with clock(f"{method}: predict"):
            results[method] = evaluate(found.posterior, frames.test)
        path = make_folder(options.output) / f"networks-{options.frames}.json"
        write(path, frames, results, clock, settings=frames.config.to_dict(), costs=costs)


if __name__ == "__main__":
    main()
