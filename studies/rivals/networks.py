"""The methods of the package on few frames of ethanol, for comparison with `gp.py` and `llpr.py`.

    python -m studies.rivals.networks --frames 50 --folder work -o results/comparison

Preset `quick`; writes networks-N.json with every METHOD and `METHOD, scaled`, where force and energy σ are each
multiplied by the factor of largest likelihood on the held-back frames.  FOLDER keeps the networks for the next call.
"""

from equibayes.baselines.contestants import METHODS
from equibayes.evaluation.evaluated import Evaluated, evaluate
from equibayes.files import make_folder
from equibayes.run.progress import PlainDisplay
from studies.rivals.protocol import Clock, begin, held_back_factors, scaled, write
from studies.shared.options import parser_of
from studies.shared.results import read_json
from studies.shared.runs import contestant


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--methods", default=",".join(METHODS), help="methods to run (default: %(default)s)")
    options, frames, clock = begin(parser, 50)
    folder, path = make_folder(options.folder / str(options.frames)), options.output / f"networks-{options.frames}.json"
    before = read_json(path)
    if before:  # the training times are those of the first call
        clock = Clock(before["seconds"]["wall"], before["seconds"]["cpu"])
    make_folder(options.output)
    costs, factors = {}, {}
    results: dict[str, Evaluated] = {}
    for method in options.methods.split(","):
        there = (folder / f"{method}.posterior").exists()
        with clock(f"{method}: {'load' if there else 'train'}"):
            found = contestant(method, frames.together, frames.config, folder, display=PlainDisplay())
        costs[method] = {"networks": found.networks, "steps": found.steps, "seconds": found.seconds}
        factors[method] = held_back_factors(evaluate(found.posterior, frames.held_back))
        with clock(f"{method}: predict"):
            results[method] = evaluate(found.posterior, frames.test)
        results[f"{method}, scaled"] = scaled(results[method], *factors[method])
        about = {"settings": frames.config.to_dict(), "costs": costs, "held_back_factors": factors}
        write(path, frames, results, clock, **about)


if __name__ == "__main__":
    main()
