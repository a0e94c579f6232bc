"""How far may refinement move the weights?  Errors of every candidate λ, on held-back frames and on others.

    python -m studies.solids.noises Cu-Au --seed 1        OUTPUT/Cu-Au-1.json

Needs the sampled posterior that `python -m studies.solids Cu-Au --seed 1` keeps.  The others are frames that settings
may be chosen on; the run chooses λ by the likelihood of its held-back frames.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from equibayes.posterior.file import Posterior, load
from equibayes.posterior.tangent import Inference, assembled, centres, relative_sizes, resident, space_of
from equibayes.posterior.tangent_choice import choose
from equibayes.posterior.tangent_plan import NOISES, Plan
from equibayes.run.prepare import Prepared, prepare
from equibayes.sampling.noise import NoiseKey
from studies.presets.frames import FOLDER
from studies.shared.options import add_commit, parser_of, start
from studies.shared.results import provenance, save_json
from studies.solids.__main__ import DRAWS, config_of, errors
from studies.solids.cases import Case, case


def run(posterior: Posterior, prepared: Prepared, which: Case, seed: int) -> list[dict[str, Any]]:
    """For every λ: size of δ, likelihood of held-back labels, errors."""
    train = prepared.train.right
    plan = Plan.of(posterior, train)
    known, left = (resident(posterior, frames) for frames in (train, prepared.validation))
    chosen, found, spaces = centres(posterior), [], []
    for number, centre in enumerate(chosen):
        key = NoiseKey(seed, [number])
        inference = Inference(posterior, centre, plan, key)
        inference.learn(known)
        found.append(inference.draws(DRAWS, left))
        spaces.append(space_of(posterior, centre, plan, key))
    sizes, rows = relative_sizes(posterior.samples[torch.tensor(chosen)], spaces, found), []
    for number, noise in enumerate(NOISES):
        choice = choose(found, [0.0 if other == number else float("inf") for other in range(len(NOISES))])
        view = assembled(posterior, chosen, spaces, found, choice, train, plan, DRAWS)
        judged = {"held_back": errors(view, prepared.validation), "tune": errors(view, which.test)}
        rows.append(
            {"noise": noise, "size": sizes[number], "held_back_log_likelihood": choice.log_likelihood, **judged}
        )
    return rows


def main(argv: Sequence[str] | None = None) -> None:
    parser = parser_of(__doc__)
    parser.add_argument("system")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", type=Path, default=FOLDER, help="folder of the data (default: %(default)s)")
    parser.add_argument("--output", type=Path, default=Path("results/solids/noises"), help="(default: %(default)s)")
    parser.add_argument("--posteriors", type=Path, default=Path("build/solids"), help="folder (default: %(default)s)")
    add_commit(parser)
    given = parser.parse_args(argv)
    torch.set_num_threads(1)
    which = case(given.system, given.seed, given.folder, tune=True)
    config = config_of(given.system, given.seed, [], None, False)
    prepared = prepare(which.learn, replace(config, data=replace(config.data, validation=which.held_back)))
    stem = f"{given.system}-{given.seed}"
    rows = run(load(given.posteriors / f"{stem}.posterior"), prepared, which, given.seed)
    for row in rows:
        tune, held = row["tune"], row["held_back"]
        print(
            f"λ {row['noise']:g} size {row['size']:.2f} ln p {row['held_back_log_likelihood']:.0f}; forces (meV/Å): held "
            f"back {1e3 * held['force_mae']:.2f}, others {1e3 * tune['force_mae']:.2f}, RMS {1e3 * tune['force_rmse']:.1f}, "
            f"{100 * tune['force_coverage_68']:.0f} in 68 %; stress {tune['stress_mae']:.3f} GPa",
            flush=True,
        )
    about = {"system": given.system, "seed": given.seed, "noises": rows}
    save_json(given.output / f"{stem}.json", about | {"provenance": provenance(given.commit)}, indent=None)


if __name__ == "__main__":
    start(main)
