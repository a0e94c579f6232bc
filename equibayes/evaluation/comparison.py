"""Several methods on the same data: one table with the best value of each column marked, and the cost of each."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from equibayes.evaluation.columns import ABSENT, Column, select
from equibayes.evaluation.print_tables import Table

Values = dict[str, Any]
MARK = "*"
COLUMNS = select(
    "force_mae force_rmse force_mll force_crps force_auc force_coverage_68 force_coverage_95 energy_mae energy_mll"
)
STRESS = select("gpa.stress_mae gpa.stress_mll stress_auc stress_coverage_68")
LEGEND = (
    "F: force components, meV/Å; E: energies, meV; MLL: mean ln likelihood in eV and Å; ROC AUC: outliers (errors above 3 "
    "times the MAE of the method) found by σ; "
    "in 68 %: % of errors within the interval that should contain 68 %; S: six elements of the stress, GPa; * best of its "
    "column"
)


@dataclass(frozen=True)
class Row:
    """One method: its metrics (as of `tables.measure`) on one data set and its cost."""

    method: str
    values: Values
    networks: int
    steps: int
    seconds: float | None


def comparison_table(name: str, rows: Sequence[Row]) -> Table:
    """Methods as rows; equal values share the mark, and a column with fewer than two values has none."""
    body = [[row.method] for row in rows]
    columns = [*COLUMNS, *(STRESS if any(row.values.get("n_frames_with_stress") for row in rows) else ())]
    for column in columns:
        for cells, text in zip(body, _marked(column, [column.text(row.values) for row in rows])):
            cells.append(text)
    for cells, row in zip(body, rows):
        time = ABSENT if row.seconds is None else f"{row.seconds:.0f}"
        cells += [str(row.networks), str(row.steps), time]
    headings = ["method", *(column.title for column in columns), "networks", "steps each", "seconds"]
    return Table(name, headings, body)


def _marked(column: Column, shown: Sequence[str]) -> list[str]:
    """Numbers as text, with a mark at those that read the same as the best."""
    losses = {text: column.loss(float(text)) for text in shown if text != ABSENT}
    if sum(text != ABSENT for text in shown) < 2:
        return list(shown)
    best = min(losses.values())
    return [text if text == ABSENT else text + (MARK if losses[text] == best else " ") for text in shown]
