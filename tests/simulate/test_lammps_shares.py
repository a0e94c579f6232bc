"""Samples divided among MPI ranks: which rank has which, and what real ranks compute with theirs."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from ase import Atoms, units

from equibayes.engine.native.compile import why_no_compiler
from equibayes.engine.select import VARIABLE
from equibayes.errors import InputError
from equibayes.posterior.file import Posterior
from equibayes.simulate.calculator import Calculator
from equibayes.simulate.lammps_library import threads_per_rank
from equibayes.simulate.lammps_shares import ATOMS_PER_RANK, divides_atoms, place_of, shares, waiting
from equibayes.simulate.trust import atom_deviations
from tests.samples import salt
from tests.simulate.lammps_parts import head, in_standard_form, mpirun, write_data
from tests.simulate.posteriors import random_posterior

COMPILED = pytest.mark.skipif(bool(why_no_compiler()), reason=str(why_no_compiler()))
ONE_GPU, OTHER_GPU = ("node1", "GPU-a"), ("node2", "GPU-a")


@pytest.mark.parametrize(
    ("places", "samples", "sizes"),
    [
        ([0], 3, [3]),
        ([0, 1], 3, [1, 2]),
        ([0, 1, 2], 3, [1, 1, 1]),
        ([0, 1, 2], 8, [2, 3, 3]),
        ([0, 1, 2, 3], 2, [1, 0, 1, 0]),
        ([0, 1, 2], 1, [1, 0, 0]),
        ([ONE_GPU, ONE_GPU], 4, [4, 0]),
        ([ONE_GPU, ONE_GPU, OTHER_GPU, OTHER_GPU], 4, [2, 0, 2, 0]),
        ([ONE_GPU, 1, 2], 3, [1, 1, 1]),
    ],
)
def test_each_sample_has_one_rank(places: list[object], samples: int, sizes: list[int]) -> None:
    divided = shares(places, samples)
    assert [0 if own is None else len(own) for own in divided] == sizes
    assert [i for own in divided if own for i in own] == list(range(samples)), "in order"
    assert divided[0], "the first rank combines them"


def test_ranks_that_wait_are_reported() -> None:
    """Unless they wait because another rank uses their GPU, which more samples would not change."""
    assert waiting(shares([0, 1], 2), [0, 1], 2) is None
    assert waiting(shares([ONE_GPU] * 3, 2), [ONE_GPU] * 3, 2) is None
    told = waiting(shares(range(5), 2), range(5), 2)
    assert told is not None
    assert told.startswith("3 of 5 MPI ranks wait")
    assert "use 2 ranks with more --threads" in told


def test_what_ranks_divide() -> None:
    large = 2 * ATOMS_PER_RANK
    assert divides_atoms("auto", 2, large, 8)
    assert not divides_atoms("auto", 3, large, 8)
    assert divides_atoms("auto", 9, 1000, 8), "samples would not be enough"
    assert not divides_atoms("auto", 1, 100 * large, 8)
    assert divides_atoms("atoms", 1, 1, 8)
    assert not divides_atoms("samples", 64, large, 1)
    with pytest.raises(InputError, match="divide=chains: must be auto, samples or atoms"):
        divides_atoms("chains", 2, large, 8)


def test_ranks_on_a_cpu_have_places_of_their_own() -> None:
    assert len({place_of(rank, torch.device("cpu")) for rank in range(3)}) == 3


def test_ranks_on_the_same_gpu_have_one_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each process may number the GPUs that it sees from 0, so the GPU itself decides."""
    gpu = torch.device("cuda")
    seen = []
    for uuid in ("a", "a", "b"):
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device, uuid=uuid: SimpleNamespace(uuid=uuid))
        seen.append(place_of(len(seen), gpu))
    assert shares(seen, 2) == [range(0, 1), None, range(1, 2)]


def test_ranks_of_one_machine_share_its_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 8)
    for name in ("MPI_LOCALNRANKS", "OMPI_COMM_WORLD_LOCAL_SIZE"):
        monkeypatch.delenv(name, raising=False)
    assert threads_per_rank(64) == 64, "a single rank keeps what it has"
    for ranks, most, threads in ((2, 8, 4), (2, 1, 1), (3, 8, 2), (16, 8, 1)):
        monkeypatch.setenv("MPI_LOCALNRANKS", str(ranks))
        assert threads_per_rank(most) == threads


PROGRAM = """
import json
import sys
import numpy as np, torch
from equibayes.simulate.lammps import attach
from equibayes.simulate.lammps_library import open_lammps, leave_ranks

def broken(*given):
    raise MemoryError("no room for a tensor")

torch.set_num_threads(1)
lmp = open_lammps(["-log", "none", "-screen", "none"])
lmp.file("in.salt")
dtype, divide = sys.argv[1:3]
options = {"elements": ["Cl", "Na"], "deviation": "epistemic", "device": "cpu", "dtype": dtype, "divide": divide}
potential = attach(lmp, "x.posterior", **options)
if sys.argv[3:] == [str(potential.ranks.rank)]:
    if divide == "samples":
        potential.share.evaluator.sampled = broken
    else:
        potential.share.part.load = broken
lmp.command("run 0 post no")
failures = potential.ranks.gather(repr(potential.failure))
own = 0 if potential.share.evaluator is None else len(potential.share.evaluator.ready.samples)
shares = potential.ranks.gather(own)
found = {name: lmp.get_thermo(name) for name in ("pe", "pxx", "pxy", "vol")}
found |= {name: lmp.extract_variable(name) for name in ("max_devi_f", "energy_std")}
count = lmp.extract_setting("nlocal")
rows = [np.array(lmp.numpy.extract_atom(name))[:count] for name in ("id", "d_devi_f")]
forces = np.array(lmp.numpy.extract_atom("f"))[:count]
atoms = potential.ranks.gather([[int(i), float(d), *map(float, f)] for i, d, f in zip(*rows, forces)])
if potential.ranks.first:
    found |= {"atoms": sorted(row for part in atoms for row in part), "shares": shares, "failures": failures}
    print(json.dumps(found))
lmp.close()
leave_ranks()
"""


def in_precision(posterior: Posterior, dtype: str) -> Posterior:
    network = replace(posterior.network, model_dtype=dtype)
    return replace(posterior, network=network, samples=posterior.samples.to(getattr(torch, dtype)))


def prepared(folder: Path, posterior: Posterior) -> Atoms:
    """A crystal, which is there for the program together with the posterior."""
    posterior.save(folder / "x.posterior")
    atoms = in_standard_form(salt().to_atoms())
    write_data(folder / "salt.data", atoms, ["Cl", "Na"])
    (folder / "in.salt").write_text(head("salt.data", atoms))
    return atoms


def computed(ranks: int, folder: Path, *words: str) -> dict[str, Any]:
    """What the program prints; words: the precision, what is divided, and the rank that fails, if any."""
    done = mpirun(ranks, [sys.executable, "-c", PROGRAM, *words], folder)
    assert (done.returncode, done.stderr) == (0, "")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize(
    ("ranks", "kind", "dtype", "divide", "sizes", "tolerance"),
    [
        (3, "dropout", "float64", "auto", [1, 1, 2], 1e-8),
        (2, "plain", "float32", "samples", [2, 2], 1e-8),
        pytest.param(2, "plain", "float32", "atoms", [4, 4], 1e-8, marks=COMPILED),
        pytest.param(3, "plain", "float32", "atoms", [4, 4, 4], 1e-8, marks=COMPILED),
    ],
)
def test_real_ranks_evaluate_their_shares(
    ranks: int,
    kind: str,
    dtype: str,
    divide: str,
    sizes: list[int],
    tolerance: float,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Their results together are those of one process; in float32 by the compiled engine, if there is one."""
    monkeypatch.setenv(VARIABLE, "auto" if dtype == "float32" else "reference")
    posterior = replace(random_posterior(4), dropout=0.2 if kind == "dropout" else 0.0)
    posterior = in_precision(posterior, dtype)
    atoms = prepared(tmp_path, posterior)
    calculator = Calculator(posterior, device="cpu", dtype=dtype)
    calculator.calculate(atoms)
    expected = calculator.results
    found = computed(ranks, tmp_path, dtype, divide)
    assert (found["shares"], found["failures"]) == (sizes, ["None"] * ranks)
    deviations = atom_deviations(expected["forces_epistemic"])
    assert deviations.min() > 100 * tolerance, "else nothing was tested"
    ids, devi_f, *forces = np.array(found["atoms"]).T
    np.testing.assert_array_equal(ids, np.arange(len(atoms)) + 1)
    np.testing.assert_allclose(devi_f, deviations, rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(np.transpose(forces), expected["forces"], rtol=tolerance, atol=tolerance)
    assert found["pe"] == pytest.approx(expected["energy"], rel=tolerance)
    assert found["energy_std"] == pytest.approx(expected["energy_uncertainty"], rel=tolerance)
    assert found["max_devi_f"] == pytest.approx(deviations.max(), rel=tolerance)
    pressure = -expected["stress"][[0, 5]] / units.bar
    np.testing.assert_allclose([found["pxx"], found["pxy"]], pressure, rtol=10 * tolerance)


@pytest.mark.parametrize(("rank", "divide"), [(0, "samples"), (1, "samples"), pytest.param(1, "atoms", marks=COMPILED)])
def test_an_error_on_one_rank_is_known_to_all(
    rank: int, divide: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others would wait for it, or go on without its samples."""
    monkeypatch.setenv(VARIABLE, "auto")
    posterior = in_precision(random_posterior(2), "float32")
    prepared(tmp_path, posterior)
    Calculator(posterior, device="cpu")  # compiles what the ranks need
    found = computed(2, tmp_path, "float32", divide, str(rank))
    assert found["failures"] == [repr(RuntimeError(repr(MemoryError("no room for a tensor"))))] * 2
