"""The fused kernels on a CPU, under Triton's interpreter: tiny networks, the same checks that `equibayes.selftest`
makes on a GPU."""

import importlib.util
import json
import os
import subprocess
import sys
from dataclasses import asdict, replace

import numpy as np
import pytest
import torch

if importlib.util.find_spec("triton") is None:
    pytest.skip("the triton package is not installed (pip install equibayes[gpu])", allow_module_level=True)
if torch.cuda.is_available():
    pytest.skip("there is a GPU: run python -m equibayes.selftest instead", allow_module_level=True)
os.environ["TRITON_INTERPRET"] = "1"  # before the kernels are imported; product code asks for a GPU, not for this

from equibayes.bayes.model import StochasticModel
from equibayes.bayes.potential import Dropout, Potential
from equibayes.bayes.prior import Flat, StandardNormal
from equibayes.data.graph import graph_of
from equibayes.engine import selftest, selftest_cases, selftest_checks, selftest_steps
from equibayes.engine.select import make_stepper
from equibayes.engine.triton.layout import Pieces
from equibayes.engine.triton.model import TritonModel
from equibayes.engine.triton.pairs import pairs_of
from equibayes.engine.triton.steps import TritonStepper
from equibayes.engine.triton.tuning import Tuning
from equibayes.network.config import NetworkConfig, preset
from equibayes.run.chains import Chains
from equibayes.run.loop import run as run_chains
from equibayes.run.settings import sample_config
from equibayes.run.store import FolderStore
from equibayes.sampling.dropout import STREAM_TRAIN

LEVEL1 = selftest_cases.SMALL_NETWORKS["l=1"]
MIXED = selftest_cases.SMALL_NETWORKS["l=2, mixed"]
STRESS = selftest_cases.SMALL_NETWORKS["stress"]
TINY = NetworkConfig(
    l_max=1,
    parity=False,
    num_features=16,
    num_layers=2,
    radial_mlp_width=16,
    radial_mlp_depth=1,
    num_bessels=4,
    **selftest_cases.SCALES,
)


EXACT = selftest_checks.TritonEngine("float32")


def passed(checks) -> None:
    found = list(checks)
    assert found
    assert not [check for check in found if not check.passed]


def test_noise_is_that_of_the_reference():
    passed(selftest_steps.check_noise(1000, "cpu"))


@pytest.mark.parametrize("kind", ["molecules", "cell"])
def test_predictions(kind):
    """Molecules of several sizes with an isolated atom, and a skew cell in which atoms meet their own images."""
    passed(
        selftest_checks.check_predictions(kind, LEVEL1, selftest_cases.structures(small=True)[kind], 2, EXACT, "cpu")
    )


def test_gradient_of_the_likelihood():
    frames = [selftest_cases.cluster(3, 8), selftest_cases.cluster(2, 9), selftest_cases.cluster(1, 10)]
    passed(selftest_checks.check_gradient("mixed", MIXED, frames, 2, EXACT, "cpu"))


def test_network_of_a_foundation_model():
    """Rotations only, one self-connection for all species and in the first block, an XPLOR cutoff."""
    config = selftest_cases.SMALL_NETWORKS["foundation"]
    frames = [selftest_cases.cluster(3, 8), selftest_cases.cluster(2, 9), selftest_cases.cluster(1, 10)]
    passed(selftest_checks.check_predictions("foundation", config, frames, 2, EXACT, "cpu"))
    passed(selftest_checks.check_gradient("foundation", config, frames, 2, EXACT, "cpu"))


@pytest.mark.parametrize("objective", ["gaussian", "squares"])
def test_gradient_with_stress(objective):
    """Cells with and without a label in one minibatch, and a molecule."""
    frames = selftest_cases.training(STRESS, small=True)
    passed(selftest_checks.check_gradient(objective, STRESS, frames, 2, EXACT, "cpu", objective))


def test_balance_of_energies_and_stress_against_forces():
    frames = selftest_cases.training(STRESS, small=True)
    passed(selftest_checks.check_gradient("balance", STRESS, frames, 2, EXACT, "cpu", balance=100.0))


def test_predictions_of_stress():
    cells = [selftest_cases.strained(2, 3.5, 6), selftest_cases.strained(1, 2.8, 7)]
    passed(selftest_checks.check_predictions("stress", STRESS, cells, 2, EXACT, "cpu"))
    passed(selftest_checks.check_moving("stress", STRESS, cells[0], 2, EXACT, "cpu"))


def test_as_for_many_atoms():
    """Few atoms, as everywhere in these tests, have sums in pieces, and slots side by side; many do not."""
    assert Tuning.best("mixed", 10).pieces > 1 == Tuning.best("mixed", 5000).pieces
    with selftest.cut_for(5000):
        passed(selftest_checks.check_predictions("many", LEVEL1, [selftest_cases.cluster(3, 8)], 1, EXACT, "cpu"))
        passed(
            selftest_checks.check_gradient(
                "many", TINY, [selftest_cases.cluster(2, 8), selftest_cases.cluster(1, 9)], 1, EXACT, "cpu"
            )
        )
    assert Tuning.best("mixed", 10).pieces > 1, "left as it was"


def test_sums_are_divided_evenly_and_wholly():
    """Five blocks of a plain sum, two of one over three species: 11 turns, in three pieces of at most four."""
    job = [1000, 64, 2000, 64, 5 * 16, 3000, 16, 4000, 64, 2 * 16, 5000, 512, 16]
    first, second, third = Pieces(3, 10**6, typed=3).divide(job, 16, (16, 16))
    assert [part[0] for part in (first, second, third)] == [1000, 1000 + 10**6, 1000 + 2 * 10**6]
    turns = [part[4] // 16 + 3 * part[9] // 16 for part in (first, second, third)]
    assert (sum(turns), max(turns)) == (11, 4)
    assert (second[2], second[5]) == (2000 + first[4], 3000 + 16 * first[4]), "goes on where the first ends"
    assert (third[4], third[7], third[10]) == (0, 4000 + second[9], 5000 + 16 * second[9])
    nothing = [1000, 64, 0, 0, 0, 0, 0]
    assert [part[:7] for part in Pieces(3, 10**6).divide(nothing, 16, (1, 1))] == [nothing]


def test_energy_without_a_label_counts_by_its_forces():
    frames = [replace(selftest_cases.cluster(2, seed), energy=energy) for seed, energy in ((8, None), (9, 1.0))]
    passed(selftest_checks.check_gradient("no energy", TINY, frames, 1, EXACT, "cpu"))


def test_whole_steps():
    passed(
        selftest_steps.check_steps(
            "tiny", TINY, [selftest_cases.cluster(2, 8), selftest_cases.cluster(2, 9)], 2, EXACT, "cpu"
        )
    )


def test_odd_sizes_of_the_radial_network():
    config = replace(TINY, radial_mlp_width=48, radial_mlp_depth=2, num_bessels=5)
    passed(
        selftest_checks.check_gradient(
            "radial", config, [selftest_cases.cluster(2, 8), selftest_cases.cluster(2, 9)], 1, EXACT, "cpu"
        )
    )


def test_forces_are_the_gradient_of_the_energy():
    passed(selftest_checks.check_derivative("tiny", TINY, selftest_cases.cluster(3, 3), EXACT, "cpu"))


@pytest.mark.slow
def test_all_of_l_3():
    config = NetworkConfig(
        l_max=3, num_features=16, num_layers=3, radial_mlp_width=16, radial_mlp_depth=1, **selftest_cases.SCALES
    )
    passed(
        selftest_checks.check_gradient(
            "l=3", config, [selftest_cases.cluster(2, 8), selftest_cases.cluster(2, 9)], 1, EXACT, "cpu"
        )
    )


def test_atoms_that_move_with_a_list_that_stays():
    passed(selftest_checks.check_moving("tiny", TINY, selftest_cases.crystal(3, 4.0, 4), 2, EXACT, "cpu"))


def test_less_memory_gives_the_same_bits(monkeypatch):
    import equibayes.engine.triton.passes as module

    model = StochasticModel(TINY)
    weights = model.layout.forward_weights(selftest_cases.weights(model, 1, 0).float())
    graph = graph_of(selftest_cases.cluster(3, 1), r_max=TINY.r_max, species_of=selftest_cases.SPECIES)
    ordinary, lean = TritonModel(model), TritonModel(model)
    expected = ordinary.forward(weights, graph)
    monkeypatch.setattr(module, "edges_at_once", lambda device: 1)
    found = lean.forward(weights, graph)
    assert lean._passes.lean
    assert not ordinary._passes.lean
    assert lean._passes.radial.numel() < ordinary._passes.radial.numel()
    assert torch.equal(found.forces, expected.forces)
    assert torch.equal(found.energy, expected.energy)


def posterior(model, data) -> Potential:
    return Potential(model, data, StandardNormal())


def run(folder, fused: bool, steps: int, resume: bool = False, make=posterior, average: bool = False, cold=0.5):
    """A short run of two chains with minibatches, an adapting mass and two phases."""
    frames = [selftest_cases.cluster(2, seed) for seed in (8, 9, 10)]
    config = sample_config(
        "quick",
        None,
        {
            "chains": 2,
            "samples": 2,
            "burn_in": {"steps": steps, "batch_size": 2, "initial": 1e-3, "final": 1e-4, "noise_free": cold},
            "cycles": {"length": 2, "batch_size": 1},
            "guard": {"interval": 2},
            "output": {"checkpoint_seconds": 0.0},
        },
    )
    model = StochasticModel(TINY)
    potential = make(model, selftest_cases.data(frames, TINY, torch.float32, "cpu"))

    def fused_stepper(potential, state, key, sampler, *, average, **_):
        return TritonStepper(potential, state, key, sampler, longest=2, precision="float32", average=average)

    store = FolderStore(folder, resume=resume) if folder else None
    chains = Chains.of(potential, config, average=average)
    return run_chains(chains, store, stepper=fused_stepper if fused else make_stepper)


def test_a_run_is_that_of_the_reference_and_continues_bit_for_bit(tmp_path):
    expected = run(None, False, 4)
    (tmp_path / "run").mkdir()
    found = run(tmp_path / "run", True, 4)
    assert found.step == expected.step
    assert len(found.samples) == len(expected.samples) > 0
    for ours, theirs in zip(found.samples, expected.samples):
        assert selftest_checks.relative(ours, theirs) < 1e-4
    assert found.history[-1]["force_mae"] == pytest.approx(expected.history[-1]["force_mae"], rel=1e-3)
    assert int(found.sampler.mass.updates) == int(expected.sampler.mass.updates)
    # without the newest checkpoints a resumed run repeats the same steps
    checkpoints = sorted((tmp_path / "run").glob("checkpoint*"))
    assert len(checkpoints) > 1
    checkpoints[-1].unlink()
    again = run(tmp_path / "run", True, 4, resume=True)
    assert torch.equal(again.samples[-1], found.samples[-1])
    assert torch.equal(again.sampler.momentum, found.sampler.momentum)


BASELINES = {
    "ensemble": lambda model, data: Potential(model, data, Flat()),
    "dropout": lambda model, data: Potential(model, data, Flat(), dropout=Dropout(0.3, 3, STREAM_TRAIN)),
    "point": lambda model, data: Potential(model, data, Flat(), objective="squares"),
}


# single steps with dropout are among the whole steps above
@pytest.mark.parametrize(
    "kind", ["ensemble", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("point", "dropout"))]
)
def test_baselines_are_those_of_the_reference(kind):
    options = {"make": BASELINES[kind], "average": kind == "point", "cold": 0.0}
    expected, found = (run(None, fused, 3, **options) for fused in (False, True))
    other = run(None, False, 3, average=kind == "point", cold=0.0)
    for ours, theirs, posteriors in zip(found.samples, expected.samples, other.samples):
        assert selftest_checks.relative(ours, theirs) < 1e-4
        assert selftest_checks.relative(posteriors, theirs) > 1e-3
    assert found.history[-1]["log_posterior"] == pytest.approx(expected.history[-1]["log_posterior"], rel=1e-4)


def test_buffers_serve_graphs_with_fewer_pairs(monkeypatch):
    monkeypatch.setattr("equibayes.engine.triton.model.padded", lambda count, unit: count)
    model = StochasticModel(TINY)
    weights = model.layout.forward_weights(selftest_cases.weights(model, 2, 3).float())
    line = np.arange(4.0)[:, None] * np.array([[0.6, 0.8, 0.0]])
    near, far = (replace(selftest_cases.cluster(4, 8), positions=spacing * line) for spacing in (1.2, 1.6))
    graphs = [
        graph_of(frame, r_max=TINY.r_max, species_of=selftest_cases.SPECIES).to(dtype=torch.float32)
        for frame in (near, far)
    ]
    pairs = [pairs_of(graph, 3).vector.shape[1] for graph in graphs]
    assert pairs[0] / 2 <= pairs[1] < pairs[0]
    fused = TritonModel(model, "float32")
    fused.forward(weights, graphs[0])
    passes = fused._passes
    found = fused.forward(weights, graphs[1])
    assert fused._passes is passes
    expected = TritonModel(model, "float32").forward(weights, graphs[1])
    assert selftest_checks.relative(found.forces, expected.forces) < 1e-6
    assert selftest_checks.relative(found.energy, expected.energy) < 1e-6
    assert selftest_checks.relative(found.forces, model.forward(weights, graphs[1]).forces) < 1e-4


def test_predictions_with_masks():
    model, frame = StochasticModel(TINY), selftest_cases.cluster(3, 8)
    graph = graph_of(frame, r_max=TINY.r_max, species_of=selftest_cases.SPECIES)
    weights = model.layout.forward_weights(selftest_cases.weights(model, 2, 3).float())
    mask = 2.0 * (torch.rand(2, 3, 16, generator=torch.Generator().manual_seed(1)) > 0.5).float()
    single = graph.to(dtype=torch.float32)
    expected = model.forward(weights, single, feature_mask=mask)
    fused = TritonModel(model, "float32")
    without = fused.forward(weights, single)
    found = fused.forward(weights, single, feature_mask=mask)
    assert selftest_checks.relative(found.forces, expected.forces) < 1e-4
    assert selftest_checks.relative(found.energy, expected.energy) < 1e-5
    assert selftest_checks.relative(found.log_sigma_forces, expected.log_sigma_forces) < 1e-4
    assert selftest_checks.relative(without.forces, expected.forces) > 1e-2


@pytest.mark.parametrize(
    ("capability", "precision", "stress"), [(80, "mixed", False), (90, "mixed", False), (90, "mixed", True)]
)
def test_kernels_compile_for_gpus_that_are_not_here(capability, precision, stress, tmp_path):
    """Ampere as well as Hopper: Triton compiles without a device.  The command is the one by which a run compiles in
    parallel."""
    work = {
        "network": asdict(replace(TINY, stress_head=stress)),
        "precision": precision,
        "chains": 1,
        "tuning": asdict(Tuning.best(precision, 5000)),
        "training": True,
        "target": ["cuda", capability, 32],
    }
    environment = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
    environment["TRITON_CACHE_DIR"] = str(tmp_path)
    command = [sys.executable, "-m", "equibayes.engine.triton.precompile", json.dumps(work), "1", "0"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert len(list(tmp_path.rglob("*.cubin"))) > 20


SHARED_MEMORY = {80: 163, 89: 99}
"""KiB of a program on an A100 and on an L4 or RTX 4090, by compute capability (CUDA C++ programming guide)."""


@pytest.mark.slow
@pytest.mark.parametrize("capability", [80, 89])
def test_kernels_fit_smaller_gpus(capability, tmp_path):
    """Those with matrix products, of the paper's network, in the default precision: the others need next to nothing."""
    work = {
        "network": asdict(preset("paper", **selftest_cases.SCALES)),
        "precision": "mixed",
        "chains": 1,
        "tuning": asdict(Tuning.best("mixed", 5000, narrow=capability == 89)),
        "training": True,
        "target": ["cuda", capability, 32],
    }
    script = """
import json, sys
from equibayes.engine.triton.precompile import launches_of

for (name, *_), (kernel, grid, arguments, options) in launches_of(json.loads(sys.argv[1])).items():
    if name in ("linear", "wide_linear", "weight_gradient", "radial_hidden", "radial_backward", "readout_gradient"):
        print(name, kernel.run(*arguments, grid=grid, warmup=True, **options).metadata.shared)
"""
    environment = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
    environment["TRITON_CACHE_DIR"] = str(tmp_path)
    command = [sys.executable, "-c", script, json.dumps(work)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    used = [(int(line.split()[1]), line.split()[0]) for line in done.stdout.splitlines()]
    assert len(used) >= 10
    assert max(used)[0] <= 1024 * SHARED_MEMORY[capability], max(used)


def test_neighbors_of_the_selftest():
    passed(selftest_steps.check_neighbors(60, "cpu"))
