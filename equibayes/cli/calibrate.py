"""`equibayes calibrate OUT.posterior DATA`: rescale σ to fit the errors on frames outside the training set."""

import argparse
import json
from functools import partial
from pathlib import Path

from equibayes.cli.device import add_device_options, chosen_device
from equibayes.cli.parser import add_reading_options, reading_options
from equibayes.data import Dataset, read
from equibayes.data.elements import symbol
from equibayes.errors import InputError
from equibayes.evaluation.print_tables import Table
from equibayes.files import check_target
from equibayes.plural import counted
from equibayes.posterior.calibrate import calibrate, store
from equibayes.posterior.calibration import METHODS, Calibrated, Calibration
from equibayes.posterior.file import load
from equibayes.posterior.seen import marks_of, unseen
from equibayes.run.progress import watched

HELP = "rescale uncertainties to fit the errors on validation frames"
DESCRIPTION = (
    "Rescale the uncertainties to fit the errors on labelled frames that the posterior did not learn from.  The "
    "result is kept in the posterior file and applied to every prediction from then on."
)
EPILOG = """\
examples:
  equibayes calibrate out.posterior validation.xyz
  equibayes calibrate out.posterior train.xyz -o calibrated.posterior   uses the frames of train.xyz that were held back
  equibayes calibrate out.posterior --remove

methods, for energies, forces and stress separately:
  none      σ as predicted by the model
  scale     one factor, after a correction for the number of samples
  parts     one factor for each of the epistemic and the aleatoric part
  species   one factor for every element (forces)
  monotone  a rising curve from σ to σ
  auto      the simplest that is clearly better on frames left out of its fit
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("posterior", metavar="OUT.posterior", help="posterior file")
    parser.add_argument("data", nargs="?", metavar="DATA", help="file, file@split or bundled:NAME, with labels")
    parser.add_argument("-o", "--output", metavar="CALIBRATED.posterior", help="file to write (default: in place)")
    parser.add_argument("--method", choices=["auto", *METHODS], default="auto", metavar="NAME", help="default auto")
    parser.add_argument("--remove", action="store_true", help="remove the calibration from the file")
    parser.add_argument("--overwrite", action="store_true", help="replace an existing CALIBRATED.posterior")
    parser.add_argument("--json", action="store_true", help="print what was found as JSON, in eV and Å")
    add_device_options(parser)
    add_reading_options(parser)


def run(arguments: argparse.Namespace) -> int:
    source, target = Path(arguments.posterior), Path(arguments.output or arguments.posterior)
    check_target(target, overwrite=arguments.overwrite or target.resolve() == source.resolve())
    if arguments.remove == (arguments.data is not None):
        raise InputError("give DATA to calibrate on, or --remove, but not both; see equibayes calibrate --help")
    posterior = load(source)
    if arguments.remove:
        store(source, target, None)
        done = "calibration removed" if posterior.calibration else "there was no calibration"
        print("null" if arguments.json else f"{done}; {target} written")
        return 0
    device = chosen_device(arguments)
    data, note = unseen(marks_of(posterior), _labelled(arguments))
    progress = partial(watched, what=data.name, total=len(data))
    after = calibrate(posterior, data, method=arguments.method, device=device, progress=progress)
    assert after.calibration is not None
    store(source, target, after.calibration)
    if arguments.json:
        print(json.dumps(after.calibration, indent=2, ensure_ascii=False, allow_nan=False))
        return 0
    if note:
        print(f"note: {note}")
    print("\n".join(report(Calibration.from_dict(after.calibration), max_k=len(posterior))))
    print(f"calibration stored in {target}")
    return 0


def report(calibration: Calibration, max_k: int) -> list[str]:
    """A table of what was done and what it does, then a line about each."""
    parts = list(calibration.parts().items())
    levels = next(list(part.choice["coverage_before"]) for _, part in parts if "coverage_before" in part.choice)
    title = f"Calibration on {calibration.data['name']}, {counted(calibration.data['frames'], 'frame')}"
    headings = ["", "method", "σ", *(f"{level} %" for level in levels)]
    table = Table(title, headings, [_row(word, part, levels) for word, part in parts], left=2)
    return [
        str(table),
        "last columns: % of errors within the intervals that should contain that many, before → after, on frames left "
        "out of the fit",
        *(f"{word}: {_why(part)}" for word, part in parts),
        *(f"{word}: {_details(part, max_k)}" for word, part in parts if part.quantiles),
    ]


def _row(word: str, part: Calibrated, levels: list[str]) -> list[str]:
    choice = part.choice
    if "reason" in choice:
        return [word, part.method, "as it is", *["–"] * len(levels)]
    changes = (f"{100 * choice['coverage_before'][p]:.0f} → {100 * choice['coverage_after'][p]:.0f}" for p in levels)
    return [word, part.method, f"× {choice['factor']:.2f}" if part.method != "none" else "as it is", *changes]


def _why(part: Calibrated) -> str:
    """Why this method."""
    choice, gains = part.choice, part.choice.get("gain", {})
    if "reason" in choice:
        return f"unchanged: {choice['reason']}"
    if choice["chosen_by"] != "auto":
        return f"{part.method}, as requested"
    if part.method == "none":
        name = max((each for each in gains if each != "none"), key=lambda each: gains[each]["log_likelihood"])
        return f"unchanged: no method is clearly better on frames left out (the best, {name}, by {_gain(gains[name])})"
    return f"{part.method} is better than none on frames left out, by {_gain(gains[part.method])}"


def _gain(gain: dict[str, float]) -> str:
    return f"{gain['log_likelihood']:.3f} ± {gain['standard_error']:.3f} in mean log-likelihood"


def _details(part: Calibrated, k: int) -> str:
    """Factors that are not in the table, and intervals of guaranteed coverage."""
    levels = ", ".join(f"{100 * level:g}" for level in part.quantiles[k])
    factors = ", ".join(f"{symbol(z)} × {factor:.2f}" for z, factor in part.by_k[k].species.items())
    return (f"σ of {factors}; " if factors else "") + f"intervals of guaranteed coverage for {levels} %"


def _labelled(arguments: argparse.Namespace) -> Dataset:
    data = read(arguments.data, require_labels=False, **reading_options(arguments))
    if not data.labelled:
        remedy = "name their keys (--energy-key, --forces-key)"
        raise InputError(f"{data.name}: has neither energies nor forces to calibrate on; {remedy}")
    return data
