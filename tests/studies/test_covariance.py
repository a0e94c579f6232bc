"""The study of covariances: fragments, measures with known answers, and tables of what was measured."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from ase.build import bulk

from equibayes.data import Dataset, Structure
from equibayes.posterior.force_covariance import ForceCovariance
from studies.covariance.figure import draw
from studies.covariance.fragments import bonds_of, fragments, projections
from studies.covariance.measures import measured
from studies.covariance.tables import runs_in, tables
from tests.samples import ethanol


def test_fragments() -> None:
    molecule = ethanol()
    bonds = bonds_of(molecule)
    assert len(bonds) == 8
    found = [sorted(molecule.numbers[piece].tolist()) for piece in fragments(molecule, bonds)]
    assert sorted(found) == [[1, 1, 1, 6], [1, 8]], "the methyl and the hydroxyl group"
    assert projections(molecule)["fragment net force"].shape == (6, 9, 3)
    silicon = Structure.from_atoms(bulk("Si", cubic=True).repeat(2))
    pieces = list(fragments(silicon, bonds_of(silicon)))
    assert pieces
    assert all(len(piece) == 5 for piece in pieces), "an atom with its four neighbours"
    apart = projections(Structure.from_atoms(bulk("Si", cubic=True, a=9.0)))
    assert [len(weights) for weights in apart.values()] == [24, 0, 0, 0]


def test_measures_of_a_known_gaussian() -> None:
    """Errors that atoms share: the net force of a fragment is covered by the whole covariance alone."""
    rng, structure = np.random.default_rng(0), ethanol()
    root = np.eye(9) + 0.5
    whole = np.einsum("ij,ab->iajb", root @ root.T, np.eye(3))
    sigma = np.sqrt(np.einsum("iaia->ia", whole))
    covariance = ForceCovariance(0.25 * whole, 0.75 * whole)
    prediction: Any = SimpleNamespace(forces=np.zeros((9, 3)), forces_std=sigma, forces_covariance=covariance)
    labels = [replace(structure, energy=0.0, forces=root @ rng.normal(size=(9, 3))) for _ in range(200)]
    forms = measured(Dataset(labels, "labels"), [prediction] * 200)["forms"]
    for form in forms:
        assert forms[form]["components_68"] == pytest.approx(0.683, abs=0.03)
    assert forms["full"]["fragment net force_68"] == pytest.approx(0.683, abs=0.04)
    assert forms["independent"]["fragment net force_68"] < 0.55
    assert forms["full"]["ln_p"] > forms["atoms"]["ln_p"]
    expected = -0.5 * 27 * (1 + np.log(2 * np.pi)) - 3 * np.linalg.slogdet(root)[1]
    assert forms["full"]["ln_p"] == pytest.approx(expected / 9, abs=0.1)


def test_tables_and_figure(tmp_path: Path) -> None:
    """Also of a set without fragments."""
    row = {"ln_p": 5.0, "ln_p_inner": 4.0, "energy_score": 0.1}
    row |= {f"{key}_68": 0.7 for key in ("ellipsoids", "components", "bond stretching")}
    for name in ("ethanol", "silicon"):
        own = row | ({"fragment net force_68": 0.8, "fragment torque_68": 0.6} if name == "ethanol" else {})
        for covariance, seed in (("isotropic", 0), ("pair", 0), ("pair", 1)):
            forms = {form: own | {"ln_p": 5.0 + seed} for form in ("independent", "atoms", "full")}
            found = {"force_mae": 20.0, "force_rmse": 30.0, "force_sigma": 31.0, "forms": forms}
            content = {"set": name, "covariance": covariance, "seed": seed, "calibrated": found, "intervals": found}
            (tmp_path / f"{name}-{covariance}-{seed}.json").write_text(json.dumps(content))
    times = {"step": {"64": {"isotropic": 0.001, "atom": 0.0011, "pair": 0.0012}}}
    for name in ("speed", "scaling"):
        (tmp_path / f"{name}.json").write_text(json.dumps(times))
    text = tables(tmp_path)
    for table in text.split("\n\n"):
        assert len({line.count("|") for line in table.splitlines()}) == 1, "as many cells in every row"
    assert "| ethanol | pair | 2 | 20.0 ± 0.0 | 30.0 ± 0.0 | 31.0 ± 0.0 | 5.50 ± 0.50 |" in text
    assert "| silicon | isotropic | components alone | 1σ | 70 | 70 | – | – |" in text
    assert "| 64 | 1.00 | × 1.10 | × 1.20 | 18.8 |" in text
    draw(runs_in(tmp_path), tmp_path / "gain.png")
    assert (tmp_path / "gain.png").stat().st_size > 5000
