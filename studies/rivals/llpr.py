"""Last-layer prediction rigidity of the `point` network of `equibayes compare` on ethanol, on the same frames.

    python examples/rivals/llpr.py --folder work -o results/comparison                 970 frames
    python examples/rivals/llpr.py --folder work -o results/comparison --frames 50

The network is trained as for `equibayes compare` with the preset `quick` (or taken from FOLDER, where that put it), `rigidity.py` does
the rest.  Means are those of the network, so that only σ tells it from `point`.  Writes llpr.json or llpr-N.json.
"""

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from equibayes.baselines.contestants import obtain
from equibayes.data import Dataset
from equibayes.evaluation.evaluated import Evaluated, evaluate
from equibayes.files import make_folder
from equibayes.posterior.file import Posterior
from equibayes.run.progress import PlainDisplay
from examples.rivals.protocol import Clock, evaluated, frames_of, write
from examples.rivals.rigidity import Features, Rigidity, features_of, hessian, rigidity


def energy_weight(data: Dataset) -> float:
    """Of a squared energy error in the loss of `point`, where that of a force component is 1: 3n/n² for n atoms (1/Å²)."""
    return 3 / len(data[0])


def fitted(
    posterior: Posterior, learned: Dataset, held_back: Dataset
) -> tuple[Rigidity, Features, list[dict[str, float]]]:
    """The rigidity from training frames, sized on the held-back ones; the features of the former; and what was tried."""
    known, other = features_of(posterior, learned), features_of(posterior, held_back)
    point = evaluate(posterior, held_back)
    force_error = point.force_error.reshape(len(held_back), -1)
    found, tried = rigidity(hessian(known, energy_weight(learned)), other, point.energy_error, force_error)
    return found, known, tried


def asked(posterior: Posterior, found: Rigidity, data: Dataset) -> Evaluated:
    """The network's means with the σ of its last layer."""
    point, features = evaluate(posterior, data), features_of(posterior, data)
    forces = point.force_mean.reshape(len(data), -1)
    return evaluated(
        data,
        (point.energy_mean, found.energy_sigma(features), 0.0),
        (forces, found.forces_sigma(features), 0.0),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--frames", type=int, metavar="N", help="frames to learn from (default 970)")
    parser.add_argument("--folder", type=Path, required=True, help="for the network, in FOLDER/970 or FOLDER/N")
    parser.add_argument("-o", "--output", type=Path, required=True, help="folder of the results")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    frames, clock = frames_of(options.frames, seed=options.seed), Clock()
    folder = make_folder(options.folder / str(len(frames.learned)))
    with clock("train, or load"):
        point = obtain("point", frames.together, frames.config, folder, device="cpu", display=PlainDisplay())
    with clock("covariance and scale"):
        found, known, tried = fitted(point.posterior, frames.learned, frames.held_back)
    with clock("predict with point's σ"):
        plain = evaluate(point.posterior, frames.test)
    with clock("predict with σ of forces"):
        result = asked(point.posterior, found, frames.test)
    eigenvalues = np.linalg.eigvalsh(hessian(known, energy_weight(frames.learned)))
    settings: dict[str, Any] = {
        "network": frames.config.to_dict(),
        "features": known.energy.shape[1],
        "energy_weight": energy_weight(frames.learned),
        "ridge": found.ridge,
        "alpha_forces": found.alpha_forces,
        "alpha_energy": found.alpha_energy,
        "condition_number": float(eigenvalues[-1] / eigenvalues[0]),
        "tried": tried,
    }
    costs = {"networks": point.networks, "steps": point.steps, "seconds": point.seconds}
    name = "llpr.json" if options.frames is None else f"llpr-{options.frames}.json"
    write(
        make_folder(options.output) / name,
        frames,
        {"llpr": result, "point": plain},
        clock,
        settings=settings,
        costs=costs,
    )


if __name__ == "__main__":
    main()
