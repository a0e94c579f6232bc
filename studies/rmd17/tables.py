"""Tables and figures of the rMD17 study, of whatever results are there.

    python examples/rmd17/tables.py results/rmd17        README.md and PNG files in that folder

Tables 4, 5, 6 and appendix D of the paper, the regime of few data, the goals, costs; figures 4 and 5.  A file notes.md in the folder,
written by hand, is put in front of them.
"""

import argparse
import json
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from collected import FEW, METHODS, Case, absent, read_cases
from figures import draw_all
from goals import PUBLISHED, goals

from equibayes.files import write_text

Cells = list[str]
LOW, HIGH = min, max
INTRODUCTION = """Made by `python examples/rmd17/tables.py` from the JSON files beside it, which
`examples/rmd17/study.py` wrote; they hold settings, seed, commit, hardware and time. Learned from 1000 frames of the
official split `train_01`, of which 30 are held back; tested on every frame of the file that is not in it. All methods
have the same network and frames, and as many steps a network as one of our chains (the one chain alone goes on
through its cycles). k = 8 networks, samples or masks; `point` is one network. Recalibrated: σ rescaled on the
held-back frames (`equibayes calibrate`). F: force components, E: energies. **Bold**: best of a molecule. As the
results say:"""
ABOUT_LIKELIHOOD = """meV/Å and meV. MLL: mean ln likelihood with errors in eV and Å (in kcal/mol, the paper's unit,
it is 3.14 lower); higher is better."""
ABOUT_OUTLIERS = """An outlier is a force component with an error above 1 kcal/(mol Å) = 43.4 meV/Å (–: there is
none), or above three times the method's own MAE, which every method has. A constant σ finds nothing: 0.5."""
ABOUT_CALIBRATION = """NECE as in the paper's appendix A.5: bins of 0.01 kcal/(mol Å) or kcal/mol, in the inverse of
that unit; area: miscalibration area, 0 to 0.5; in 68 %: share of errors inside the interval that should hold 68 % of
them; σ-F: root mean square of σ, raw."""
ABOUT_COSTS = """Seconds are of wall time on a device that other runs may have shared, compilation included. R-hat and
ESS of predicted forces over the cycles (1 means that chains agree); rivals have no cycles."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="holds MOLECULE/METHOD.json as study.py writes them")
    folder = parser.parse_args().folder
    cases = read_cases(folder) if folder.is_dir() else []
    if not cases:
        raise SystemExit(f"{folder}: holds no results; run study.py first with --output {folder}")
    pictures = draw_all(cases, folder)
    write_text(folder / "README.md", "\n".join(page(cases, pictures, folder)) + "\n")
    print(f"{folder / 'README.md'} and {', '.join(pictures)}")


def page(cases: Sequence[Case], pictures: dict[str, str], folder: Path) -> Iterator[str]:
    """The lines of README.md."""
    full, few = [c for c in cases if c.few is None], [c for c in cases if c.few is not None]
    yield "# The paper's study on revised MD17"
    notes = folder / "notes.md"
    if notes.exists():
        yield from ("", notes.read_text(encoding="utf-8").strip())
    yield ""
    yield from paragraph(INTRODUCTION)
    yield ""
    yield from settings(full or few)
    missing = list(absent(list(cases)))
    if missing:
        yield ""
        yield f"**Missing so far**: {'; '.join(missing)}."
    yield from section("Goals", goal_lines(full))
    yield from section("Table 4: accuracy and likelihood", accuracy(full))
    yield from section("Table 5: outliers found by σ (ROC AUC)", outliers(full), picture=pictures.get("roc"))
    yield from section("Table 6: calibration", calibration(full), picture=pictures.get("calibration"))
    if "density" in pictures:
        yield from section("Figure 5: densities of force errors", [], picture=pictures["density"])
    yield from section("Appendix D: one sample, and NequIP", appendix_d(full))
    yield from section("By number of samples", by_k(full))
    for count in sorted({case.few for case in few if case.few} | set(FEW)):
        own = [case for case in few if case.few == count]
        title = f"Few data: {count} frames to learn from"
        if not own:
            yield from section(title, ["Not there yet."])
            continue
        yield from section(title, [*accuracy(own), "", *outliers(own), "", *calibration(own)])
    if "roc-few" in pictures:
        yield from section("Few data: figures", [], picture=f"{pictures['roc-few']}\n{pictures['calibration-few']}")
    yield from section("Cost and convergence", costs(cases), picture=pictures.get("history"))
    yield from section("Half precision", half_precision(cases, folder))
    yield from section("Provenance", provenance(cases))


def section(title: str, lines: Sequence[str] | Iterator[str], picture: str | None = None) -> Iterator[str]:
    body = list(lines)
    if not body and not picture:
        return
    yield from ("", f"## {title}")
    for part in (body, [picture] if picture else []):
        if part:
            yield from ("", *part)


def accuracy(cases: Sequence[Case]) -> Iterator[str]:
    """Errors in meV and meV/Å; MLL in eV and Å."""
    columns = [
        Column("MAE-F", "force_mae", 1e3, ".2f", LOW),
        Column("RMSE-F", "force_rmse", 1e3, ".2f", LOW),
        Column("MLL-F", "force_mll", 1, ".3f", HIGH),
        Column("recal. MLL-F", "force_mll", 1, ".3f", HIGH, "recalibrated"),
        Column("MAE-E", "energy_mae", 1e3, ".2f", LOW),
        Column("RMSE-E", "energy_rmse", 1e3, ".2f", LOW),
        Column("MLL-E", "energy_mll", 1, ".3f", HIGH),
        Column("recal. MLL-E", "energy_mll", 1, ".3f", HIGH, "recalibrated"),
    ]
    yield from by_method(cases, columns)
    yield ""
    yield from paragraph(ABOUT_LIKELIHOOD)


def outliers(cases: Sequence[Case]) -> Iterator[str]:
    columns = [
        Column("errors above 1 kcal/(mol Å), %", "force_outlier_share", 100, ".3f", None),
        Column("AUC", "force_auc", 1, ".3f", HIGH),
        Column("recal. AUC", "force_auc", 1, ".3f", HIGH, "recalibrated"),
        Column("AUC above 3 MAE", "force_auc_relative", 1, ".3f", HIGH),
        Column("recal. AUC above 3 MAE", "force_auc_relative", 1, ".3f", HIGH, "recalibrated"),
        Column("rank correlation of σ and error", "force_spearman", 1, ".3f", HIGH),
    ]
    yield from by_method(cases, columns)
    yield ""
    yield from paragraph(ABOUT_OUTLIERS)


def calibration(cases: Sequence[Case]) -> Iterator[str]:
    columns = [
        Column("NECE-F", "kcal_mol.force_nece", 1, ".3f", LOW),
        Column("recal. NECE-F", "kcal_mol.force_nece", 1, ".3f", LOW, "recalibrated"),
        Column("area-F", "force_miscalibration_area", 1, ".4f", LOW),
        Column("recal. area-F", "force_miscalibration_area", 1, ".4f", LOW, "recalibrated"),
        Column("in 68 %", "force_coverage_68", 100, ".1f", None),
        Column("recal. in 68 %", "force_coverage_68", 100, ".1f", None, "recalibrated"),
        Column("in 95 %", "force_coverage_95", 100, ".1f", None),
        Column("recal. in 95 %", "force_coverage_95", 100, ".1f", None, "recalibrated"),
        Column("σ-F, meV/Å", "force_sharpness", 1e3, ".2f", None),
        Column("NECE-E", "kcal_mol.energy_nece", 1, ".3f", LOW),
        Column("recal. NECE-E", "kcal_mol.energy_nece", 1, ".3f", LOW, "recalibrated"),
        Column("area-E", "energy_miscalibration_area", 1, ".3f", LOW),
        Column("recal. area-E", "energy_miscalibration_area", 1, ".3f", LOW, "recalibrated"),
    ]
    yield from by_method(cases, columns)
    yield ""
    yield from paragraph(ABOUT_CALIBRATION)


def appendix_d(cases: Sequence[Case]) -> Iterator[str]:
    """Forces and energies of single networks beside what was published."""
    rows = []
    for case in cases:
        error, energy = (
            [number(case.value(m, key, k=1), 1e3, ".2f") for m in ("bayes", "single", "paper-chain", "point")]
            for key in ("force_mae", "energy_mae")
        )
        rows.append([case.name, *error, number(PUBLISHED.get(case.molecule), 1, ".1f"), *energy])
    heads = ["8 chains, k = 1", "one chain, k = 1", "the paper's steps, k = 1", "point NequIP"]
    yield from markdown(["", *(f"F: {h}" for h in heads), "F: published NequIP", *(f"E: {h}" for h in heads)], rows)
    yield ""
    yield "MAE in meV/Å and meV."


def by_k(cases: Sequence[Case]) -> Iterator[str]:
    rows = []
    for case in cases:
        for method in ("bayes", "single", "paper-chain", "ensemble", "dropout"):
            for key, scale, form, words in (
                ("force_mae", 1e3, ".2f", "MAE-F, meV/Å"),
                ("force_mll", 1, ".3f", "MLL-F"),
                ("force_miscalibration_area", 1, ".4f", "area-F"),
            ):
                values = [case.value(method, key, k=k) for k in (1, 2, 4, 8)]
                if any(value is not None for value in values):
                    rows.append([case.name, METHODS[method], words, *(number(v, scale, form) for v in values)])
    yield from markdown(["", "method", "raw", "k = 1", "2", "4", "8"], rows)


def goal_lines(cases: Sequence[Case]) -> Iterator[str]:
    found = [goal for case in cases for goal in goals(case)]
    if not found:
        return
    judged = [goal for goal in found if goal.met is not None]
    yield f"{sum(bool(goal.met) for goal in judged)} of {len(judged)} goals that can be judged are met."
    yield ""
    yield from markdown(["", "goal", "measured", "wanted", "", "by"], [goal.cells() for goal in found])


def costs(cases: Sequence[Case]) -> Iterator[str]:
    rows = []
    for case in cases:
        for method, found in case.results.items():
            verdict = found["verdict"]
            rows.append([
                case.name, METHODS[method], str(found["networks"]), str(found["steps"]), number(found["seconds"], 1, ".0f"),
                number(found["prediction_seconds"], 1, ".1f"), number(verdict.get("r_hat_forces"), 1, ".2f"),
                number(verdict.get("ess_forces"), 1, ".0f"), number(verdict.get("kinetic_temperature"), 1, ".2f"),
                str(len(verdict.get("failed_chains", []))), found["recalibration"]["forces"]["method"],
            ])  # fmt: skip
    heads = [
        "networks",
        "steps each",
        "seconds",
        "to predict, s",
        "R-hat",
        "ESS",
        "temperature",
        "failed chains",
        "recalibration of forces",
    ]
    yield from markdown(["", "method", *heads], rows)
    yield ""
    yield from paragraph(ABOUT_COSTS)


def half_precision(cases: Sequence[Case], folder: Path) -> Iterator[str]:
    rows = []
    for case in cases:
        path = folder / case.name / "half-precision.json"
        if path.exists():
            own: dict[str, Any] = json.loads(path.read_text())
            rows.append([
                case.name, f"`{case.name}/{own['file']}`", f"{own['bytes'] / 1e6:.1f}", number(own["force_change_rms"], 1e3, ".4f"),
                number(own["force_change_max"], 1e3, ".3f"), number(own["sigma_relative_change_max"], 100, ".2f"),
                f"{1e3 * own['force_mae_before']:.3f} → {1e3 * own['force_mae_after']:.3f}",
            ])  # fmt: skip
    if rows:
        yield from markdown(
            ["", "file", "MB", "RMS change of forces, meV/Å", "largest", "largest change of σ, %", "MAE-F, meV/Å"], rows
        )


def settings(cases: Sequence[Case]) -> Iterator[str]:
    """What the results say of how they were made, in case it is not what the first paragraph says."""
    found = [result for case in cases for result in case.results.values()]
    for words, value in (
        ("frames learned from / held back", lambda r: f"{r['frames']['learned']} / {r['frames']['held_back']}"),
        ("test frames", lambda r: f"{r['frames']['test']} ({r['molecule']})"),
        (
            "network",
            lambda r: "{num_layers} layers of {num_features} features, l ≤ {l_max}".format(**r["config"]["network"]),
        ),
        ("batch", lambda r: str(r["config"]["burn_in"]["batch_size"])),
        ("seed", lambda r: str(r["seed"])),
    ):
        yield f"- {words}: {listed(map(value, found))}"


def provenance(cases: Sequence[Case]) -> Iterator[str]:
    found = [result for case in cases for result in case.results.values()]
    for words, value in (
        ("code", lambda r: r["commit"]),
        ("hardware", lambda r: r["hardware"].get("gpu") if r["device"].startswith("cuda") else r["hardware"]["cpu"]),
        ("torch", lambda r: r["versions"]["torch"]),
        ("precision of matrix products on a GPU", lambda r: r["precision"]),
    ):
        yield f"- {words}: {listed(map(value, found))}"
    yield f"- tested {min(result['time'] for result in found)} to {max(result['time'] for result in found)}"


def listed(values: Iterable[str]) -> str:
    return ", ".join(sorted(set(values)))


def paragraph(words: str) -> list[str]:
    return textwrap.wrap(words, 150)


class Column:
    """How a metric is found, written and judged."""

    def __init__(
        self,
        heading: str,
        key: str,
        scale: float,
        form: str,
        best: Callable[..., float] | None,
        part: str = "raw",
    ) -> None:
        self.heading, self.key, self.scale, self.form, self.best, self.part = heading, key, scale, form, best, part

    def cells(self, case: Case, methods: Sequence[str]) -> Cells:
        """One for each method; what reads the same as the best is bold."""
        texts = [number(case.value(method, self.key, self.part), self.scale, self.form) for method in methods]
        known = [float(text) for text in texts if text != "–"]
        if self.best is None or len(known) < 2:
            return texts
        return [f"**{text}**" if text != "–" and float(text) == self.best(known) else text for text in texts]


def by_method(cases: Sequence[Case], columns: Sequence[Column]) -> Iterator[str]:
    """A row a molecule and method."""
    rows: list[Cells] = []
    for case in cases:
        methods = list(case.results)
        table = [column.cells(case, methods) for column in columns]
        rows += [[case.name, METHODS[method], *row] for method, row in zip(methods, zip(*table))]
        rows += [[case.name, METHODS[method], "missing", *["" for _ in columns[1:]]] for method in case.missing]
    yield from markdown(["", "method", *(column.heading for column in columns)], rows)


def markdown(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    if not rows:
        yield "Nothing there yet."
        return
    yield f"| {' | '.join(headings)} |"
    yield f"|{'---|' * len(headings)}"
    for row in rows:
        yield f"| {' | '.join(row)} |"


def number(value: float | None, scale: float, form: str) -> str:
    return "–" if value is None else format(scale * value, form)


if __name__ == "__main__":
    main()
