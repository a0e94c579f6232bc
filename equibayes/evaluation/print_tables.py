"""The metrics as tables: rich on a terminal, plain aligned text elsewhere.

Numbers are in meV and meV/Å first; then the columns of the paper's tables 2 to 6 in its units.  Data without any force
label are judged by their energies: columns of forces then give way to those of energies.
"""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from equibayes.evaluation.columns import Column, select

Values = dict[str, Any]


@dataclass(frozen=True)
class Table:
    """Headings and rows of text; the first `left` columns are aligned to the left."""

    title: str
    headings: list[str]
    rows: list[list[str]]
    left: int = 1

    def __str__(self) -> str:
        widths = [max(len(row[i]) for row in [self.headings, *self.rows]) for i in range(len(self.headings))]
        lines = [self.title]
        for row in [self.headings, *self.rows]:
            cells = [f"{c:<{w}}" if i < self.left else f"{c:>{w}}" for i, (c, w) in enumerate(zip(row, widths))]
            lines.append("  ".join(cells).rstrip())
        return "\n".join(lines)


PAPER_ACCURACY = select(
    "kcal_mol.force_mae kcal_mol.force_rmse kcal_mol.force_mll kcal_mol.energy_mae kcal_mol.energy_rmse "
    "kcal_mol.energy_mll"
)
PAPER_CALIBRATION = select(
    "force_auc force_outlier_share force_ece kcal_mol.force_nece energy_ece kcal_mol.energy_nece"
)
FIELD = select("force_mae force_rmse force_sharpness force_crps energy_mae per_atom.energy_mae energy_sharpness")
COVERAGE = select(
    "force_coverage_50 force_coverage_68 force_coverage_90 force_coverage_95 force_miscalibration_area force_ence "
    "force_spearman force_epistemic_share energy_coverage_68 energy_coverage_95"
)
ENERGY_FIELD = select("energy_mae per_atom.energy_mae energy_rmse energy_sharpness energy_crps energy_mll")
ENERGY_CALIBRATION = select("energy_auc energy_outlier_share energy_ece kcal_mol.energy_nece")
ENERGY_COVERAGE = select(
    "energy_coverage_50 energy_coverage_68 energy_coverage_90 energy_coverage_95 energy_miscalibration_area "
    "energy_ence energy_spearman energy_epistemic_share"
)
STRESS = select(
    "n_frames_with_stress gpa.stress_mae gpa.stress_rmse gpa.stress_sharpness gpa.stress_crps gpa.stress_mll"
)
STRESS_CALIBRATION = select(
    "stress_coverage_50 stress_coverage_68 stress_coverage_90 stress_coverage_95 stress_auc stress_outlier_share "
    "stress_miscalibration_area stress_ence stress_spearman stress_epistemic_share"
)
NOVELTY = select("novel_frame_share novel_atom_share novelty_auc per_atom.force_auc novelty_spearman")
VECTORS = select(
    "vector_mll vector_mll_independent vector_energy_score vector_coverage_50 vector_coverage_68 vector_coverage_90 "
    "vector_coverage_95"
)
SPECIES = select("n_atoms force_mae force_rmse force_sharpness force_coverage_68 force_coverage_95 force_auc")


def tables(metrics: Values) -> Iterator[Table]:
    """All tables, in the order in which they are read."""
    data = metrics["data"]
    rows = [([name, k], values) for name, by_k in data.items() for k, values in by_k.items()]
    given = metrics.get("threshold")
    limit = "3 times the MAE" if given is None else f"{1000 * given:.3g} meV/Å or meV"
    forces = any(values.get("n_atoms_with_forces", 1) for _, values in rows)
    titles = {
        "In meV and meV/Å: errors, root mean square σ, CRPS": FIELD if forces else ENERGY_FIELD,
        "In kcal/mol and kcal/(mol Å): accuracy and likelihood  (tables 2 to 4 of the paper)": PAPER_ACCURACY
        if forces
        else PAPER_ACCURACY[3:],
        f"Outliers (errors above {limit}, %) and calibration, kcal/mol  (tables 3, 5, 6)": PAPER_CALIBRATION
        if forces
        else ENERGY_CALIBRATION,
        "% of errors within the intervals that should contain 50 … 95 %; calibration; ranking by σ; "
        "epistemic % of σ²": COVERAGE if forces else ENERGY_COVERAGE,
    }
    for title, columns in titles.items():
        yield _table(title, ["data", "k"], rows, columns)
    stressed = [(words, values) for words, values in rows if values.get("n_frames_with_stress")]
    if stressed:
        yield _table("Stress in GPa, six elements: errors, root mean square σ, CRPS", ["data", "k"], stressed, STRESS)
        inside = "Stress: % of errors within the intervals that should contain 50 … 95 %; outliers (above 3 times the MAE, %)"
        yield _table(f"{inside}; calibration; epistemic % of σ²", ["data", "k"], stressed, STRESS_CALIBRATION)
    if any(values.get("novel_frame_share") is not None for _, values in rows):
        title = "Novelty: % beyond what was learned; finding atoms with large errors by novelty, and by σ"
        yield _table(title, ["data", "k"], rows, NOVELTY)
    vectors = [(words, values) for words, values in rows if "vector_mll" in values]
    if vectors:
        title = (
            "Covariances of forces: ln p per force vector of a frame; % of force errors within the ellipsoids of atoms"
        )
        yield _table(title, ["data", "k"], vectors, VECTORS)
    species = [([name, s], each) for name, by_k in data.items() for s, each in _largest(by_k)["per_species"].items()]
    if forces and len(species) > len(data):
        yield _table("By species, meV/Å, largest k", ["data", "species"], species, SPECIES)


def notes(metrics: Values) -> list[str]:
    """About training frames and why metrics are missing, one line per reason and data set."""
    lines = []
    for name, by_k in metrics["data"].items():
        if note := _largest(by_k).get("note"):
            lines.append(f"{name}: {note}")
        for reason, keys in by_reason(_largest(by_k)["reasons"]).items():
            shown = ", ".join(keys) if len(keys) < 4 else f"{', '.join(keys[:3])} and {len(keys) - 3} more"
            lines.append(f"{name}: no {shown}: {reason}")
    return lines


def by_reason(reasons: dict[str, str]) -> dict[str, list[str]]:
    """Metrics that have no value, by the reason."""
    why: dict[str, list[str]] = {}
    for key, reason in reasons.items():
        why.setdefault(reason, []).append(key)
    return why


def print_tables(metrics: Values) -> None:
    for number, table in enumerate(tables(metrics)):
        if number and not sys.stdout.isatty():
            print()
        print_table(table)
    for line in notes(metrics):
        print(f"note: {line}")


def print_table(table: Table) -> None:
    if not sys.stdout.isatty():
        print(table)
        return
    from rich.console import Console
    from rich.table import Table as RichTable
    from rich.text import Text

    rich = RichTable(title=Text(table.title), title_justify="left", pad_edge=False)
    for i, heading in enumerate(table.headings):
        rich.add_column(Text(heading), justify="left" if i < table.left else "right")
    for row in table.rows:
        rich.add_row(*map(Text, row))  # Text: brackets in a file name are not markup
    Console().print(rich)


def _table(title: str, first: list[str], rows: list[tuple[list[str], Values]], columns: list[Column]) -> Table:
    body = [[*words, *(column.text(values) for column in columns)] for words, values in rows]
    return Table(title, [*first, *(column.title for column in columns)], body)


def _largest(by_k: dict[str, Values]) -> Values:
    return by_k[max(by_k, key=int)]
