"""Columns of the tables: heading, value and format."""

import math
from collections.abc import Callable, Sequence
from typing import Any

from equibayes.units import KCAL_PER_MOL
from studies.shared import tables

Value = Callable[[dict[str, Any]], Any]


def plain(key: str, scale: float = 1.0) -> Value:
    return lambda values: None if values[key] is None else scale * values[key]


def kcal(key: str) -> Value:
    """In kcal/mol, the unit of the paper."""

    def convert(values: dict[str, Any]) -> Any:
        value = values[key]
        if value is None:
            return None
        if key.endswith("_mll"):
            return value + math.log(KCAL_PER_MOL)
        return value * KCAL_PER_MOL if key.endswith("_nece") else value / KCAL_PER_MOL

    return convert


def mev(key: str) -> Value:
    return plain(key, 1e3)


def percent(key: str) -> Value:
    return plain(key, 100)


FULL: list[tuple[str, Value, str]] = [
    *((heading, mev(key), ".1f") for heading, key in (("MAE", "force_mae"), ("RMSE", "force_rmse"))),
    *(
        (heading, mev(f"mean_{part}"), ".1f")
        for heading, part in (("σ", "sigma"), ("epistemic", "epistemic"), ("aleatoric", "aleatoric"))
    ),
    ("MLL", plain("force_mll"), ".3f"),
    *((f"in {level} %", percent(f"force_coverage_{level}"), ".1f") for level in (68, 95)),
    ("NECE", kcal("force_nece"), ".3f"),
    ("area", plain("force_miscalibration_area"), ".3f"),
    *(
        (f"AUC {limit}", plain(key), ".3f")
        for limit, key in (("1 kcal", "force_auc"), ("3 × MAE", "force_auc_relative"))
    ),
    *((f"ρ {part}s", plain(f"{part}_spearman"), ".2f") for part in ("atom", "frame")),
    ("MAE-E", mev("energy_mae_up_to_a_constant"), ".1f"),
]
PAPER_TABLE_2: list[tuple[str, Value, str]] = [
    (f"{name.upper()}-{part[0].upper()}", kcal(f"{part}_{name}"), ".3f" if part == "force" and name != "mll" else ".2f")
    for part in ("force", "energy")
    for name in ("mae", "rmse", "mll")
]
PAPER_TABLE_3: list[tuple[str, Value, str]] = [
    *PAPER_TABLE_2,
    *((f"NECE-{part[0].upper()}", kcal(f"{part}_nece"), ".3f") for part in ("force", "energy")),
    ("area-F", plain("force_miscalibration_area"), ".3f"),
    ("in 68 %", percent("force_coverage_68"), ".1f"),
]
LEGEND = (
    "Force components in meV/Å. σ, epistemic, aleatoric: mean standard deviations. MLL: mean ln likelihood (eV, Å). in 68 %, in 95 %: "
    "fraction of errors within these intervals. NECE: the paper's calibration error (Å mol/kcal); area: "
    "miscalibration area. AUC: errors above 1 kcal/(mol Å), or above three times the method's MAE in distribution, detected by σ. "
    "ρ: rank correlation of σ and error, over atoms and over frames (RMS). MAE-E: energies in meV, minus the mean error of each "
    "molecule."
)


def markdown(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return "\n".join(tables.markdown(headings, rows))


def cells(columns: Sequence[tuple[str, Value, str]], values: dict[str, Any] | None) -> list[str]:
    return [written(None if values is None else find(values), form) for _, find, form in columns]


def written(value: float | None, form: str) -> str:
    return tables.number(value, form).replace("-", "−")
