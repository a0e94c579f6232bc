"""`equibayes evaluate OUT.posterior DATA …`: the paper's tables for any data, as text, JSON and a report."""

import argparse
import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from equibayes.cli.device import add_device_options, chosen_device
from equibayes.cli.outputs import check_output
from equibayes.cli.parser import add_reading_options, reading_options
from equibayes.data import Dataset, read
from equibayes.errors import InputError
from equibayes.evaluation.evaluated import Evaluated, evaluate_each, to_evaluate
from equibayes.evaluation.metrics import OUTLIER_THRESHOLD
from equibayes.evaluation.print_tables import print_tables
from equibayes.evaluation.tables import measure_all
from equibayes.files import write_text
from equibayes.plural import counted
from equibayes.posterior.file import Posterior, load
from equibayes.posterior.seen import marks_of
from equibayes.run.progress import watched

HELP = "compare predictions and their uncertainties with labels"
DESCRIPTION = "Accuracy, likelihood, outlier detection and calibration on labelled data, as in the paper's tables."
EPILOG = """\
examples:
  equibayes evaluate ethanol.posterior bundled:ethanol@test
  equibayes evaluate out.posterior near.xyz far.xyz --k 1,2,4,8 --json metrics.json --report report.html
  equibayes evaluate out.posterior test.xyz --report report.html --figures figures/

The report compares later data sets with the first: name data like the training set first, then what lies further away.
Open it in any browser; it can be mailed, archived and printed as it is.  Files that exist are replaced.

Metrics without labels are omitted and the reason is given.  Numbers refer to the mean and the total σ of the first k
samples.
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("posterior", metavar="OUT.posterior", help="posterior file")
    parser.add_argument(
        "data", nargs="+", metavar="DATA", help="file, file@split or bundled:NAME (see equibayes --help)"
    )
    parser.add_argument("--k", metavar="1,2,4,8", help="numbers of samples to evaluate with (default: all)")
    parser.add_argument("--json", metavar="METRICS.json", help="write every metric, in eV and Å, in kcal/mol and GPa")
    report = "write one page with text, tables, figures and the most and least certain structures; it works offline"
    parser.add_argument("--report", metavar="REPORT.html", help=report)
    parser.add_argument("--figures", metavar="DIR", help="write every figure of that page as SVG and PDF, for papers")
    outlier = (
        "error above which a component is an outlier, eV/Å, and an energy, eV (default: 3 times the MAE of the data "
    )
    outlier += f"set, always for stress; {OUTLIER_THRESHOLD:.4f} is the paper's 1 kcal/(mol Å))"
    parser.add_argument("--threshold", type=float, metavar="x", help=outlier)
    training = "also evaluate frames that the posterior learned from (default: they are left out, with a note)"
    parser.add_argument("--include-training", action="store_true", help=training)
    vectors = (
        "also judge covariances of the forces (up to 256 atoms), and draw the ellipsoids of the atoms in the report"
    )
    parser.add_argument("--covariance", action="store_true", help=vectors)
    add_device_options(parser)
    add_reading_options(parser)


def run(arguments: argparse.Namespace) -> int:
    if arguments.threshold is not None and not 0 < arguments.threshold < float("inf"):
        raise InputError(f"--threshold {arguments.threshold:g}: must be above 0, in eV/Å")
    for option, ending in (("json", ".json"), ("report", ".html")):
        check_output(option, getattr(arguments, option), ending)
    if arguments.figures and Path(arguments.figures).exists() and not Path(arguments.figures).is_dir():
        raise InputError(f"--figures {arguments.figures}: is a file; name a folder")
    device = chosen_device(arguments)
    posterior = load(arguments.posterior)
    ks = _numbers(arguments.k, posterior)
    sets = _distinct([read(name, require_labels=False, **reading_options(arguments)) for name in arguments.data])
    chosen = [to_evaluate(marks_of(posterior), data, arguments.include_training) for data in sets]
    results: list[Evaluated] = []
    for data, note in chosen:
        progress = partial(watched, what=data.name, total=len(data))
        found = evaluate_each(posterior, data, ks, device=device, progress=progress, covariance=arguments.covariance)
        results += [replace(each, note=note) for each in found]
    name, calibrated = Path(arguments.posterior).name, posterior.calibration is not None
    about = {"posterior": name, "samples": len(posterior), "calibrated": calibrated}
    metrics = measure_all(results, threshold=arguments.threshold, about=about)
    print_tables(metrics)
    for result in results:
        adrift = result.energies_adrift
        if result.k == ks[-1] and 0 < adrift < len(result.structures):  # of all of them the tables say so themselves
            print(
                f"note: {result.name}: energies of {counted(adrift, 'frame')} are defined only up to a constant and are not "
                "compared; the training data had no such composition (docs: your own data)"
            )
    if arguments.json:
        write_text(arguments.json, json.dumps(metrics, indent=2, ensure_ascii=False, allow_nan=False) + "\n")
        print(f"every metric written to {arguments.json}")
    _show(arguments.report, arguments.figures, posterior, results, metrics)
    return 0


def _show(
    report: str | None, figures: str | None, posterior: Posterior, results: list[Evaluated], metrics: dict[str, Any]
) -> None:
    """The page, the figures, or both."""
    from equibayes.evaluation.report import write_figures, write_report

    if report:
        write_report(report, posterior, results, metrics, figures)
        print(f"report written to {report}")
    elif figures:
        write_figures(figures, posterior, results, metrics)
    if figures:
        print(f"figures written to {figures} as SVG and PDF")


def _numbers(text: str | None, posterior: Posterior) -> list[int]:
    """`1,2,4,8` as numbers that the posterior has."""
    if text is None:
        return [len(posterior)]
    try:
        ks = sorted({int(word) for word in text.split(",")})
    except ValueError:
        raise InputError(f"--k {text}: whole numbers separated by commas are needed, such as 1,2,4,8") from None
    for k in ks:
        posterior.subset(k)  # says what is wrong with it
    return ks


def _distinct(sets: list[Dataset]) -> list[Dataset]:
    """The same data sets, each with a name of its own: files of different folders may have the same."""
    seen: dict[str, int] = {}
    named = []
    for data in sets:
        seen[data.name] = count = seen.get(data.name, 0) + 1
        named.append(data if count == 1 else data.subset(range(len(data)), f"{data.name} ({count})"))
    return named
