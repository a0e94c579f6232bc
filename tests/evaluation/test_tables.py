"""The nested metrics of a data set: the paper's units, and forces as vectors."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from equibayes.evaluation import density, metrics
from equibayes.evaluation.evaluated import Evaluated
from equibayes.evaluation.print_tables import tables
from equibayes.evaluation.tables import measure, measure_all
from equibayes.units import GPA
from tests.evaluation.made_up import made_up, stressed

KCAL_PER_MOL = 0.0433641
"""eV; by hand, so that the conversion is not compared with itself."""
WITH_UNIT = ("mae", "rmse", "crps", "sharpness", "median_sigma", "mll", "nece")


@pytest.fixture(scope="module")
def evaluated() -> Evaluated:
    return made_up(too_small=1.3)


@pytest.mark.parametrize("kind", ["force", "energy"])
def test_kcal_mol_is_every_metric_of_the_converted_arrays(evaluated: Evaluated, kind: str) -> None:
    """Errors and σ divided by 1 kcal/mol(/Å), then measured: MLL of densities per kcal/mol, NECE with δ = 0.01."""
    error = getattr(evaluated, f"{kind}_error") / KCAL_PER_MOL
    sigma = getattr(evaluated, f"{kind}_sigma") / KCAL_PER_MOL
    expected = {
        f"{kind}_mae": np.abs(error).mean(),
        f"{kind}_rmse": np.sqrt((error**2).mean()),
        f"{kind}_sharpness": np.sqrt((sigma**2).mean()),
        f"{kind}_median_sigma": np.median(sigma),
        f"{kind}_crps": metrics.crps(error, sigma),
        f"{kind}_mll": stats.norm.logpdf(error, 0, sigma).mean(),
        f"{kind}_nece": density.expected_calibration_error(error, sigma, 0.01) / 0.01,
    }
    found = measure(evaluated)["kcal_mol"]
    assert {key: found[key] for key in expected} == pytest.approx(expected, rel=1e-4)
    assert set(found) == {f"{part}_{name}" for part in ("force", "energy") for name in WITH_UNIT}


def test_mll_and_nece_move_by_the_unit(evaluated: Evaluated) -> None:
    """The density of an error per kcal/mol is 23.06 times smaller than per eV: ln falls by 3.138, NECE by a factor."""
    values = measure(evaluated)
    for kind in ("force", "energy"):
        assert values["kcal_mol"][f"{kind}_mll"] - values[f"{kind}_mll"] == pytest.approx(-3.13812, abs=1e-5)
        assert values[f"{kind}_nece"] / values["kcal_mol"][f"{kind}_nece"] == pytest.approx(23.0605, rel=1e-5)
        assert values["kcal_mol"][f"{kind}_nece"] == pytest.approx(values[f"{kind}_ece"] / 0.01)


def test_mll_of_components_and_of_force_vectors(evaluated: Evaluated) -> None:
    """The paper's density of a configuration is a product of N(F_i; μ_i, σ_i² I) over force *vectors*.

    Its tables do not say whether their mean is over vectors or over components.  Both are reported: `per_atom` has
    that over vectors, three times the one over components.
    """
    values = measure(evaluated)
    vectors = [
        stats.multivariate_normal.logpdf(error, np.zeros(3), sigma[0] ** 2 * np.eye(3))
        for error, sigma in zip(evaluated.force_error, evaluated.force_sigma)
    ]
    assert values["per_atom"]["force_mll"] == pytest.approx(np.mean(vectors), rel=1e-9)
    assert values["force_mll"] == pytest.approx(np.mean(vectors) / 3, rel=1e-9)
    assert values["force_median_sigma"] == np.median(evaluated.force_sigma)


def test_forces_as_vectors_and_energies_per_atom(evaluated: Evaluated) -> None:
    found, sizes = measure(evaluated)["per_atom"], np.bincount(evaluated.frame)
    length = np.sqrt((evaluated.force_error**2).sum(1))
    width = np.sqrt((evaluated.force_sigma**2).sum(1))
    assert found["force_mae"] == pytest.approx(length.mean())
    assert found["force_rmse"] == pytest.approx(np.sqrt((length**2).mean()))
    assert found["force_spearman"] == pytest.approx(stats.spearmanr(length, width).statistic)
    shared = evaluated.energy_error / sizes
    assert found["energy_mae"] == pytest.approx(np.abs(shared).mean())
    assert found["energy_rmse"] == pytest.approx(np.sqrt((shared**2).mean()))
    squared = ((evaluated.force_error / evaluated.force_sigma) ** 2).sum(1)
    for level in (50, 68, 90, 95):
        inside = (squared <= stats.chi2.ppf(level / 100, 3)).mean()
        assert found[f"force_coverage_{level}"] == pytest.approx(inside)


def test_shares(evaluated: Evaluated) -> None:
    values = measure(evaluated, threshold=0.1)
    assert values["force_outlier_share"] == (np.abs(evaluated.force_error) > 0.1).mean()
    assert values["energy_outlier_share"] == (np.abs(evaluated.energy_error) > 0.1).mean()
    assert values["force_epistemic_share"] == pytest.approx(0.36)
    assert values["energy_epistemic_share"] == pytest.approx(0.36)


def test_energies_known_up_to_a_constant_have_their_reason(evaluated: Evaluated) -> None:
    """Also where only some of the frames have a label at all; without any label the reason is that."""
    nothing = np.full(40, np.nan)
    bare = [replace(structure, energy=None) for structure in evaluated.structures]
    some = [*bare[:39], evaluated.structures[39]]
    constant = measure(replace(evaluated, energy_true=nothing, structures=some))["reasons"]
    assert constant["energy_mae"].startswith("energies of these molecules are known only up to a constant")
    assert not [key for key in constant if key.startswith("force")]
    assert measure(replace(evaluated, energy_true=nothing, structures=bare))["reasons"]["energy_mae"] == "no labels"


def test_unlabelled_atoms_and_frames_are_left_out(evaluated: Evaluated) -> None:
    """Without forces in the first frame and energy in the second: the numbers of the others, and how many there are."""
    force_true, energy_true = evaluated.force_true.copy(), evaluated.energy_true.copy()
    force_true[evaluated.frame == 0] = np.nan
    energy_true[1] = np.nan
    values = measure(replace(evaluated, force_true=force_true, energy_true=energy_true))
    assert (values["n_frames"], values["n_frames_with_energy"]) == (40, 39)
    assert (values["n_atoms"], values["n_atoms_with_forces"]) == (360, 351)
    error = evaluated.force_error
    assert values["force_mae"] == pytest.approx(np.abs(error[evaluated.frame != 0]).mean())
    assert values["energy_mae"] == pytest.approx(np.abs(np.delete(evaluated.energy_error, 1)).mean())
    carbon = (evaluated.number == 6) & (evaluated.frame != 0)
    assert values["per_species"]["C"]["force_mae"] == pytest.approx(np.abs(error[carbon]).mean())
    assert values["per_species"]["C"]["n_atoms"] == carbon.sum() == 78
    assert list(values["reasons"]) == ["energy_spearman"], "all σ of these energies are equal"


def test_stress_where_there_are_labels(evaluated: Evaluated) -> None:
    """Three of four frames have one: six elements each, in eV/Å³ and GPa; nothing else changes."""
    result = stressed(evaluated, too_small=2.0)
    values, without = measure(result), measure(evaluated)
    assert {key: values[key] for key in without if key != "reasons"} == {
        k: v for k, v in without.items() if k != "reasons"
    }
    assert not [key for key in without if "stress" in key]
    known = np.arange(40) % 4 != 0
    error, sigma = (result.stress_mean - result.stress_true)[known], result.stress_sigma[known]
    assert values["n_frames_with_stress"] == 30
    assert values["stress_mae"] == pytest.approx(np.abs(error).mean())
    assert values["stress_rmse"] == pytest.approx(np.sqrt((error**2).mean()))
    assert values["stress_mll"] == pytest.approx(stats.norm.logpdf(error, 0, sigma).mean())
    assert values["stress_coverage_68"] == pytest.approx((np.abs(error) < stats.norm.ppf(0.84) * sigma).mean())
    assert values["stress_coverage_68"] < 0.5, "σ is half as large as the errors"
    assert values["stress_epistemic_share"] == pytest.approx(0.36)
    outlier = np.abs(error) > 3 * np.abs(error).mean()
    assert values["stress_outlier_share"] == pytest.approx(outlier.mean())
    assert values["stress_auc"] == pytest.approx(metrics.roc_auc(outlier, sigma))
    assert values["gpa"]["stress_mae"] == pytest.approx(values["stress_mae"] * 160.2177, rel=1e-6)
    assert values["gpa"]["stress_mll"] == pytest.approx(values["stress_mll"] + np.log(GPA))
    assert measure(result, threshold=0.01)["stress_threshold"] == values["stress_threshold"], "it is one of forces"


def test_tables_of_stress(evaluated: Evaluated) -> None:
    """Only sets with labels are in them."""
    results = [stressed(evaluated), replace(evaluated, name="bare")]
    shown = [table for table in tables(measure_all(results, about={})) if table.title.startswith("Stress")]
    assert [[row[0] for row in table.rows] for table in shown] == [["near"], ["near"]]
    assert float(shown[0].rows[0][3]) == pytest.approx(measure(results[0])["gpa"]["stress_mae"], abs=6e-4)
    assert not [each for each in tables(measure_all(results[1:], about={})) if "Stress" in each.title]
