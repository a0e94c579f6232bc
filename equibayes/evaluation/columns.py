"""The columns of all tables, defined once for the terminal, the report and the comparison of methods.

A column is addressed by the place of its metric in METRICS.json: `force_mae`, or `kcal_mol.force_mae` in a nested part.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any, Literal

from equibayes.evaluation.tables import LEVELS

ABSENT = "–"


@dataclass(frozen=True)
class Column:
    """How one metric is shown.

    key     the metric, with the part that holds it: `force_mae`, `kcal_mol.force_mae`
    title   heading without unit; `-F`, `-E` and `-S` tell forces, energies and stress apart
    unit    of the number as shown; empty for pure numbers
    factor  from the value in METRICS.json to the number as shown
    format  of the number
    better  "low", "high" or a target value; None where no value is better than another
    """

    key: str
    title: str
    unit: str
    factor: float
    format: str
    better: Literal["low", "high"] | float | None = None

    @property
    def heading(self) -> str:
        """Heading of a table about one quantity: without `-F` or `-E`, with the unit."""
        name = self.title.removesuffix("-F").removesuffix("-E").removesuffix("-S")
        return f"{name}, {self.unit}" if self.unit else name

    def value(self, metrics: Mapping[str, Any]) -> float | None:
        """The number as shown, from the metrics of one data set; None where it is missing or not finite."""
        found: Any = metrics
        for word in self.key.split("."):
            found = (found or {}).get(word)
        return self.factor * found if isinstance(found, (int, float)) and isfinite(found) else None

    def text(self, metrics: Mapping[str, Any]) -> str:
        value = self.value(metrics)
        return ABSENT if value is None else format(value, self.format)

    def loss(self, value: float) -> float:
        """How far a number as shown is from the best; smaller is better."""
        if self.better == "low":
            return value
        return -value if self.better == "high" else abs(value - (self.better or 0.0))


def _of_errors(kind: str, suffix: str, mev: str, kcal: str) -> list[Column]:
    """Columns that forces and energies have in common."""
    return [
        Column(f"{kind}_mae", f"MAE-{suffix}", mev, 1e3, ".1f", "low"),
        Column(f"{kind}_rmse", f"RMSE-{suffix}", mev, 1e3, ".1f", "low"),
        Column(f"{kind}_sharpness", f"σ-{suffix}", mev, 1e3, ".1f"),
        Column(f"{kind}_crps", f"CRPS-{suffix}", mev, 1e3, ".1f", "low"),
        Column(f"{kind}_mll", f"MLL-{suffix}", "", 1, ".3f", "high"),
        Column(f"kcal_mol.{kind}_mae", f"MAE-{suffix}", kcal, 1, ".3f", "low"),
        Column(f"kcal_mol.{kind}_rmse", f"RMSE-{suffix}", kcal, 1, ".3f", "low"),
        Column(f"kcal_mol.{kind}_mll", f"MLL-{suffix}", f"per {kcal}", 1, ".2f", "high"),
        Column(f"{kind}_ece", f"ECE-{suffix}", "", 1, ".5f", "low"),
    ]


def _of_ranking(kind: str, suffix: str) -> list[Column]:
    """Columns about σ that forces and energies have in common."""
    return [
        Column(f"{kind}_miscalibration_area", f"miscal. area{suffix}", "", 1, ".3f", "low"),
        Column(f"{kind}_ence", f"ENCE{suffix}", "", 1, ".3f", "low"),
        Column(f"{kind}_auc", f"ROC AUC{suffix}", "", 1, ".3f", "high"),
        Column(f"{kind}_spearman", f"Spearman{suffix}", "", 1, ".3f", "high"),
        Column(f"{kind}_outlier_share", f"outliers{suffix}", "%", 100, ".2f"),
        Column(f"{kind}_epistemic_share", f"epistemic{suffix}", "%", 100, ".0f"),
    ]


def _of_stress() -> list[Column]:
    """In GPa."""
    return [
        Column("gpa.stress_mae", "MAE-S", "GPa", 1, ".3f", "low"),
        Column("gpa.stress_rmse", "RMSE-S", "GPa", 1, ".3f", "low"),
        Column("gpa.stress_sharpness", "σ-S", "GPa", 1, ".3f"),
        Column("gpa.stress_crps", "CRPS-S", "GPa", 1, ".3f", "low"),
        Column("gpa.stress_mll", "MLL-S", "per GPa", 1, ".2f", "high"),
        *(Column(f"stress_coverage_{p}", f"in {p} %-S", "", 100, ".1f", p) for p in LEVELS),
        Column("n_frames_with_stress", "frames with stress", "", 1, ".0f"),
    ]


COLUMNS: dict[str, Column] = {
    column.key: column
    for column in (
        *_of_errors("force", "F", "meV/Å", "kcal/(mol Å)"),
        *_of_errors("energy", "E", "meV", "kcal/mol"),
        Column("n_frames", "frames", "", 1, ".0f"),
        Column("n_atoms", "atoms", "", 1, ".0f"),
        Column("per_atom.energy_mae", "MAE/atom-E", "meV", 1e3, ".2f", "low"),
        Column("kcal_mol.force_nece", "NECE-F", "mol Å/kcal", 1, ".3f", "low"),
        Column("kcal_mol.energy_nece", "NECE-E", "mol/kcal", 1, ".3f", "low"),
        *(Column(f"force_coverage_{p}", f"in {p} %", "", 100, ".1f", p) for p in LEVELS),
        *(Column(f"energy_coverage_{p}", f"in {p} %-E", "", 100, ".1f", p) for p in LEVELS),
        *_of_ranking("force", ""),
        *_of_ranking("energy", "-E"),
        *_of_stress(),
        *_of_ranking("stress", "-S"),
        Column("per_atom.force_auc", "ROC AUC of atoms", "", 1, ".3f", "high"),
        Column("vector_mll", "MLL of vectors", "", 1, ".3f", "high"),
        Column("vector_mll_independent", "MLL if independent", "", 1, ".3f", "high"),
        Column("vector_energy_score", "energy score", "meV/Å", 1e3, ".1f", "low"),
        *(Column(f"vector_coverage_{p}", f"in {p} % ellipsoid", "", 100, ".1f", p) for p in LEVELS),
        Column("novel_frame_share", "novel frames", "%", 100, ".1f"),
        Column("novel_atom_share", "novel atoms", "%", 100, ".2f"),
        Column("novelty_auc", "ROC AUC of novelty", "", 1, ".3f", "high"),
        Column("novelty_spearman", "Spearman of novelty", "", 1, ".3f", "high"),
    )
}


def select(keys: str) -> list[Column]:
    """Columns by their keys, separated by blanks."""
    return [COLUMNS[key] for key in keys.split()]
