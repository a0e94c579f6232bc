"""Last-layer prediction rigidity of the `point` network of `equibayes compare` on ethanol, on the same frames.

    python -m studies.rivals.llpr --folder work -o results/comparison                 970 frames
    python -m studies.rivals.llpr --folder work -o results/comparison --frames 50

The network is trained as for `equibayes compare` with the preset `quick`, or taken from FOLDER if it is there;
`rigidity.py` does the rest.  Means are those of `point`; only σ differs.  Writes llpr.json or llpr-N.json.
"""

from typing import Any

import numpy as np

from equibayes.data import Dataset
from equibayes.evaluation.evaluated import Evaluated, evaluate
from equibayes.files import make_folder
from equibayes.posterior.file import Posterior
from equibayes.run.progress import PlainDisplay
from studies.rivals.protocol import begin, evaluated, write
from studies.rivals.rigidity import Features, Rigidity, features_of, hessian, rigidity
from studies.shared.options import parser_of
from studies.shared.runs import contestant


def energy_weight(data: Dataset) -> float:
    """Weight of a squared energy error in the loss of `point`, relative to a force component: 3n/n² for n atoms
    (1/Å²)."""
    return 3 / len(data[0])


def fitted(
    posterior: Posterior, learned: Dataset, held_back: Dataset
) -> tuple[Rigidity, Features, list[dict[str, float]]]:
    """The rigidity from the training frames, scaled on the held-back ones; features of the former; settings tried."""
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
    parser = parser_of(__doc__)
    options, frames, clock = begin(parser)
    folder = make_folder(options.folder / str(len(frames.learned)))
    with clock("train, or load"):
        point = contestant("point", frames.together, frames.config, folder, display=PlainDisplay())
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
