"""The metrics as tables: rich on a terminal, plain aligned text elsewhere.

The first two hold the columns of the paper's tables 2 to 6 in its unit; the others are in meV and name what the field uses besides.
"""

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

Values = dict[str, Any]
Column = tuple[str, Callable[[Values], Any], str]
"""Heading, how to find the value in the metrics of one data set and k, format."""


@dataclass(frozen=True)
class Table:
    """Headings and rows of text; the first `left` columns are words."""

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


def _of(key: str, scale: float = 1.0, part: str | None = None) -> Callable[[Values], Any]:
    def find(values: Values) -> Any:
        value = (values if part is None else values[part])[key]
        return None if value is None else scale * value

    return find


def _kcal(key: str) -> Callable[[Values], Any]:
    return _of(key, part="kcal_mol")


PAPER_ACCURACY: list[Column] = [
    ("MAE-F", _kcal("force_mae"), ".3f"),
    ("RMSE-F", _kcal("force_rmse"), ".3f"),
    ("MLL-F", _kcal("force_mll"), ".2f"),
    ("MAE-E", _kcal("energy_mae"), ".3f"),
    ("RMSE-E", _kcal("energy_rmse"), ".3f"),
    ("MLL-E", _kcal("energy_mll"), ".2f"),
]
PAPER_CALIBRATION: list[Column] = [
    ("ROC AUC", _of("force_auc"), ".3f"),
    ("outliers", _of("force_outlier_share", 100), ".2f"),
    ("ECE-F", _of("force_ece"), ".5f"),
    ("NECE-F", _kcal("force_nece"), ".3f"),
    ("ECE-E", _of("energy_ece"), ".5f"),
    ("NECE-E", _kcal("energy_nece"), ".3f"),
]
FIELD: list[Column] = [
    ("MAE-F", _of("force_mae", 1e3), ".1f"),
    ("RMSE-F", _of("force_rmse", 1e3), ".1f"),
    ("σ-F", _of("force_sharpness", 1e3), ".1f"),
    ("CRPS-F", _of("force_crps", 1e3), ".1f"),
    ("MAE-E", _of("energy_mae", 1e3), ".1f"),
    ("/atom", _of("energy_mae", 1e3, "per_atom"), ".2f"),
    ("σ-E", _of("energy_sharpness", 1e3), ".1f"),
]
COVERAGE: list[Column] = [
    *((f"{level} %", _of(f"force_coverage_{level}", 100), ".1f") for level in (50, 68, 90, 95)),
    ("area", _of("force_miscalibration_area"), ".3f"),
    ("ENCE", _of("force_ence"), ".3f"),
    ("Spearman", _of("force_spearman"), ".3f"),
    ("epistemic", _of("force_epistemic_share", 100), ".0f"),
    ("E: 68 %", _of("energy_coverage_68", 100), ".0f"),
    ("E: 95 %", _of("energy_coverage_95", 100), ".0f"),
]
SPECIES: list[Column] = [
    ("atoms", _of("n_atoms"), ".0f"),
    ("MAE-F", _of("force_mae", 1e3), ".1f"),
    ("RMSE-F", _of("force_rmse", 1e3), ".1f"),
    ("σ-F", _of("force_sharpness", 1e3), ".1f"),
    ("68 %", _of("force_coverage_68", 100), ".1f"),
    ("95 %", _of("force_coverage_95", 100), ".1f"),
    ("ROC AUC", _of("force_auc"), ".3f"),
]


def tables(metrics: Values) -> Iterator[Table]:
    """All tables, in the order in which they are read."""
    data = metrics["data"]
    rows = [([name, k], values) for name, by_k in data.items() for k, values in by_k.items()]
    first = ["data", "k"]
    threshold = f"{1000 * metrics['threshold']:.3g} meV/Å"
    yield _table(
        "Accuracy and likelihood, kcal/mol and kcal/(mol Å)  (tables 2 to 4 of the paper)", first, rows, PAPER_ACCURACY
    )
    yield _table(
        f"Outliers (errors above {threshold}, % of components) and calibration, kcal/mol  (tables 3, 5, 6)",
        first,
        rows,
        PAPER_CALIBRATION,
    )
    yield _table("In meV and meV/Å: errors, root mean square σ, CRPS", first, rows, FIELD)
    yield _table(
        "Force components within the intervals that should hold 50 … 95 %; calibration; ranking by σ; epistemic % of σ²",
        first,
        rows,
        COVERAGE,
    )
    species = [([name, s], each) for name, by_k in data.items() for s, each in _largest(by_k)["per_species"].items()]
    if len(species) > len(data):
        yield _table("By species, meV/Å, largest k", ["data", "species"], species, SPECIES)


def notes(metrics: Values) -> list[str]:
    """Why metrics are missing, one line a reason and data set."""
    lines = []
    for name, by_k in metrics["data"].items():
        why: dict[str, list[str]] = {}
        for key, reason in _largest(by_k)["reasons"].items():
            why.setdefault(reason, []).append(key)
        for reason, keys in why.items():
            shown = ", ".join(keys) if len(keys) < 4 else f"{', '.join(keys[:3])} and {len(keys) - 3} more"
            lines.append(f"{name}: no {shown}: {reason}")
    return lines


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
        rich.add_row(*map(Text, row))  # Text: brackets in a file name are no markup
    Console().print(rich)


def _table(title: str, first: list[str], rows: list[tuple[list[str], Values]], columns: list[Column]) -> Table:
    body = [[*words, *(_text(find(values), form) for _, find, form in columns)] for words, values in rows]
    return Table(title, [*first, *(heading for heading, _, _ in columns)], body)


def _text(value: Any, form: str) -> str:
    return "–" if value is None else format(value, form)


def _largest(by_k: dict[str, Values]) -> Values:
    return by_k[max(by_k, key=int)]
