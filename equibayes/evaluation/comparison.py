"""Several methods on the same data: one table, the winner of each column marked, with what each row cost."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from equibayes.evaluation.print_tables import Table

Values = dict[str, Any]
MARK = "*"


@dataclass(frozen=True)
class Column:
    """How to find a number among the metrics, how to write it, and how much worse than the best it is."""

    heading: str
    key: str
    scale: float
    form: str
    loss: Callable[[float], float]


def _low(value: float) -> float:
    return value


def _high(value: float) -> float:
    return -value


def _near(target: float) -> Callable[[float], float]:
    return lambda value: abs(value - target)


COLUMNS = (
    Column("MAE-F", "force_mae", 1e3, ".1f", _low),
    Column("RMSE-F", "force_rmse", 1e3, ".1f", _low),
    Column("MLL-F", "force_mll", 1, ".3f", _high),
    Column("CRPS-F", "force_crps", 1e3, ".1f", _low),
    Column("AUC", "force_auc", 1, ".3f", _high),
    Column("in 68 %", "force_coverage_68", 100, ".1f", _near(68)),
    Column("in 95 %", "force_coverage_95", 100, ".1f", _near(95)),
    Column("MAE-E", "energy_mae", 1e3, ".1f", _low),
    Column("MLL-E", "energy_mll", 1, ".3f", _high),
)
LEGEND = (
    "F: force components, meV/Å; E: energies, meV; MLL: mean ln likelihood in eV and Å; AUC: outliers found by σ; in 68 %: share of "
    "errors within the interval that should hold 68 %; * best of its column"
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
    """Methods as rows; a column with no value anywhere has no winner, equals share it."""
    body = [[row.method] for row in rows]
    for column in COLUMNS:
        for cells, text in zip(body, _marked(column, [row.values.get(column.key) for row in rows])):
            cells.append(text)
    for cells, row in zip(body, rows):
        time = "–" if row.seconds is None else f"{row.seconds:.0f}"
        cells += [str(row.networks), str(row.steps), time]
    headings = ["method", *(c.heading for c in COLUMNS), "networks", "steps each", "seconds"]
    return Table(f"{name}", headings, body)


def _marked(column: Column, values: Sequence[float | None]) -> list[str]:
    """Numbers as text, with a mark at those that read the same as the best."""
    shown = [None if value is None else format(column.scale * value, column.form) for value in values]
    losses = [column.loss(float(text)) for text in shown if text is not None]
    if len(losses) < 2:
        return [text or "–" for text in shown]
    return [
        "–" if text is None else text + (MARK if column.loss(float(text)) == min(losses) else " ") for text in shown
    ]
