"""Columns of tables: every one finds its metric, and no table has two with the same heading."""

from dataclasses import replace

import numpy as np
import pytest

from equibayes.evaluation import comparison, print_tables
from equibayes.evaluation.columns import COLUMNS, Column
from equibayes.evaluation.figures.curves import ENERGY, FORCE, Quantity
from equibayes.evaluation.multivariate import Vectors
from equibayes.evaluation.report import tables
from equibayes.evaluation.tables import measure
from tests.evaluation.made_up import made_up, stressed


def test_every_column_finds_its_metric() -> None:
    uneven = np.linspace(0.01, 0.03, 40)  # σ that are all the same cannot be ranked
    result = stressed(made_up("a"))
    count = len(result.number)
    vectors = Vectors(np.ones((count, 3, 3)), np.ones(count), *[np.ones(40)] * 3)
    metrics = measure(replace(result, energy_sigma=uneven, vectors=vectors), threshold=0.03)
    assert [key for key, column in COLUMNS.items() if column.value(metrics) is None] == []
    assert COLUMNS["force_mae"].value(metrics) == 1e3 * metrics["force_mae"]
    assert COLUMNS["kcal_mol.force_mae"].text(metrics) == f"{metrics['kcal_mol']['force_mae']:.3f}"


TABLES = (
    "PAPER_ACCURACY PAPER_CALIBRATION FIELD COVERAGE SPECIES ENERGY_FIELD ENERGY_CALIBRATION ENERGY_COVERAGE STRESS "
    "STRESS_CALIBRATION VECTORS"
)


@pytest.mark.parametrize("name", TABLES.split())
def test_titles_on_a_terminal_differ(name: str) -> None:
    titles = [column.title for column in getattr(print_tables, name)]
    assert len(set(titles)) == len(titles)


@pytest.mark.parametrize("own", [FORCE, ENERGY], ids=["forces", "energies"])
def test_headings_of_the_report_differ(own: Quantity) -> None:
    own_columns = (tables.calibration_columns(own), tables.outlier_columns(own))
    for columns in (tables.FORCES, tables.ENERGIES, tables.STRESS, tables.VECTORS, *own_columns):
        headings = [heading for heading, _, _ in columns]
        assert len(set(headings)) == len(headings)


def test_missing_values_are_dashes() -> None:
    column = COLUMNS["kcal_mol.force_mae"]
    for metrics in (
        {},
        {"kcal_mol": None},
        {"kcal_mol": {"force_mae": None}},
        {"kcal_mol": {"force_mae": float("nan")}},
    ):
        assert column.text(metrics) == "–"


def test_what_is_better() -> None:
    assert COLUMNS["force_mae"].loss(2.0) > COLUMNS["force_mae"].loss(1.0)
    assert COLUMNS["force_auc"].loss(0.5) > COLUMNS["force_auc"].loss(0.9)
    assert COLUMNS["force_coverage_68"].loss(90.0) == COLUMNS["force_coverage_68"].loss(46.0) == 22.0
    assert all(column.better is not None for column in comparison.COLUMNS)


def test_numbers_are_shown_in_the_unit_of_their_column() -> None:
    """METRICS.json is in eV and Å, in shares of 1, and in `kcal_mol` in the paper's units."""
    factors = {"meV/Å": 1e3, "meV": 1e3, "%": 100, "mol Å/kcal": 1, "mol/kcal": 1}
    for key, column in COLUMNS.items():
        if key.startswith("kcal_mol."):
            assert "kcal" in column.unit, key
        assert column.factor == factors.get(column.unit, 100 if "_coverage_" in key else 1), key
        kind = key.split(".")[-1].split("_")[-1]
        assert column.better == {"mll": "high", "auc": "high", "spearman": "high"}.get(kind, column.better), key
        if kind in ("mae", "rmse", "crps", "nece", "ece", "ence", "area"):
            assert column.better == "low", key
        if "_coverage_" in key:
            assert column.better == int(kind), key


def test_headings_carry_units() -> None:
    assert Column("x", "MAE-F", "meV/Å", 1e3, ".1f").heading == "MAE, meV/Å"
    assert Column("x", "ROC AUC", "", 1, ".3f").heading == "ROC AUC"
