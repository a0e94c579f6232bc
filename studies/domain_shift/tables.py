"""Domain shift, part 2: tables (README.md) and figures (PNG) of what `study.py` found.

    python examples/domain_shift/tables.py results/domain-shift

Works with whatever studies and methods are there and says what is missing.  A file notes.md in the folder, written by hand, is put
in front of the tables.
"""

import argparse
import json
import math
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import figures

from equibayes.files import write_text
from equibayes.units import KCAL_PER_MOL

Found = dict[str, dict[str, Any]]
"""Method -> what study.py wrote about it."""
Value = Callable[[dict[str, Any]], Any]

TITLES = {
    "pedot": "PEDOT: learned on chains of 8 and 12 units, tested on 16",
    "alkanes": "n-Alkanes: learned on C4–C7, tested on C8–C10",
    "3bpa": "3BPA: learned at 300 K, tested at 600 K and 1200 K (GFN2-xTB throughout)",
}
METHODS = ("bayes", "ensemble", "dropout", "point")
EXPECTED = METHODS[:3]
ABSENT = "–"


def mev(key: str) -> Value:
    return lambda values: None if values[key] is None else 1e3 * values[key]


def plain(key: str, scale: float = 1.0) -> Value:
    return lambda values: None if values[key] is None else scale * values[key]


def kcal(key: str) -> Value:
    """In the paper's unit: errors are divided by it, densities are multiplied."""

    def convert(values: dict[str, Any]) -> Any:
        value = values[key]
        if value is None:
            return None
        if key.endswith("_mll"):
            return value + math.log(KCAL_PER_MOL)
        return value * KCAL_PER_MOL if key.endswith("_nece") else value / KCAL_PER_MOL

    return convert


FULL: list[tuple[str, Value, str]] = [
    ("MAE", mev("force_mae"), ".1f"),
    ("RMSE", mev("force_rmse"), ".1f"),
    ("σ", mev("mean_sigma"), ".1f"),
    ("epistemic", mev("mean_epistemic"), ".1f"),
    ("aleatoric", mev("mean_aleatoric"), ".1f"),
    ("MLL", plain("force_mll"), ".3f"),
    ("in 68 %", plain("force_coverage_68", 100), ".1f"),
    ("in 95 %", plain("force_coverage_95", 100), ".1f"),
    ("NECE", kcal("force_nece"), ".3f"),
    ("area", plain("force_miscalibration_area"), ".3f"),
    ("AUC 1 kcal", plain("force_auc"), ".3f"),
    ("AUC 3 × MAE", plain("force_auc_relative"), ".3f"),
    ("ρ atoms", plain("atom_spearman"), ".2f"),
    ("ρ frames", plain("frame_spearman"), ".2f"),
    ("MAE-E", mev("energy_mae_up_to_a_constant"), ".1f"),
]
PAPER_TABLE_2: list[tuple[str, Value, str]] = [
    ("MAE-F", kcal("force_mae"), ".3f"),
    ("RMSE-F", kcal("force_rmse"), ".3f"),
    ("MLL-F", kcal("force_mll"), ".2f"),
    ("MAE-E", kcal("energy_mae"), ".2f"),
    ("RMSE-E", kcal("energy_rmse"), ".2f"),
    ("MLL-E", kcal("energy_mll"), ".2f"),
]
PAPER_TABLE_3: list[tuple[str, Value, str]] = [
    *PAPER_TABLE_2,
    ("NECE-F", kcal("force_nece"), ".3f"),
    ("NECE-E", kcal("energy_nece"), ".3f"),
    ("area-F", plain("force_miscalibration_area"), ".3f"),
    ("in 68 %", plain("force_coverage_68", 100), ".1f"),
]
LEGEND = (
    "Force components in meV/Å. σ, epistemic, aleatoric: mean standard deviations. MLL: mean ln likelihood (eV, Å). in 68 %, in 95 %: "
    "share of errors within the intervals that should hold so many. NECE: the paper's calibration error (Å mol/kcal); area: "
    "miscalibration area. AUC: errors above 1 kcal/(mol Å), or above three times the method's MAE inside the distribution, found by σ. "
    "ρ: rank correlation of σ and error, over atoms and over frames (RMS). MAE-E: energies in meV after the mean error of each "
    "molecule is taken off."
)


def load(folder: Path) -> dict[str, Found]:
    """Study -> method -> results."""
    found: dict[str, Found] = {}
    for case in TITLES:
        files = {method: folder / case / f"{method}.json" for method in METHODS}
        there = {
            method: json.loads(file.read_text(encoding="utf-8")) for method, file in files.items() if file.exists()
        }
        if there:
            found[case] = there
    return found


def markdown(headings: Sequence[str], rows: Iterable[Sequence[str]], words: int) -> str:
    """A table whose first columns are words."""
    rule = ["---" if index < words else "--:" for index in range(len(headings))]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in [headings, rule, *rows])


def cells(columns: Sequence[tuple[str, Value, str]], values: dict[str, Any] | None) -> list[str]:
    return [written(None if values is None else find(values), form) for _, find, form in columns]


def written(value: float | None, form: str) -> str:
    return ABSENT if value is None or not math.isfinite(value) else f"{value:{form}}".replace("-", "−")


def at(found: dict[str, Any], name: str, kind: str = "raw") -> dict[str, Any]:
    values: dict[str, Any] = found["sets"][name][kind][str(found["k"])]
    return values


def growth(studies: dict[str, Found]) -> str:
    """By what factor errors and σ are larger than inside the distribution."""
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
    heads = ["study", "set", "method", "error ×", "σ ×", "epistemic σ ×", "σ / error inside", "σ / error there"]
    return markdown(heads, rows, 3)


def pooled(found: dict[str, Any], names: Sequence[str], key: str) -> float:
    """Root mean square over the components of several sets."""
    parts = [at(found, name) for name in names]
    return math.sqrt(sum(v["atoms"] * v[key] ** 2 for v in parts) / sum(v["atoms"] for v in parts))


def detection(studies: dict[str, Found]) -> str:
    """How well a frame's σ tells frames from elsewhere."""
    rows = []
    for case, methods in studies.items():
        for method, found in methods.items():
            for name, scores in found["detection"]["raw"].items():
                again = found["detection"]["recalibrated"][name]
                values = [scores["largest"], scores["rms"], scores["largest_epistemic"], again["rms"]]
                rows.append([case, name, method, *(written(value, ".3f") for value in values)])
    heads = ["study", "set", "method", "largest σ", "RMS σ", "largest epistemic σ", "RMS σ, recalibrated"]
    return markdown(heads, rows, 3)


def full(methods: Found) -> str:
    """Every set and method, raw and recalibrated."""
    rows = []
    for name in next(iter(methods.values()))["sets"]:
        for method, found in methods.items():
            for kind in ("raw", "recalibrated"):
                rows.append([name, method, kind, *cells(FULL, at(found, name, kind))])
    return markdown(["set", "method", "σ is", *(heading for heading, _, _ in FULL)], rows, 3)


def table_2(methods: Found) -> str:
    rows = []
    for name in next(iter(methods.values()))["sets"]:
        for method, found in methods.items():
            for k in dict.fromkeys(["1", str(found["k"])]):
                rows.append([name, method, k, *cells(PAPER_TABLE_2, found["sets"][name]["raw"].get(k))])
    return markdown(["test set", "method", "k", *(heading for heading, _, _ in PAPER_TABLE_2)], rows, 3)


def table_3(methods: Found) -> str:
    rows = [
        [method, k, *cells(PAPER_TABLE_3, values)]
        for method, found in methods.items()
        for k, values in found["sets"]["length 16"]["raw"].items()
    ]
    return markdown(["method", "k", *(heading for heading, _, _ in PAPER_TABLE_3)], rows, 2)


def costs(methods: Found) -> str:
    """What each method is and cost."""
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
    return markdown([*heads, "hardware", "precision", "seed", "commit"], rows, 1)


def study(case: str, methods: Found, drawn: dict[str, str]) -> list[str]:
    """The part of one study."""
    missing = [method for method in EXPECTED if method not in methods]
    data = next(iter(methods.values()))["data"]
    sizes = ", ".join(f"{name} {each['frames']}" for name, each in data.items())
    parts = [f"## {TITLES[case]}", f"Frames: {sizes}.", costs(methods)]
    if missing:
        parts.append(f"**Missing:** {', '.join(missing)}.")
    if case == "pedot":
        parts += ["### Table 2 of the paper, on our data", "kcal/mol and kcal/(mol Å), σ raw.", table_2(methods)]
        parts += ["### Table 3: influence of the number of samples, length 16", table_3(methods)]
    parts += ["### All metrics" if case == "pedot" else "", full(methods), LEGEND]
    parts += [f"![{alt}]({name})" for name, alt in drawn.items()]
    return [part for part in parts if part]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="with CASE/METHOD.json; README.md and figures go there too")
    folder = parser.parse_args(arguments).folder
    studies = load(folder)
    if not studies:
        raise SystemExit(f"{folder}: no results of study.py; run it first")
    notes = folder / "notes.md"
    absent = [TITLES[case] for case in TITLES if case not in studies]
    parts = ["# Domain shift: does σ grow where errors grow?"]
    parts += [notes.read_text(encoding="utf-8").strip()] if notes.exists() else []
    parts += [f"**Not run:** {'; '.join(absent)}."] if absent else []
    parts += [
        "## Growth of errors and of σ",
        "Root mean squares over force components, against those of the test sets inside the distribution; σ raw.",
        growth(studies),
        *(f"![{alt}]({name})" for name, alt in figures.growth(studies, folder).items()),
        "## Are frames from elsewhere noticed?",
        "ROC AUC of telling a frame of the set from one inside, by σ of the frame's atoms; 0.5 is chance. The largest σ rises with the "
        "number of atoms alone, so where molecules differ in size RMS σ is the fairer score.",
        detection(studies),
    ]
    for case, methods in studies.items():
        parts += study(case, methods, figures.of_study(case, methods, folder))
    parts += [
        "## To repeat",
        f"```\n{commands(studies)}\npython examples/domain_shift/tables.py results/domain-shift\n```",
    ]
    write_text(folder / "README.md", "\n\n".join(parts) + "\n")
    made = "; ".join(f"{case} ({', '.join(methods)})" for case, methods in studies.items())
    print(f"{folder / 'README.md'}: {made}")


SETTINGS = (
    ("burn_in", "steps"),
    ("burn_in", "noise_free"),
    ("burn_in", "batch_size"),
    ("cycles", "length"),
    ("cycles", "batch_size"),
)
"""That have changed, or could have, since results were made; a rival's burn-in is as long as a whole chain."""


def commands(studies: dict[str, Found]) -> str:
    """That gave these results."""
    lines = []
    for case, methods in studies.items():
        config = methods.get("bayes", next(iter(methods.values())))["settings"]
        values = [
            f"{part}.{name}={config[part][name]}" for part, name in SETTINGS if "bayes" in methods or name != "steps"
        ]
        steps = f"--seed {config['seed']} --set {' '.join(values)} precision={config['precision']}"
        lines.append(
            f"python examples/domain_shift/study.py {case} --device cuda --methods {' '.join(methods)} {steps}"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
