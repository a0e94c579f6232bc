"""Tables (README.md) and figures (PNG) of the study of domain shift.

    python -m studies.domain_shift.tables results/domain-shift

Uses all finished cases and methods and lists missing ones.  The text of notes.md in the folder, written by hand, comes
first.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from equibayes.files import write_text
from studies.domain_shift import figures
from studies.domain_shift.columns import FULL, LEGEND, PAPER_TABLE_2, PAPER_TABLE_3, cells, markdown, written
from studies.shared import tables
from studies.shared.options import parser_of
from studies.shared.results import read_json

Found = dict[str, dict[str, Any]]
"""Method -> its JSON file."""

TITLES = {
    "pedot": "PEDOT: learned on chains of 8 and 12 units, tested on 16",
    "alkanes": "n-Alkanes: learned on C4–C7, tested on C8–C10",
    "3bpa": "3BPA: learned at 300 K, tested at 600 K and 1200 K (GFN2-xTB throughout)",
}
METHODS = ("bayes", "ensemble", "dropout", "point")
EXPECTED = METHODS[:3]
THINNED = " The repository stores every tenth of the test frames."


def load(folder: Path) -> dict[str, Found]:
    """Study -> method -> results."""
    found: dict[str, Found] = {}
    for case in TITLES:
        files = {method: read_json(folder / case / f"{method}.json") for method in METHODS}
        there = {method: content for method, content in files.items() if content}
        if there:
            found[case] = there
    return found


def at(found: dict[str, Any], name: str, kind: str = "raw") -> dict[str, Any]:
    values: dict[str, Any] = found["sets"][name][kind][str(found["k"])]
    return values


def growth(studies: dict[str, Found]) -> str:
    """Factors by which errors and σ are larger than in distribution."""
    rows = []
    for case, methods in studies.items():
        for method, found in methods.items():
            inside = [name for name, each in found["sets"].items() if each["kind"] == "inside"]
            error, sigma, spread = (pooled(found, inside, key) for key in ("force_rmse", "rms_sigma", "rms_epistemic"))
            for name, each in found["sets"].items():
                if each["kind"] == "inside":
                    continue
                values = at(found, name)
                factors = values["force_rmse"] / error, values["rms_sigma"] / sigma
                grown = values["rms_epistemic"] / spread if spread > 0 else None
                ratio = sigma / error, values["rms_sigma"] / values["force_rmse"]
                rows.append(
                    [
                        case,
                        name,
                        method,
                        *(written(v, ".2f") for v in (*factors, grown)),
                        *(written(v, ".2f") for v in ratio),
                    ]
                )
    heads = [
        "study",
        "set",
        "method",
        "error ×",
        "σ ×",
        "epistemic σ ×",
        "σ / error in distribution",
        "σ / error shifted",
    ]
    return markdown(heads, rows)


def pooled(found: dict[str, Any], names: Sequence[str], key: str) -> float:
    """Root mean square over the components of several sets."""
    parts = [at(found, name) for name in names]
    return math.sqrt(sum(v["atoms"] * v[key] ** 2 for v in parts) / sum(v["atoms"] for v in parts))


def detection(studies: dict[str, Found]) -> str:
    """How well the σ of a frame detects shifted frames."""
    rows = []
    for case, methods in studies.items():
        for method, found in methods.items():
            for name, scores in found["detection"]["raw"].items():
                again = found["detection"]["recalibrated"][name]
                values = [scores["largest"], scores["rms"], scores["largest_epistemic"], again["rms"]]
                rows.append([case, name, method, *(written(value, ".3f") for value in values)])
    heads = ["study", "set", "method", "largest σ", "RMS σ", "largest epistemic σ", "RMS σ, recalibrated"]
    return markdown(heads, rows)


def full(methods: Found) -> str:
    """Every set and method, raw and recalibrated."""
    rows = []
    for name in next(iter(methods.values()))["sets"]:
        for method, found in methods.items():
            for kind in ("raw", "recalibrated"):
                rows.append([name, method, kind, *cells(FULL, at(found, name, kind))])
    return markdown(["set", "method", "σ is", *(heading for heading, _, _ in FULL)], rows)


def table_2(methods: Found) -> str:
    rows = []
    for name in next(iter(methods.values()))["sets"]:
        for method, found in methods.items():
            for k in dict.fromkeys(["1", str(found["k"])]):
                rows.append([name, method, k, *cells(PAPER_TABLE_2, found["sets"][name]["raw"].get(k))])
    return markdown(["test set", "method", "k", *(heading for heading, _, _ in PAPER_TABLE_2)], rows)


def table_3(methods: Found) -> str:
    rows = [
        [method, k, *cells(PAPER_TABLE_3, values)]
        for method, found in methods.items()
        for k, values in found["sets"]["length 16"]["raw"].items()
    ]
    return markdown(["method", "k", *(heading for heading, _, _ in PAPER_TABLE_3)], rows)


def costs(methods: Found) -> str:
    """Networks, steps and times of each method."""
    rows = []
    for method, found in methods.items():
        config, made = found["settings"], found["provenance"]
        where = made["hardware"].get("gpu") or made["hardware"]["cpu"]
        seconds = written(found["sampling_seconds"], ".0f")
        batch, calibrated = str(config["burn_in"]["batch_size"]), found["calibration"]["forces"]["method"]
        row = [
            method,
            str(found["networks"]),
            str(found["steps"]),
            batch,
            seconds,
            written(found["evaluation_seconds"], ".0f"),
        ]
        rows.append([*row, calibrated, where, found["precision"], str(found["seed"]), made["commit"][:12]])
    heads = ["method", "networks", "steps of each", "batch", "sampling / s", "testing / s", "recalibration"]
    return markdown([*heads, "hardware", "precision", "seed", "commit"], rows)


def study(case: str, methods: Found, drawn: dict[str, str]) -> list[str]:
    """The part of one study."""
    missing = [method for method in EXPECTED if method not in methods]
    data = next(iter(methods.values()))["data"]
    sizes = ", ".join(f"{name} {each['frames']}" for name, each in data.items())
    parts = [f"## {TITLES[case]}", f"Frames: {sizes}.{THINNED if case == 'pedot' else ''}", costs(methods)]
    if missing:
        parts.append(f"**Missing:** {', '.join(missing)}.")
    if case == "pedot":
        parts += [
            "### Table 2 of the paper, on our data",
            "kcal/mol and kcal/(mol Å), σ not recalibrated.",
            table_2(methods),
        ]
        parts += ["### Table 3: influence of the number of samples, length 16", table_3(methods)]
    parts += ["### All metrics" if case == "pedot" else "", full(methods), LEGEND]
    parts += [f"![{alt}]({name})" for name, alt in drawn.items()]
    return [part for part in parts if part]


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("folder", type=Path, help="folder with CASE/METHOD.json; README.md and figures go there too")
    folder = parser.parse_args().folder
    studies = load(folder)
    if not studies:
        raise SystemExit(f"{folder}: no results; run python -m studies.domain_shift first")
    notes = folder / "notes.md"
    absent = [TITLES[case] for case in TITLES if case not in studies]
    parts = ["# Domain shift: does σ grow with the error?"]
    parts += [notes.read_text(encoding="utf-8").strip()] if notes.exists() else []
    parts += [f"**Not run:** {'; '.join(absent)}."] if absent else []
    parts += [
        "## Growth of errors and of σ",
        "Root mean squares over force components, relative to those of the in-distribution test sets; σ not recalibrated.",
        growth(studies),
        *(f"![{alt}]({name})" for name, alt in figures.growth(studies, folder).items()),
        "## Are shifted frames detected?",
        "ROC AUC for separating frames of the set from in-distribution frames by the σ of their atoms; 0.5 is chance. The largest σ "
        "increases with the number of atoms, so that RMS σ is the fairer score where molecules differ in size.",
        detection(studies),
    ]
    for case, methods in studies.items():
        parts += study(case, methods, figures.of_study(case, methods, folder))
    parts += [
        "## How to reproduce",
        f"```\n{commands(studies)}\npython -m studies.domain_shift.tables results/domain-shift\n```",
    ]
    write_text(folder / "README.md", tables.wrapped("\n\n".join(parts)) + "\n")
    made = "; ".join(f"{case} ({', '.join(methods)})" for case, methods in studies.items())
    print(f"{folder / 'README.md'}: {made}")


SETTINGS = (
    ("burn_in", "steps"),
    ("burn_in", "noise_free"),
    ("burn_in", "batch_size"),
    ("cycles", "length"),
    ("cycles", "batch_size"),
)
"""Settings that may have changed since the results were made; the burn-in of a rival is as long as a whole chain."""


def commands(studies: dict[str, Found]) -> str:
    """The commands that gave these results."""
    lines = []
    for case, methods in studies.items():
        config = methods.get("bayes", next(iter(methods.values())))["settings"]
        values = [
            f"{part}.{name}={config[part][name]}" for part, name in SETTINGS if "bayes" in methods or name != "steps"
        ]
        data = " --data ALKANES" if case == "alkanes" else ""  # the other cases are in the repository
        options = f"--device cuda --seed {config['seed']} --methods {' '.join(methods)}"
        lines.append(f"python -m studies.domain_shift {case}{data} {options} \\")
        lines.append(f"    --set {' '.join(values)} precision={config['precision']}")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
