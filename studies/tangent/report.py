"""Tables and figure of the contest, from the files that `python -m studies.tangent` wrote.

    python -m studies.tangent.report results/tangent

Prints the tables of README.md and writes contest.png.  Numbers are means over seeds.
"""

import argparse
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from studies.shared.options import parser_of
from studies.shared.results import read_json, save_figure
from studies.shared.tables import markdown, number

ENSEMBLES = ("ensemble-4", "ensemble-8")
NAMES = {
    "posterior": "the chains",
    "refined": "refined",
    "last-layer": "last layer alone",
    "ensemble-4": "ensemble of 4",
    "ensemble-8": "ensemble of 8",
    "ensemble-refined": "ensemble, refined",
    "dropout": "dropout",
    "point": "point",
    "llpr": "LLPR on point",
    "gp": "Gaussian process",
}
COLUMNS = {
    "force MAE": ("mae", ".1f"),
    "RMSE": ("rmse", ".1f"),
    "energy MAE": ("energy_mae", ".1f"),
    "ln p": ("ln_p", ".2f"),
    "rescaled": ("rescaled_ln_p", ".2f"),
    "AUC": ("auc", ".3f"),
    "rank": ("rank", ".2f"),
    "in 68 %": ("in_68", ".0f"),
    "in 95 %": ("in_95", ".0f"),
    "ms per frame": ("prediction_ms", ".1f"),
}


@dataclass(frozen=True)
class Setting:
    """One system, number of frames and way to train, tested on one set of frames; methods: means over seeds."""

    title: str
    test: str
    in_distribution: bool
    seeds: int
    methods: dict[str, dict[str, float]]

    def best(self, key: str, largest: bool = False) -> float:
        """Of the ensembles, for one quantity."""
        found = [self.methods[name][key] for name in ENSEMBLES if name in self.methods]
        return max(found) if largest else min(found)


def settings(folder: Path) -> list[Setting]:
    """All settings of the files in a folder, the largest number of seeds first."""
    files: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for path in sorted(folder.glob("*-*-*.json")):
        found = read_json(path)
        if not {"refined", *ENSEMBLES} <= set(found["methods"]):
            continue
        files[title_of(found)].append(found)
    return [
        _setting(title, test, place == 0, runs)
        for title, runs in sorted(files.items(), key=lambda each: -len(each[1]))
        for place, test in enumerate(runs[0]["methods"]["refined"]["tests"])
    ]


def title_of(found: dict[str, Any]) -> str:
    network = "" if found["network"] == "small" else f", {found['network']}"
    mass = "" if found["mass"] == "matrix" else f", {found['mass']} mass"
    return f"{found['system']} {found['frames']}, {found['chains']} × {found['steps']}{network}{mass}"


def _setting(title: str, test: str, first: bool, runs: list[dict[str, Any]]) -> Setting:
    methods = {}
    for name in runs[0]["methods"]:
        own = [run["methods"][name] for run in runs if name in run["methods"]]
        keys = own[0]["tests"][test]
        means = {key: _mean([each["tests"][test][key] for each in own]) for key in keys}
        methods[name] = means | {"seconds": _mean([each["seconds"] for each in own])}
    return Setting(title, test, first, len(runs), methods)


def _mean(values: list[float | None]) -> float:
    return float(np.mean([np.nan if value is None else value for value in values]))


def goals(found: list[Setting]) -> list[str]:
    """Refined against the best ensemble, which may be another one in each column."""
    headings = [
        "trained on", "tested on", "seeds", "s", "force MAE: best ensemble", "refined", "change",
        "rescaled ln p: best ensemble", "refined", "raw ln p: best ensemble", "refined",
        "in 68 %: ensembles", "refined", "AUC: best ensemble", "refined",
    ]  # fmt: skip
    rows = []
    for each in found:
        own = each.methods["refined"]
        covered = " / ".join(number(each.methods[name]["in_68"], ".0f") for name in ENSEMBLES)
        rows.append([
            each.title, "unseen" if each.in_distribution else each.test, str(each.seeds), number(own["seconds"], ".0f"),
            number(each.best("mae"), ".1f"), number(own["mae"], ".1f"),
            number(100 * (own["mae"] / each.best("mae") - 1), "+.0f") + " %",
            number(each.best("rescaled_ln_p", True), ".2f"), number(own["rescaled_ln_p"], ".2f"),
            number(each.best("ln_p", True), ".2f"), number(own["ln_p"], ".2f"),
            covered, number(own["in_68"], ".0f"),
            number(each.best("auc", True), ".3f"), number(own["auc"], ".3f"),
        ])  # fmt: skip
    return markdown(headings, rows)


def every_method(setting: Setting) -> list[str]:
    """All methods on one test set."""
    rows = [
        [
            NAMES.get(name, name),
            number(numbers["seconds"], ".0f"),
            *(number(numbers[key], form) for key, form in COLUMNS.values()),
        ]
        for name, numbers in setting.methods.items()
    ]
    return markdown(["", "s", *COLUMNS], rows)


def kept(found: list[Setting]) -> list[str]:
    """What the last layer alone keeps of the gain, in error and in ln p, and of the time of refining."""
    rows = []
    for each in found:
        if "last-layer" not in each.methods:
            continue
        plain, whole, last = (each.methods[name] for name in ("posterior", "refined", "last-layer"))
        shares = [(last[key] - plain[key]) / (whole[key] - plain[key]) for key in ("mae", "ln_p", "energy_mae")]
        times = [number(one["seconds"] - plain["seconds"], ".1f") for one in (whole, last)]
        tested = "unseen" if each.in_distribution else each.test
        rows.append([each.title, tested, *(number(100 * share, ".0f") + " %" for share in shares), *times])
    return markdown(
        ["trained on", "tested on", "of force MAE", "of ln p", "of energy MAE", "s: all weights", "s: last layer"], rows
    )


def draw(found: list[Setting], path: Path) -> None:
    """Errors relative to the best ensemble, differences of rescaled ln p, and coverage."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 1.4 + 0.32 * len(found)), layout="constrained")
    axes = figure.subplots(1, 3, sharey=True)
    places = np.arange(len(found))[::-1]
    styles = {"refined": "o", "last-layer": "s", "posterior": "x", "ensemble-4": "<", "ensemble-8": ">"}
    for name, marker in styles.items():
        own = [(place, each) for place, each in zip(places, found) if name in each.methods]
        at = [place for place, _ in own]
        error = [each.methods[name]["mae"] / each.best("mae") for _, each in own]
        density = [each.methods[name]["rescaled_ln_p"] - each.best("rescaled_ln_p", True) for _, each in own]
        covered = [each.methods[name]["in_68"] for _, each in own]
        for axis, values in zip(axes, (error, density, covered)):
            axis.plot(values, at, marker, label=NAMES[name], fillstyle="full" if name == "refined" else "none")
    for axis, title, line in zip(
        axes,
        (
            "force MAE over that of the best ensemble",
            "rescaled ln p less that of the best",
            "% in the raw 68 % interval",
        ),
        (1.0, 0.0, 68.3),
    ):
        axis.set_xlabel(title)
        axis.axvline(line, color="0.7", linewidth=1)
    axes[2].axvspan(60, 76, color="0.93")
    names = [each.title + ("" if each.in_distribution else f" → {each.test}") for each in found]
    axes[0].set_yticks(places, names)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=len(styles), fontsize=8)
    save_figure(figure, path)


def main() -> None:
    parser: argparse.ArgumentParser = parser_of(__doc__)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    found = settings(folder)
    print("\n".join(["## Goals", "", *goals(found), "", "## The last layer alone", "", *kept(found)]))
    for each in found:
        tested = "unseen frames" if each.in_distribution else each.test
        print("\n".join(["", f"### {each.title}, tested on {tested}", "", *every_method(each)]))
    draw(found, folder / "contest.png")


if __name__ == "__main__":
    main()
