"""The benchmark of doubt: probes, parts that are left out, pools of mixed kinds, constants of the floor, tables."""

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from equibayes.errors import InputError
from equibayes.posterior.floor import Shape
from studies.doubt.cases import INSIDE
from studies.doubt.constants import Atoms, best, numbers
from studies.doubt.drawing import draw
from studies.doubt.measures import by_frame
from studies.doubt.probes import LONGEST, bond_scans, bonds
from studies.doubt.splits import MOLECULES, parts, splits
from studies.doubt.tables import tables
from studies.label_efficiency.cases import CASES, COLD, HOT, TEST, case
from tests.runs import ethanol_frames


@pytest.mark.parametrize("name", CASES)
def test_no_test_frame_is_in_the_pool(name: str) -> None:
    frames = case(name)
    assert len(frames.test) == TEST
    assert len(frames.pool) == (COLD + HOT if name == "dissociation" else COLD + 2 * HOT)
    assert frames.start == COLD
    known = {structure.geometry_digest() for structure in frames.pool}
    assert len(known) == len(frames.pool)
    assert not known & {structure.geometry_digest() for structure in frames.test}


def test_a_scan_moves_whole_fragments() -> None:
    start = ethanol_frames(1)[0]
    found = [frame for frame in bond_scans(start, points=5) if frame.source.startswith("C-C")]
    (i, j) = next(pair for pair in bonds(start) if sorted(start.numbers[list(pair)]) == [6, 6])
    lengths = [float(np.linalg.norm(frame.positions[i] - frame.positions[j])) for frame in found]
    assert lengths[-1] == pytest.approx(LONGEST)
    assert set(bonds(found[-1])) == set(bonds(start)) - {(i, j)}


def test_parts_are_left_out_as_a_whole() -> None:
    data = ethanol_frames(200)
    name = MOLECULES[0]
    groups = parts(name, data, Path())
    clusters = [groups[f"cluster {number}"] for number in range(3)]
    np.testing.assert_array_equal(sum(each.astype(int) for each in clusters), 1)
    energy = np.array([frame.energy for frame in data])
    assert energy[groups["high energies"]].min() > energy[~groups["high energies"]].max()
    for split in splits(name, data, Path()):
        inside = groups[split.part]
        assert inside[split.left].all()
        assert not inside[np.concatenate([split.learned, split.inside])].any()
        assert not set(split.learned) & set(split.inside)


def test_the_best_floor_is_as_wide_as_the_errors() -> None:
    """Errors of 2 (ν − 1/2)² from σ of 0.1: a factor of 2 at F = 1 wins against none and against 10 times less."""
    frames = ethanol_frames(4)
    novelty = np.random.default_rng(0).uniform(0, 3, 36)
    floor = 2 * (novelty - 0.5).clip(0) ** 2
    atoms = Atoms(frames, novelty, np.hypot(0.1, floor), np.full(36, 0.1), 1.0, 0.5)  # a cutoff without neighbours
    shapes = [Shape(0.5, 0.0, 2.0), Shape(0.5, 1.0, 2.0), Shape(0.5, 0.125, 2.0)]
    log_p = [numbers(atoms, shape)["log_p"] for shape in shapes]
    assert log_p[1] > log_p[2] > log_p[0]
    sets = {shape: {name: numbers(atoms, shape) for name in ("left", "inside")} for shape in shapes}
    assert best({("a", "b"): sets}, None) == shapes[1]


def test_tables_show_what_is_trusted(tmp_path: Path) -> None:
    own = {"frames": 3, "force_mae": 0.0201, "coverage_68": 0.7, "spearman_sigma": 0.6, "novel": 0.0, "bad": 0}
    own |= {"bad_trusted_by_sigma": 0, "bad_trusted": 0, "bad_not_novel": 0, "wide_enough": 1.0, "far_outside": 0.0}
    own |= {"ratio_95": 1.2, "trusted_by_sigma": 1.0, "trusted": 1.0}
    far = own | {"bad": 3, "bad_trusted_by_sigma": 2, "wide_enough": 0.25, "novel": 1.0, "trusted": 0.0}
    wide = far | {"bad_trusted_by_sigma": 0, "wide_enough": 0.97}
    found = {"case": "ethanol", "method": "bayes", "sets": {INSIDE: own, "far": wide}}
    (tmp_path / "ethanol").mkdir()
    with pytest.raises(InputError, match="no results there"):
        tables(tmp_path)
    (tmp_path / "ethanol" / "bayes.json").write_text(json.dumps(found | {"without_floor": {INSIDE: own, "far": far}}))
    text = tables(tmp_path)
    frames = {"error": [0.02, 0.3], "sigma": [0.03, 4.0], "novelty": [0.8, 1000.0]}
    draw([found | {"frames": {INSIDE: frames, "far": frames}}], tmp_path / "frames.png")
    assert (tmp_path / "frames.png").stat().st_size > 1000
    assert "| ethanol | bayes | 20.1 | 70 → 70 | 0.60 → 0.60 | 0.0 | 3 | 2 / 0 / 0 | 25 → 97 | 0 → 0 |" in text


def test_numbers_of_frames_are_those_of_their_worst_atoms() -> None:
    error, sigma = np.array([[3.0, 0, 0], [0, 0, 0], [0, 4.0, 0]]), np.full((3, 3), [[1.0], [2.0], [5.0]])
    result = SimpleNamespace(
        force_error=error,
        force_sigma=sigma,
        frame=np.array([0, 0, 1]),
        structures=[None, None],
        frame_novelty=np.array([0.5, 7.0]),
    )
    found = by_frame(result)  # type: ignore[arg-type]
    assert found == {"error": [0.5, 1.33], "sigma": [2.0, 5.0], "novelty": [0.5, 7.0]}
