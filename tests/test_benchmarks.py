"""The benchmarks run; what they say about speed is not judged here."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from equibayes.engine.native.compile import why_no_compiler
from equibayes.engine.select import VARIABLE

ROOT = Path(__file__).resolve().parent.parent
compiled = pytest.mark.skipif(why_no_compiler() is not None, reason=str(why_no_compiler()))


def run(command):
    """With the engine that users get, not the one that the tests pin."""
    environment = {name: value for name, value in os.environ.items() if name != VARIABLE}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300)


@pytest.mark.slow
def test_network_benchmark(tmp_path):
    output = tmp_path / "quick.json"
    command = [sys.executable, "benchmarks/network.py", "--quick", "--threads", "1", "--output", str(output)]
    done = run(command)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "faster than" in done.stdout
    result = json.loads(output.read_text())
    assert result["training_step"]["force_disagreement"] < 1e-4, "contestants must compute the same"
    rows = result["training_step"]["rows"]
    assert list(rows) == ["official", "ours K=2"]
    for row in rows.values():
        assert row["seconds"] > 0
        assert row["per_weight_set"] == pytest.approx(row["seconds"] / row["weight_sets"])
    assert all(row["step_mib"] > 0 for row in result["training_memory"].values())
    assert [row["atoms"] for row in result["scaling"][0]["rows"]] == [8]
    assert {"commit", "hardware", "versions", "time", "config", "seed"} <= result.keys()
    assert result["hardware"]["threads"] == 1


@pytest.mark.parametrize(
    ("name", "contestants"),
    [
        pytest.param("predict", ["official, eight times", "ours, k = 8", "ours, k = 1"], marks=pytest.mark.slow),
        pytest.param("cluster", ["bare, K = 1", "1 worker, K = 1", "2 workers, K = 1 each"], marks=pytest.mark.slow),
        ("md", ["ours, k = 8", "ours, k = 1", "committee of eight", "official, one network"]),
        ("novelty", ["silicon, tiny network, k = 8", "silicon, tiny network, k = 1"]),
        ("lammps_md", ["water, tiny network, k = 1", "silicon, tiny network, k = 1"]),
        pytest.param("lammps_ranks", ["64 atoms"], marks=[pytest.mark.slow, compiled]),
    ],
)
def test_other_benchmarks(name, contestants, tmp_path):
    output = tmp_path / "quick.json"
    command = [sys.executable, f"benchmarks/{name}.py", "--quick", "--threads", "1", "--output", str(output)]
    done = run(command)
    assert done.returncode == 0, done.stderr[-2000:]
    result = json.loads(output.read_text())
    if "parts" in result:
        assert list(result["parts"]) == contestants
        result |= result["parts"][contestants[0]]
    else:
        assert list(result.get("speed", result)["rows"]) == contestants
    assert {"commit", "hardware", "versions", "time", "seed"} <= result.keys()


@pytest.mark.slow
@compiled
def test_native_benchmark(tmp_path):
    output = tmp_path / "quick.json"
    command = [sys.executable, "benchmarks/native.py", "--quick", "--output", str(output)]
    done = run(command)
    assert done.returncode == 0, done.stderr[-2000:]
    parts = json.loads(output.read_text())["parts"]
    (step,) = parts["small"]["rows"]
    assert list(step["per_weight_set"]) == ["native, K = 2", "torch, K = 2", "official, eager"]
    assert step["per_weight_set"]["native, K = 2"]["over_native"] == 1
    assert "pip install torch mace-torch" in step["left_out"]["MACE, 2 layers"]
    assert list(parts["calculator"]["rows"][0]["rows"]) == ["native", "reference"]
    (share,) = parts["peak"]["rows"]
    assert share["operations"] > 1e6
    assert 0 < share["share"] < 1
    assert parts["threads"]["rows"][0]["speed_up"] > 0
    assert all({"commit", "hardware", "versions", "time"} <= part.keys() for part in parts.values())


@pytest.mark.slow
@compiled
def test_large_structures(tmp_path):
    output = tmp_path / "quick.json"
    command = [sys.executable, "benchmarks/large.py", "--quick", "--output", str(output)]
    done = run(command)
    assert done.returncode == 0, done.stderr[-2000:]
    rows = json.loads(output.read_text())["parts"]["tiny, 1 sample"]["rows"]
    assert [row["atoms"] for row in rows] == [64, 216]
    assert all(0 < row["seconds"]["call"] < row["seconds"]["new list"] for row in rows)


def test_growth_finds_the_exponent():
    sys.path.insert(0, str(ROOT / "benchmarks"))
    try:
        from measure import growth, summary
    finally:
        sys.path.pop(0)
    assert growth([64, 512, 4096], [3 * n**1.3 for n in (64, 512, 4096)]) == pytest.approx(1.3)
    assert summary([1.0, 2.0, 3.0, 4.0, 100.0]).seconds == 3.0


def test_search_for_the_best_cut(monkeypatch):
    """Every neighbour differs from where it began; what is faster by itself is tried together."""
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    tuning = pytest.importorskip("tuning")
    base = tuning.Tuning.best("tf32x3", 2304)
    around = tuning.neighbours(base)
    assert base not in around
    assert len({str(each) for each in around}) == len(around)
    assert set(tuning.CHOICES) <= {name for each in around for name in tuning.difference(each, base)}

    assert set(tuning.IN_PREDICTIONS) == {
        name for each in tuning.neighbours(base, training=False) for name in tuning.difference(each, base)
    }

    class Fake(tuning.Case):
        def milliseconds(self, precision, cut):
            saved = 0.1 * (cut.radial_block == 32) + 0.2 * (cut.rows == 64) - 0.3 * (cut.radial_warps == 4)
            return "too many registers" if cut.stages == 4 else 1.0 - saved

    found = tuning.improve(Fake("ethanol K=8", None, 8, 2304, True, None), "bf16x3", base, around)
    assert found["together"]["change"] == {"rows": 64, "radial_block": 32}
    assert found["together"]["ms"] == pytest.approx(0.7)
    assert {"change": {"stages": 4}, "ms": "too many registers"} in found["changes"]
