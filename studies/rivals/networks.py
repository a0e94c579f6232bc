"""The methods of the package on few frames of ethanol, to stand beside `gp.py` and `llpr.py`.

    python examples/rivals/networks.py --frames 50 --folder work -o results/comparison

Preset `quick`; writes networks-N.json with every METHOD and `METHOD, scaled`, whose σ of forces and of energies are multiplied by one
factor each, of largest likelihood on the held-back frames.  FOLDER keeps what was trained, which a second call uses again.
"""

import argparse
import json
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from equibayes.baselines.contestants import METHODS, obtain
from equibayes.evaluation.evaluated import Evaluated, evaluate
from equibayes.files import make_folder
from equibayes.run.progress import PlainDisplay
from examples.rivals.protocol import Clock, frames_of, held_back_factors, scaled, write


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
    folder, path = make_folder(options.folder / str(options.frames)), options.output / f"networks-{options.frames}.json"
    if path.exists():  # what training took is known from then
        before = json.loads(path.read_text(encoding="utf-8"))["seconds"]
        clock = Clock(before["wall"], before["cpu"])
    make_folder(options.output)
    costs, factors = {}, {}
    results: dict[str, Evaluated] = {}
    for method in options.methods.split(","):
        there = (folder / f"{method}.posterior").exists()
        with clock(f"{method}: {'load' if there else 'train'}"):
            found = obtain(method, frames.together, frames.config, folder, device="cpu", display=PlainDisplay())
        costs[method] = {"networks": found.networks, "steps": found.steps, "seconds": found.seconds}
        factors[method] = held_back_factors(evaluate(found.posterior, frames.held_back))
        with clock(f"{method}: predict"):
            results[method] = evaluate(found.posterior, frames.test)
        results[f"{method}, scaled"] = scaled(results[method], *factors[method])
        about = {"settings": frames.config.to_dict(), "costs": costs, "held_back_factors": factors}
        write(path, frames, results, clock, **about)


if __name__ == "__main__":
    main()
