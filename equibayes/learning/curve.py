"""Error and σ against the number of labels: a printed table, a csv file, and a figure."""

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from equibayes.errors import InputError
from equibayes.evaluation.print_tables import Table
from equibayes.files import write_text
from equibayes.learning.rounds import finished_rounds

Row = dict[str, Any]
_MEV = (
    ("force_mae", "MAE-F"),
    ("force_rmse", "RMSE-F"),
    ("force_sigma", "σ-F"),
    ("energy_mae", "MAE-E"),
    ("left_sigma", "σ left"),
    ("left_largest", "largest"),
)


def rows_of(folder: str | Path) -> list[Row]:
    """One row per finished round: counts, and numbers in eV and eV/Å (None if there is none)."""
    rows = []
    for each in finished_rounds(Path(folder)):
        measured, survey = each.note("measured") or {}, each.note("survey") or {}
        rows.append(
            {
                "round": each.number,
                "labels": measured["labels"],
                "asked": measured["asked"],
                **{name: measured.get(name) for name in ("force_mae", "force_rmse", "force_sigma", "energy_mae")},
                "left_sigma": survey.get("sigma_rms"),
                "left_largest": survey.get("sigma_largest"),
                "candidates": survey.get("states", {}).get("candidate"),
            }
        )
    return rows


def curve_table(rows: Sequence[Row], title: str) -> Table:
    """The table, in meV and meV/Å."""
    headings = ["round", "labels", *(word for _, word in _MEV), "candidates"]
    lines = [
        [
            str(row["round"]),
            str(row["labels"]),
            *("–" if row[name] is None else f"{1e3 * row[name]:.1f}" for name, _ in _MEV),
            "–" if row["candidates"] is None else str(row["candidates"]),
        ]
        for row in rows
    ]
    return Table(title, headings, lines, left=0)


LEGEND = (
    "meV and meV/Å; F, E: forces and energies of the test set; σ-F: RMS of its predicted σ; σ left, largest: RMS "
    "over force components, and the largest per atom, of structures that could still be labelled"
)


def write_curve(folder: str | Path, others: Mapping[str, str | Path] | None = None, name: str = "this run") -> None:
    """Write learning.csv and learning.svg in `folder`; `others` are folders of other runs to compare with, by name."""
    folder = Path(folder)
    rows = rows_of(folder)
    if not rows:
        return
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_text(folder / "learning.csv", text.getvalue())
    curves = {name: rows}
    for other, place in (others or {}).items():
        curves[other] = rows_of(place)
        if not curves[other]:
            raise InputError(f"{place}: contains no finished round to compare with; name another folder")
    draw_curves(curves, folder / "learning.svg")


def draw_curves(curves: Mapping[str, Sequence[Row]], output: str | Path) -> None:
    """SVG or PNG, by the suffix of `output`: errors above, predicted σ below."""
    from equibayes.evaluation.figures.drawing import save_figure
    from equibayes.evaluation.figures.style import figure, series, styled

    with styled():
        drawn, axes = figure(6.4, 5.2, rows=2, sharex=True)
        top, bottom = axes[:, 0]
        for index, (name, rows) in enumerate(curves.items()):
            for axis, key, words in ((top, "force_mae", name), (bottom, "force_sigma", f"{name}: test set")):
                _line(axis, rows, key, words, marker="o", **series(index))
            shade = {**series(index), "linestyle": ":"}
            _line(bottom, rows, "left_sigma", f"{name}: unlabelled", marker=".", **shade)
        top.set(ylabel="force error (MAE), meV/Å")
        bottom.set(ylabel="σ of forces (RMS), meV/Å", xlabel="labels")
        for axis in (top, bottom):
            if axis.lines:
                axis.set_ylim(0, 1.1 * max(max(line.get_ydata()) for line in axis.lines))
                axis.legend()
        save_figure(drawn, output)


def _line(axis: Any, rows: Sequence[Row], key: str, name: str, **style: Any) -> None:
    known = [(row["labels"], 1e3 * row[key]) for row in rows if row[key] is not None]
    if known:
        axis.plot(*zip(*known), markersize=4, label=name, **style)
