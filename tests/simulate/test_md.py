"""Molecular dynamics that watches itself: files, trust levels, what is not a number, and going on after a stop."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ase import Atoms, units
from ase.constraints import FixAtoms
from ase.io import read as ase_read

from equibayes.data import read
from equibayes.data.stress import full_to_voigt
from equibayes.engine.native.compile import why_no_compiler
from equibayes.engine.native.target import engine_name
from equibayes.engine.select import VARIABLE
from equibayes.errors import InputError
from equibayes.posterior.file import load
from equibayes.run.progress import Silent
from equibayes.simulate import md
from equibayes.simulate.calculator import Calculator
from equibayes.simulate.frames import read_frames, trajectory_frame
from equibayes.simulate.integrators import Conditions
from equibayes.simulate.log import COLUMNS, columns_for, columns_in, describe_step, header, read_log
from equibayes.simulate.md import MdResult, run_md
from equibayes.simulate.observables import single_sample
from equibayes.simulate.oracle import Query, Reply
from equibayes.simulate.reporter import folder_of
from equibayes.simulate.state import load_state
from equibayes.simulate.trust import Trust
from equibayes.simulate.watch import Watch
from tests.samples import salt
from tests.simulate.posteriors import ETHANOL, ethanol_start, random_posterior

POSTERIOR = load(ETHANOL)
HOT = Conditions("langevin", 300.0, 0.5, tau=50.0, seed=4)
EVERYTHING = Trust(1e-6)
"""Every frame is a candidate."""


class Spoiled(Calculator):
    """σ of atom 3, or its force, becomes something else after some calls."""

    def __init__(self, after: int, change: Callable[[dict[str, Any]], None]) -> None:
        super().__init__(POSTERIOR, device="cpu", k=2)
        self.calls, self.after, self.change = 0, after, change

    def calculate(self, *arguments: Any, **options: Any) -> None:
        super().calculate(*arguments, **options)
        self.calls += 1
        if self.calls > self.after:
            self.change(self.results)


def spoil(name: str, value: float) -> Callable[[dict[str, Any]], None]:
    return lambda results: results[name].__setitem__(3, value)


def run(path: Path, steps: int = 20, calculator: Calculator | None = None, **options: Any) -> MdResult:
    options.setdefault("conditions", HOT)
    conditions = options.pop("conditions")
    calculator = calculator or Calculator(POSTERIOR, device="cpu", k=2)
    return run_md(calculator, ethanol_start(), conditions, steps, path, **options)


def test_files(tmp_path: Path) -> None:
    result = run(tmp_path / "t.xyz", 25, watch=Watch(every=5))
    assert (result.step, result.ended, result.candidates) == (25, None, 0)
    log = read_log(tmp_path / "t-md/md.log")
    frames = ase_read(tmp_path / "t.xyz", ":")
    assert log["step"].tolist() == [atoms.info["step"] for atoms in frames] == [0, 5, 10, 15, 20, 25]
    np.testing.assert_allclose(log["time"], 0.5 * log["step"])
    assert (tmp_path / "t-md/md.svg").read_text().count("temperature, K") == 1
    last = frames[-1]
    prediction = POSTERIOR.subset(2).predict(last)
    np.testing.assert_allclose(last.positions, result.atoms.positions, atol=1e-7)
    np.testing.assert_allclose(last.get_forces(), prediction.forces, atol=1e-5)
    np.testing.assert_allclose(last.arrays["forces_std"], prediction.forces_std, atol=1e-5)
    np.testing.assert_allclose(last.get_momenta(), result.atoms.get_momenta(), atol=1e-7)
    sigma = np.sqrt(np.square(prediction.forces_std).mean(1))
    np.testing.assert_allclose(last.arrays["atom_sigma"], sigma, atol=1e-5)
    numbers = (log["max_devi_f"][-1], log["avg_devi_f"][-1], log["min_devi_f"][-1])
    np.testing.assert_allclose(numbers, (sigma.max(), sigma.mean(), sigma.min()), atol=1e-5)
    assert log["atom"][-1] == sigma.argmax()
    assert log["potential"][-1] == pytest.approx(prediction.energy, abs=1e-5)
    assert log["energy_std"][-1] == pytest.approx(prediction.energy_std, abs=1e-5)
    assert log["kinetic"][-1] == pytest.approx(result.atoms.get_kinetic_energy(), abs=1e-7)
    assert set(log["state"]) == {"trusted"}


def test_log_header_names_columns_units_and_levels(tmp_path: Path) -> None:
    run(tmp_path / "t.xyz", 2, watch=Watch(Trust(0.1, 0.5), deviation="epistemic"))
    lines = (tmp_path / "t-md/md.log").read_text().splitlines()
    assert "epistemic sigma" in lines[0]
    assert "lower trust level 0.1 eV/Å, upper trust level 0.5 eV/Å" in lines[0]
    assert "temperature K" in lines[1]
    assert "max_devi_f eV/Å" in lines[1]
    assert lines[2].removeprefix("# ").split() == list(COLUMNS)
    assert {"max_devi_f", "avg_devi_f", "min_devi_f"} < set(COLUMNS)


def test_epistemic_deviation(tmp_path: Path) -> None:
    for name in ("total", "epistemic"):
        run(tmp_path / f"{name}.xyz", 1, watch=Watch(deviation=name))
    total, epistemic = (read_log(tmp_path / f"{name}-md/md.log") for name in ("total", "epistemic"))
    expected = POSTERIOR.subset(2).predict(ethanol_start()).forces_epistemic
    assert epistemic["max_devi_f"][0] == pytest.approx(np.sqrt(np.square(expected).mean(1)).max(), abs=1e-6)
    assert total["max_devi_f"][0] > epistemic["max_devi_f"][0]


def test_stops_at_the_first_candidate(tmp_path: Path) -> None:
    hot = Conditions("nve", 900.0, 0.5, seed=4)
    free = run(tmp_path / "free.xyz", 30, conditions=hot, watch=Watch(every=1))
    deviations = read_log(tmp_path / "free-md/md.log")["max_devi_f"]
    level = float(deviations[0] + deviations.max()) / 2  # crossed somewhere on the way
    first = int(np.argmax(deviations >= level))
    assert 0 < first < 30
    result = run(tmp_path / "t.xyz", 30, conditions=hot, watch=Watch(Trust(level), "stop"))
    assert result.step == first
    assert result.ended is not None
    assert f"at step {first}: σ of atom" in result.ended
    assert "above the lower trust level" in result.ended
    (candidate,) = ase_read(tmp_path / "t-md/candidates.xyz", ":")
    assert candidate.info["step"] == first
    assert candidate.info["max_devi_f"] == pytest.approx(deviations[first], abs=1e-6)
    assert candidate.calc is None, "a prediction is no label"
    assert read(tmp_path / "t-md/candidates.xyz", require_labels=False)[0].forces is None
    log = read_log(tmp_path / "t-md/md.log")
    assert (log["step"][-1], log["state"][-1]) == (first, "candidate"), "the crossing is in the log"
    assert free.statistics.largest == pytest.approx(deviations.max(), abs=1e-6)
    assert free.statistics.largest_step == int(deviations.argmax())


def test_writes_candidates_and_goes_on(tmp_path: Path) -> None:
    result = run(tmp_path / "t.xyz", 25, watch=Watch(EVERYTHING, "write", candidate_gap=10))
    frames = ase_read(tmp_path / "t-md/candidates.xyz", ":")
    assert [atoms.info["step"] for atoms in frames] == [0, 10, 20], "one in ten steps"
    assert (result.step, result.candidates, result.ended) == (25, 3, None)
    assert result.statistics.states["candidate"] == 26


class Guide:
    """An oracle that knows every second query better: with the posterior's other samples."""

    identity: dict[str, Any] = {"guide": "the same"}  # noqa: RUF012

    def __init__(self) -> None:
        self.queries: list[Query] = []

    def begin(self, folder: Path, asked: int | None, display: Any) -> Calculator | None:
        return self.calculator((asked or 0) - 1) if asked else None

    def answer(self, query: Query) -> Reply:
        self.queries.append(query)
        return Reply(self.calculator(query.number))

    def calculator(self, number: int) -> Calculator:
        return Calculator(single_sample(POSTERIOR, number % 2 + 2), device="cpu")


def test_asks_and_goes_on_with_the_answer(tmp_path: Path) -> None:
    """The frame goes on under the new calculator, and what is conserved does not leap with the energy."""
    guide = Guide()
    watch = Watch(EVERYTHING, "label", every=1, candidate_gap=4)
    result = run(tmp_path / "t.xyz", 10, conditions=Conditions("nve", 300.0, 0.1), watch=watch, oracle=guide)
    assert (result.asked, result.candidates, result.ended) == (3, 3, None)
    assert [(q.number, q.step) for q in guide.queries] == [(0, 0), (1, 4), (2, 8)]
    frames, log = ase_read(tmp_path / "t.xyz", ":"), read_log(tmp_path / "t-md/md.log")
    for step, sample in ((0, 2), (3, 2), (4, 3), (7, 3), (8, 2)):
        expected = single_sample(POSTERIOR, sample).predict(frames[step])
        np.testing.assert_allclose(frames[step].get_forces(), expected.forces, atol=1e-5, err_msg=str(step))
    assert np.abs(np.diff(log["potential"])).max() > 0.01, "the samples differ"
    assert np.abs(np.diff(log["conserved"])).max() < 1e-4


def test_asking_goes_on_bit_for_bit(tmp_path: Path) -> None:
    watch = Watch(EVERYTHING, "label", every=3, save_every=5, candidate_gap=4)
    run(tmp_path / "whole.xyz", 18, watch=watch, oracle=Guide())
    for number, steps in enumerate((5, 9, 18)):
        run(tmp_path / "parts.xyz", steps, watch=watch, oracle=Guide(), resume=number > 0)
    assert_same(tmp_path / "parts.xyz", tmp_path / "whole.xyz")


def test_killed_before_the_start_was_judged(tmp_path: Path) -> None:
    """A query about the start may take long: a run that is killed while it is open goes on with it."""
    watch = Watch(EVERYTHING, "label", every=3, candidate_gap=4)

    class Killed(Guide):
        def answer(self, query: Query) -> Reply:
            raise KeyboardInterrupt

    run(tmp_path / "whole.xyz", 6, watch=watch, oracle=Guide())
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "parts.xyz", 6, watch=watch, oracle=Killed())
    run(tmp_path / "parts.xyz", 6, watch=watch, oracle=Guide(), resume=True)
    assert_same(tmp_path / "parts.xyz", tmp_path / "whole.xyz")


def test_asking_needs_somebody_and_a_level(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="needs a lower trust level"):
        Watch(Trust(None, 1.0), "label")
    with pytest.raises(InputError, match="needs an oracle to ask"):
        run(tmp_path / "t.xyz", watch=Watch(EVERYTHING, "label"))
    result = run(tmp_path / "t.xyz", watch=Watch(Trust(1e-7, 1e-6), "label"), oracle=(guide := Guide()))
    assert (result.step, guide.queries) == (0, []), "nobody is asked about what has exploded"


def test_log_only_goes_on(tmp_path: Path) -> None:
    result = run(tmp_path / "t.xyz", 5, watch=Watch(Trust(1e-7, 1e-6), "log"))
    assert (result.step, result.ended) == (5, None)
    assert (tmp_path / "t-md/candidates.xyz").read_text() == ""
    assert result.statistics.fraction("exploded") == 1.0


def test_exploded_frames_are_not_kept(tmp_path: Path) -> None:
    result = run(tmp_path / "t.xyz", 5, watch=Watch(Trust(1e-7, 1e-6), "write"))
    assert result.step == 0
    assert "above the upper trust level" in str(result.ended)
    assert (tmp_path / "t-md/candidates.xyz").read_text() == ""


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("what", ["forces_uncertainty", "forces_epistemic"])
def test_sigma_that_is_no_number_is_not_certain(tmp_path: Path, what: str, value: float) -> None:
    """Not even where no level was set, and never a candidate."""
    deviation = "total" if what == "forces_uncertainty" else "epistemic"
    for on_uncertain in ("write", "stop"):
        path = tmp_path / f"{on_uncertain}.xyz"
        watch = Watch(EVERYTHING, on_uncertain, deviation)
        result = run(path, 20, Spoiled(6, spoil(what, value)), watch=watch)
        log = read_log(folder_of(path) / "md.log")
        if on_uncertain == "write":
            assert result.step == 6
            assert "σ of atom 3 (H) is not finite: the model does not know" in str(result.ended)
            assert log["state"][-1] == "unknown"
            assert log["max_devi_f"][-1] == np.inf
        assert {atoms.info["step"] for atoms in ase_read(folder_of(path) / "candidates.xyz", ":")} == {0}
    result = run(tmp_path / "log.xyz", 20, Spoiled(6, spoil(what, value)), watch=Watch(deviation=deviation))
    assert result.step == 20, "with finite forces the dynamics can go on"
    assert result.statistics.states["unknown"] == 15
    assert np.isfinite(result.statistics.largest)


def test_forces_that_are_no_numbers_end_it(tmp_path: Path) -> None:
    result = run(tmp_path / "t.xyz", 20, Spoiled(6, spoil("forces", np.nan)), watch=Watch(every=1))
    assert "exploded" in str(result.ended)
    assert result.step in (6, 7)
    for atoms in ase_read(tmp_path / "t.xyz", ":"):
        assert np.isfinite(atoms.positions).all()
        assert np.isfinite(atoms.get_forces()).all()


@pytest.mark.parametrize("force", [1e4, 1e308])
def test_leaps_end_it(tmp_path: Path, force: float) -> None:
    """Finite numbers alone do not make a simulation: the atom is flung away to where the model is at ease again."""
    result = run(tmp_path / "t.xyz", 20, Spoiled(6, spoil("forces", force)), watch=Watch())
    assert "exploded at step" in str(result.ended)
    assert result.step in (6, 7)


@pytest.mark.parametrize("ensemble", ["nve", "langevin", "bussi"])
def test_goes_on_bit_for_bit(tmp_path: Path, ensemble: str) -> None:
    """Stopped twice, at steps that are none of the regular ones; files and state are those of a run in one go."""
    conditions = Conditions(ensemble, 400.0, 0.5, tau=30.0, seed=7)
    watch = Watch(EVERYTHING, "write", every=4, save_every=6)
    run(tmp_path / "whole.xyz", 30, conditions=conditions, watch=watch)
    for number, steps in enumerate((7, 19, 30)):
        run(tmp_path / "parts.xyz", steps, conditions=conditions, watch=watch, resume=number > 0)
    assert_same(tmp_path / "parts.xyz", tmp_path / "whole.xyz")


@pytest.mark.parametrize("ensemble", ["npt", "npt-anisotropic"])
def test_pressure_goes_on_bit_for_bit(tmp_path: Path, ensemble: str) -> None:
    conditions = Conditions(ensemble, 300.0, 1.0, tau=30.0, pressure=1.0, pressure_tau=100.0, seed=7)
    posterior, start = random_posterior(2, stress_head=True), salt().to_atoms()
    start.set_cell(np.diag(start.cell.lengths()), scale_atoms=True)

    def go(name: str, steps: int, resume: bool = False) -> MdResult:
        calculator = Calculator(posterior, device="cpu")
        return run_md(calculator, start, conditions, steps, tmp_path / name, watch=Watch(every=2), resume=resume)

    result = go("whole.xyz", 12)
    go("parts.xyz", 5)
    go("parts.xyz", 12, resume=True)
    assert_same(tmp_path / "parts.xyz", tmp_path / "whole.xyz")
    assert result.atoms.get_volume() != start.get_volume()
    assert "Lattice" in (tmp_path / "whole.xyz").read_text()
    log = read_log(tmp_path / "whole-md/md.log")
    assert "volume Å³, pressure GPa, a Å, b Å, c Å, pressure_std GPa" in (tmp_path / "whole-md/md.log").read_text()
    last = result.atoms
    assert log["volume"][-1] == pytest.approx(last.get_volume(), abs=1e-6)
    pressure = -np.trace(last.get_stress(voigt=False, include_ideal_gas=True)) / 3 / units.GPa
    assert log["pressure"][-1] == pytest.approx(pressure, abs=1e-5)
    sigma = Calculator(posterior, device="cpu")
    sigma.calculate(last)
    assert log["pressure_std"][-1] == pytest.approx(sigma.results["pressure_std"] / units.GPa, abs=1e-5)
    assert log["pressure_std"][-1] > 0.01
    lengths = [log[name][-1] for name in "abc"]
    np.testing.assert_allclose(lengths, last.cell.lengths(), atol=1e-6)
    assert (np.ptp(lengths / start.cell.lengths()) > 1e-6) == (ensemble == "npt-anisotropic")


def held_and_heavy() -> Atoms:
    """Ethanol with a fixed carbon, a deuterium and velocities of its own."""
    start = ethanol_start()
    start.set_constraint(FixAtoms([0]))
    masses = start.get_masses()
    masses[-1] = 2.014
    start.set_masses(masses)
    start.set_momenta(np.random.default_rng(1).normal(scale=0.3, size=(len(start), 3)))
    return start


@pytest.mark.parametrize("ensemble", ["nve", "langevin", "bussi"])
def test_constraints_masses_and_velocities_are_kept(tmp_path: Path, ensemble: str) -> None:
    conditions = Conditions(ensemble, 400.0, 0.5, tau=30.0, seed=7)
    start, watch = held_and_heavy(), Watch(every=1)

    def go(name: str, steps: int, resume: bool = False, start: Atoms = start) -> MdResult:
        calculator = Calculator(POSTERIOR, device="cpu", k=2)
        return run_md(calculator, start, conditions, steps, tmp_path / name, watch=watch, resume=resume)

    result = go("whole.xyz", 12)
    go("parts.xyz", 5)
    go("parts.xyz", 12, resume=True)
    assert_same(tmp_path / "parts.xyz", tmp_path / "whole.xyz")
    np.testing.assert_array_equal(result.atoms.positions[0], start.positions[0])
    np.testing.assert_array_equal(result.atoms.get_masses(), start.get_masses())
    frames = ase_read(tmp_path / "whole.xyz", ":")
    np.testing.assert_allclose(frames[0].get_momenta(), start.get_momenta(), atol=1e-8)
    np.testing.assert_allclose(frames[-1].get_masses(), start.get_masses())
    assert frames[-1].constraints[0].index.tolist() == [0], "a run that starts from this frame holds it too"
    assert np.abs(np.stack([atoms.positions[0] for atoms in frames]) - start.positions[0]).max() < 1e-7
    kinetic = read_log(tmp_path / "whole-md/md.log")["kinetic"][0]
    assert kinetic == pytest.approx(start.get_kinetic_energy(), abs=1e-7)
    temperature = read_log(tmp_path / "whole-md/md.log")["temperature"][0]
    assert temperature == pytest.approx(2 * kinetic / (24 * units.kB), abs=1e-3), "8 atoms with 3 degrees of freedom"
    free = held_and_heavy()
    free.set_constraint()
    with pytest.raises(InputError, match="start was"):
        go("parts.xyz", 14, resume=True, start=free)


def assert_same(path: Path, expected: Path) -> None:
    """Trajectory, log and candidates byte for byte, state bit for bit."""
    assert path.read_bytes() == expected.read_bytes()
    ours, theirs = folder_of(path), folder_of(expected)
    assert (ours / "md.log").read_bytes() == (theirs / "md.log").read_bytes()
    candidates = [(place / "candidates.xyz").read_text() for place in (ours, theirs)]
    assert candidates[0].replace(path.name, expected.name) == candidates[1]
    first, second = (load_state(place / "state.safetensors", {}) for place in (ours, theirs))
    for name, array in second.memory.items():
        np.testing.assert_array_equal(first.memory[name], array)
    assert (first.rng, first.step, first.statistics) == (second.rng, second.step, second.statistics)


@pytest.mark.skipif(bool(why_no_compiler()), reason=str(why_no_compiler()))
def test_a_simulation_keeps_its_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One begun by the reference goes on with it where the compiled engine would be the default, to the same bits."""
    network = replace(POSTERIOR.network, model_dtype="float32")
    posterior, said = replace(POSTERIOR, network=network, samples=POSTERIOR.samples.float()), Told()

    def go(name: str, steps: int, **options: Any) -> MdResult:
        return run(tmp_path / name, steps, Calculator(posterior, device="cpu", k=2), display=said, **options)

    go("whole.xyz", 10)
    go("t.xyz", 5)
    monkeypatch.setenv(VARIABLE, "auto")
    assert Calculator(posterior, device="cpu").engine == engine_name()
    assert go("t.xyz", 10, resume=True).engine == "reference"
    assert_same(tmp_path / "t.xyz", tmp_path / "whole.xyz")
    assert "engine reference" in (tmp_path / "t-md/md.log").read_text()
    assert not said.lines
    monkeypatch.setenv(VARIABLE, "native")
    go("t.xyz", 12, resume=True)
    assert "began with the engine reference and goes on with native-" in said.lines[0]
    assert load_state(tmp_path / "t-md/state.safetensors", {}).engine == engine_name()


class Told(Silent):
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, message: str) -> None:
        self.lines.append(message)


def test_what_came_after_the_state_is_forgotten(tmp_path: Path) -> None:
    """A kill leaves files that are longer than the state knows; they are cut back."""
    watch = Watch(every=2)
    run(tmp_path / "whole.xyz", 20, watch=watch)
    run(tmp_path / "t.xyz", 10, watch=watch)
    with (tmp_path / "t.xyz").open("a") as file:
        file.write("9\nhalf a fra")
    with (tmp_path / "t-md/md.log").open("a") as file:
        file.write("     12   6.0")
    run(tmp_path / "t.xyz", 20, watch=watch, resume=True)
    assert_same(tmp_path / "t.xyz", tmp_path / "whole.xyz")


def test_refusals(tmp_path: Path) -> None:
    path = tmp_path / "t.xyz"
    with pytest.raises(InputError, match="nothing to resume from; start without --resume"):
        run(path, resume=True)
    run(path, 4)
    with pytest.raises(InputError, match="exists already; continue it with --resume or replace it with --overwrite"):
        run(path, 4)
    with pytest.raises(InputError, match=r"temperature was 300.0 and is 350.0 now"):
        run(path, 8, conditions=Conditions("langevin", 350.0, 0.5, tau=50.0, seed=4), resume=True)
    with pytest.raises(InputError, match="posterior was"):
        run(path, 8, Calculator(POSTERIOR, device="cpu", k=3), resume=True)
    with pytest.raises(InputError, match=r"trust-lo was None and is 0.1 now"):
        run(path, 8, watch=Watch(Trust(0.1)), resume=True)
    with pytest.raises(InputError, match="steps 0"):
        run(tmp_path / "u.xyz", 0)
    with pytest.raises(InputError, match=r"must end in .xyz"):
        run(tmp_path / "u.traj", 1)
    path.write_text("")
    with pytest.raises(InputError, match="it was changed since"):
        run(path, 8, resume=True)
    assert run(path, 4, overwrite=True).step == 4


def test_finished_runs_can_be_longer_and_nothing_is_done_twice(tmp_path: Path) -> None:
    run(tmp_path / "t.xyz", 5)
    assert run(tmp_path / "t.xyz", 5, resume=True).steps_done == 0
    assert run(tmp_path / "t.xyz", 9, resume=True).steps_done == 4


def test_statistics(tmp_path: Path) -> None:
    """Mean temperature and the slope of the conserved energy are those of the log with a line for each step."""
    result = run(tmp_path / "t.xyz", 40, conditions=Conditions("nve", 300.0, 0.5), watch=Watch(every=1))
    log, statistics = read_log(tmp_path / "t-md/md.log"), result.statistics
    assert statistics.frames == 41
    assert statistics.mean_temperature == pytest.approx(log["temperature"].mean(), abs=1e-2)
    assert statistics.temperature_spread == pytest.approx(log["temperature"].std(), abs=1e-2)
    slope = np.polyfit(log["time"], log["conserved"], 1)[0] * 1e6 / 9
    assert statistics.drift(9) == pytest.approx(slope, rel=1e-3, abs=1e-3)


def test_display_is_told(tmp_path: Path) -> None:
    class Listener(Silent):
        def __init__(self) -> None:
            self.shown: list[dict[str, Any]] = []

        def show(self, record: dict[str, Any]) -> None:
            self.shown.append(record)

    listener = Listener()
    run(tmp_path / "t.xyz", 20, watch=Watch(Trust(100.0)), display=listener)
    assert [record["step"] for record in listener.shown] == [0, 10, 20]
    words = describe_step(listener.shown[0])
    assert words["T"].endswith(" K")
    assert words["largest σ"].endswith(" meV/Å")
    assert words["frame"] == "trusted"
    assert describe_step({"step": 3, "temperature": 1.0, "largest_sigma": np.inf})["largest σ"] == "not finite"


def test_example_of_the_docstring(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("ethanol.posterior").write_bytes(ETHANOL.read_bytes())
    lines = [line[4:] for line in (md.__doc__ or "").splitlines() if line.startswith("    ")]
    names: dict[str, Any] = {}
    exec("\n".join(lines).replace("2000", "3"), names)
    assert names["result"].step == 3
    assert Path("traj.xyz").exists()
    assert Path("traj-md/candidates.xyz").exists()


def test_a_trajectory_of_a_crystal_has_the_deviation_of_its_stress(tmp_path: Path) -> None:
    atoms = salt().to_atoms()
    calculator = Calculator(random_posterior(2, stress_head=True), device="cpu")
    calculator.calculate(atoms)
    (tmp_path / "t.xyz").write_text(trajectory_frame(atoms, calculator.results, 0, 0.0))
    (frame,) = read_frames(tmp_path / "t.xyz")
    for name in ("stress_std", "stress_epistemic", "stress_aleatoric"):
        assert frame.info[name].dtype == np.float64
        np.testing.assert_allclose(full_to_voigt(frame.info[name]), calculator.results[name], rtol=1e-6)
    assert frame.info["stress_std"].max() > 0
    assert frame.info["pressure_std"] == pytest.approx(calculator.results["pressure_std"], rel=1e-6)


def test_a_log_of_a_version_without_the_deviation_of_the_pressure(tmp_path: Path) -> None:
    """It is read, and goes on with the columns that it has."""
    old = [name for name in columns_for("npt") if name != "pressure_std"]
    values = " ".join("trusted" if name == "state" else "1" for name in old)
    path = tmp_path / "md.log"
    path.write_text(header(Trust(), "total", old) + values + "\n")
    assert columns_in(path.read_text()) == old
    assert read_log(path)["volume"].tolist() == [1.0]
