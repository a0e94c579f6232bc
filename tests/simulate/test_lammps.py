"""Real LAMMPS held to the ASE calculator with the same posterior, and to what simulations with it must keep."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from ase import Atoms, units
from ase.build import molecule
from ase.calculators.calculator import PropertyNotImplementedError
from ase.md.velocitydistribution import thermalize_momenta
from ase.md.verlet import VelocityVerlet

from equibayes.errors import InputError, InputWarning
from equibayes.simulate.calculator import Calculator
from equibayes.simulate.lammps import LammpsPotential, attach, run_script
from equibayes.simulate.lammps_library import open_lammps
from equibayes.simulate.trust import Trust, atom_deviations
from equibayes.units import GPA, KCAL_PER_MOL
from tests.samples import one_atom_cell, salt, silicon, slab, water
from tests.simulate.lammps_parts import by_id, head, in_standard_form, quiet_lammps, thermo, write_data
from tests.simulate.posteriors import ETHANOL, ethanol_start, linearised, random_posterior


def water_box() -> Atoms:
    """Eight molecules in a skewed periodic cell."""
    one = molecule("H2O", cell=[[3.2, 0, 0], [0.4, 3.1, 0], [-0.3, 0.5, 3.3]], pbc=True)
    box = one.repeat(2)
    box.rattle(0.1, seed=1)
    return box


POSTERIOR = random_posterior(stress_head=True)
STRUCTURES = {
    "water": water().to_atoms(),
    "liquid water": water_box(),
    "silicon, triclinic": in_standard_form(silicon().to_atoms()),
    "salt, triclinic": in_standard_form(salt().to_atoms()),
    "slab": in_standard_form(slab().to_atoms()),
    "one atom": in_standard_form(one_atom_cell().to_atoms()),
}


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


def attached(folder: Path, atoms: Atoms, **options: Any) -> tuple[Any, LammpsPotential]:
    elements = sorted(set(atoms.symbols))
    lmp = quiet_lammps(folder, atoms, elements, options.pop("units", "metal"))
    options = {"elements": elements, "device": "cpu", **options}
    return lmp, attach(lmp, options.pop("posterior", POSTERIOR), **options)


def water_script(folder: Path, commands: str) -> Path:
    """A script that reads one water molecule and then runs these commands."""
    atoms = STRUCTURES["water"]
    write_data(folder / "water.data", atoms, ["O", "H"])
    script = folder / "in.water"
    script.write_text(head(str(folder / "water.data"), atoms) + commands)
    return script


def run_water(script: Path, log: Path | str = "none") -> LammpsPotential:
    return run_script(POSTERIOR, script, elements=["O", "H"], log=str(log), screen=False, device="cpu")


def calculated(atoms: Atoms, **options: Any) -> dict[str, Any]:
    calculator = Calculator(POSTERIOR, device="cpu", **options)
    calculator.calculate(atoms)
    return calculator.results


def virial_of(lmp: Any) -> np.ndarray:
    """[3, 3] in units of energy, from LAMMPS' pressure; atoms must be at rest."""
    lmp.command("run 0 post no")
    xx, yy, zz, xy, xz, yz = (lmp.get_thermo(f"p{d}") for d in ("xx", "yy", "zz", "xy", "xz", "yz"))
    pressure = np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])
    return pressure * lmp.get_thermo("vol") / lmp.extract_global("nktv2p")


@pytest.mark.parametrize("name", STRUCTURES)
def test_equal_to_the_calculator(name: str, tmp_path: Path) -> None:
    atoms = STRUCTURES[name]
    lmp, _ = attached(tmp_path, atoms)
    virial, expected = virial_of(lmp), calculated(atoms)
    assert lmp.get_thermo("pe") == pytest.approx(expected["energy"], rel=0, abs=1e-8)
    np.testing.assert_allclose(by_id(lmp, "f"), expected["forces"], rtol=0, atol=1e-8)
    assert name == "one atom" or np.abs(expected["forces"]).max() > 0.01, "else nothing was tested"
    np.testing.assert_allclose(
        by_id(lmp, "d_devi_f"), atom_deviations(expected["forces_uncertainty"]), rtol=0, atol=1e-8
    )
    each = atom_deviations(expected["forces_uncertainty"])
    found = [lmp.extract_variable(v) for v in ("max_devi_f", "avg_devi_f", "min_devi_f", "energy_std")]
    np.testing.assert_allclose(found, [each.max(), each.mean(), each.min(), expected["energy_uncertainty"]], atol=1e-8)
    if atoms.pbc.all():  # in bar
        assert lmp.extract_variable("pressure_std") == pytest.approx(expected["pressure_std"] / GPA * 1e4, rel=1e-8)
        stress = Calculator(POSTERIOR, device="cpu").get_stress(atoms)
        expected_virial = -atoms.get_volume() * stress[[[0, 5, 4], [5, 1, 3], [4, 3, 2]]]
    elif not atoms.pbc.any():
        expected_virial = np.einsum("ni,nj->ij", atoms.positions, expected["forces"])
    else:  # the same slab with emptiness between its images
        with pytest.raises(PropertyNotImplementedError):
            Calculator(POSTERIOR, device="cpu").get_stress(atoms)
        apart = atoms.copy()
        apart.set_cell([*atoms.cell[:2], [0, 0, 40]])
        apart.pbc = True
        stress = Calculator(POSTERIOR, device="cpu").get_stress(apart)
        expected_virial = -apart.get_volume() * stress[[[0, 5, 4], [5, 1, 3], [4, 3, 2]]]
        spread = calculated(apart)["pressure_std"] * apart.get_volume() / lmp.get_thermo("vol")
        assert lmp.extract_variable("pressure_std") == pytest.approx(spread / GPA * 1e4, rel=1e-8), "of the box"
    np.testing.assert_allclose(virial, expected_virial, rtol=0, atol=1e-8)


def test_linearised_posterior(tmp_path: Path) -> None:
    """Forces, σ and virial of a crystal are those of the calculator with the same posterior."""
    posterior, atoms = linearised(POSTERIOR), STRUCTURES["salt, triclinic"]
    lmp, _ = attached(tmp_path, atoms, posterior=posterior)
    direct = Calculator(posterior, device="cpu")
    direct.calculate(atoms)
    stress = direct.get_stress(atoms)
    virial = -atoms.get_volume() * stress[[[0, 5, 4], [5, 1, 3], [4, 3, 2]]]
    np.testing.assert_allclose(virial_of(lmp), virial, rtol=0, atol=1e-8)
    np.testing.assert_allclose(by_id(lmp, "f"), direct.results["forces"], rtol=0, atol=1e-8)
    each = atom_deviations(direct.results["forces_uncertainty"])
    np.testing.assert_allclose(by_id(lmp, "d_devi_f"), each, rtol=0, atol=1e-8)
    assert np.abs(direct.results["forces"] - calculated(atoms)["forces"]).max() > 1e-3, "else nothing was tested"


def test_epistemic_deviation(tmp_path: Path) -> None:
    atoms = STRUCTURES["water"]
    lmp, _ = attached(tmp_path, atoms, deviation="epistemic")
    lmp.command("run 0 post no")
    expected = atom_deviations(calculated(atoms)["forces_epistemic"])
    np.testing.assert_allclose(by_id(lmp, "d_devi_f"), expected, rtol=0, atol=1e-10)


def test_first_samples_and_single_precision(tmp_path: Path) -> None:
    atoms = STRUCTURES["water"]
    lmp, _ = attached(tmp_path, atoms, k=1, dtype="float32")
    lmp.command("run 0 post no")
    expected = calculated(atoms, k=1, dtype="float32")
    np.testing.assert_allclose(by_id(lmp, "f"), expected["forces"], rtol=0, atol=1e-5)


def test_units_real(tmp_path: Path) -> None:
    atoms = STRUCTURES["salt, triclinic"]
    metal, _ = attached(tmp_path, atoms)
    real, _ = attached(tmp_path, atoms, units="real", trust=Trust(0.1, 0.2))
    np.testing.assert_allclose(virial_of(real) * KCAL_PER_MOL, virial_of(metal), rtol=0, atol=1e-8)
    assert real.get_thermo("pe") * KCAL_PER_MOL == pytest.approx(metal.get_thermo("pe"), rel=1e-12)
    for name in ("f", "d_devi_f"):
        np.testing.assert_allclose(by_id(real, name) * KCAL_PER_MOL, by_id(metal, name), rtol=0, atol=1e-10)
    for name in ("max_devi_f", "energy_std"):
        assert real.extract_variable(name) * KCAL_PER_MOL == pytest.approx(metal.extract_variable(name), rel=1e-12)
    atmosphere = 1.01325  # bar
    assert real.extract_variable("pressure_std") * atmosphere == pytest.approx(metal.extract_variable("pressure_std"))
    assert real.extract_variable("trust_hi") * KCAL_PER_MOL == pytest.approx(0.2, rel=1e-12)


def test_atoms_that_leave_the_cell(tmp_path: Path) -> None:
    """They come in again on the other side; forces stay right, and the neighbour list need not be made again for
    that.
    """
    atoms = in_standard_form(salt().to_atoms())
    lmp, potential = attached(tmp_path, atoms)
    lmp.commands_string(
        "fix integrate all nve\nneigh_modify every 1 delay 0 check no\nvelocity all set 40 25 -30\nrun 200 post no"
    )
    moved = atoms.copy()
    moved.positions = by_id(lmp, "x")
    travelled = 0.2 * np.array([40, 25, -30])
    assert (travelled**2).sum() > (atoms.cell.lengths() ** 2).max(), "else none left it"
    assert np.abs(moved.positions - atoms.positions - travelled).max() > 3, "else none came in again"
    np.testing.assert_allclose(by_id(lmp, "f"), calculated(moved)["forces"], rtol=0, atol=1e-8)
    searches = potential.share.evaluator.lists[0].searches
    assert searches < 60, "one for every quarter of an Å that all atoms move"


def ethanol_lammps(folder: Path, temperature: float = 300.0) -> tuple[Any, Atoms]:
    """The molecule that holds together, with velocities."""
    atoms = ethanol_start()
    thermalize_momenta(atoms, temperature, rng=np.random.default_rng(0))
    lmp, _ = attached(folder, atoms, posterior=ETHANOL, k=1)
    order = np.array(lmp.numpy.extract_atom("id"))[: len(atoms)] - 1
    lmp.numpy.extract_atom("v")[: len(atoms)] = (atoms.get_velocities() * 1000 * units.fs)[order]  # Å/ps
    lmp.command("fix integrate all nve")
    return lmp, atoms


def test_same_trajectory_as_ase(tmp_path: Path) -> None:
    lmp, atoms = ethanol_lammps(tmp_path)
    start = atoms.positions.copy()
    lmp.commands_string("timestep 0.0005\nrun 60 post no")
    atoms.calc = Calculator(ETHANOL, device="cpu", k=1)
    VelocityVerlet(atoms, 0.5 * units.fs).run(60)
    assert np.abs(atoms.positions - start).max() > 0.1
    # their constants of nature differ in the seventh digit
    np.testing.assert_allclose(by_id(lmp, "x"), atoms.positions, rtol=0, atol=1e-6)


def test_energy_is_conserved(tmp_path: Path) -> None:
    """The error of velocity Verlet falls with the square of the time step; that of wrong forces would not."""
    spread = {}
    for steps, timestep in ((100, 0.0005), (200, 0.00025)):
        lmp, _ = ethanol_lammps(tmp_path)
        lmp.commands_string(f"timestep {timestep}\nthermo 1\nrun 0 post no")
        energies, kinetic = [lmp.get_thermo("etotal")], [lmp.get_thermo("ke")]
        for _ in range(50):
            lmp.command(f"run {steps // 50} pre no post no")
            energies.append(lmp.get_thermo("etotal"))
            kinetic.append(lmp.get_thermo("ke"))
        spread[timestep] = np.ptp(energies)
        assert np.ptp(energies) < 0.05 * np.ptp(kinetic)
    assert 3 < spread[0.0005] / spread[0.00025] < 5


BARRIER = """
pair_style lj/smooth/linear 6.0
pair_coeff * * 0.2 2.65
"""
"""A random network binds nothing; Lennard-Jones, added to it, keeps atoms apart and together."""


def test_constant_pressure(tmp_path: Path) -> None:
    """A barostat conserves its extended energy only if virial and energy belong together."""
    atoms = in_standard_form(salt().to_atoms())
    atoms.set_cell(0.945 * atoms.cell, scale_atoms=True)
    write_data(tmp_path / "salt.data", atoms, ["Cl", "Na"])
    script = tmp_path / "in.npt"
    script.write_text(
        head(str(tmp_path / "salt.data"), atoms)
        + BARRIER
        + "thermo_style custom step temp press vol pe econserve v_max_devi_f\nthermo 5\ntimestep 0.0005\n"
        + "minimize 0 1e-2 40 60\nreset_timestep 0\nvelocity all create 200 7\n"
        + "fix move all npt temp 200 200 0.05 tri 0 0 0.25\nthermo_modify norm no format float %.12g\nrun 200\n"
    )
    run_script(POSTERIOR, script, elements=["Cl", "Na"], log=str(tmp_path / "log"), screen=False, device="cpu")
    *_, run = thermo(tmp_path / "log")
    assert len(run["Step"]) == 41
    assert np.ptp(run["Volume"]) > 0.01 * run["Volume"][0], "else the cell did not move"
    assert np.abs(run["Volume"] / run["Volume"][0] - 1).max() < 0.3, "and neither collapsed nor burst"
    assert 20 < run["Temp"].mean() < 800
    exchanged = np.ptp(run["PotEng"])
    assert np.ptp(run["Econserve"]) < 2e-3 * exchanged


def test_minimize(tmp_path: Path) -> None:
    lmp, _ = attached(tmp_path, ethanol_start(), posterior=ETHANOL, k=1)
    lmp.command("run 0 post no")
    before, force = lmp.get_thermo("pe"), np.abs(by_id(lmp, "f")).max()
    lmp.command("minimize 0 0.01 60 200")
    assert lmp.get_thermo("pe") < before - 0.05
    assert np.abs(by_id(lmp, "f")).max() < 0.5 * force


def test_restart(tmp_path: Path) -> None:
    atoms = in_standard_form(salt().to_atoms())
    data = str(tmp_path / "salt.data")
    write_data(tmp_path / "salt.data", atoms, ["Cl", "Na"])
    rest = "fix integrate all nve\nrun {steps} upto\n"
    rest += "write_dump all custom {end} id xu yu zu vx fx d_devi_f modify sort id format float %20.15g\n"
    start = head(data, atoms) + "velocity all create 600 3\ntimestep 0.0005\n"
    save = f"write_restart {tmp_path}/half\n"
    scripts = {
        "whole": start + rest.format(steps=40, end=tmp_path / "whole.dump"),
        "half": start + rest.format(steps=20, end=tmp_path / "half.dump") + save,
        "other": f"read_restart {tmp_path}/half\ntimestep 0.0005\n"
        + rest.format(steps=40, end=tmp_path / "other.dump"),
    }
    for name, text in scripts.items():
        (tmp_path / name).write_text(text)
        run_script(POSTERIOR, tmp_path / name, elements=["Cl", "Na"], log="none", screen=False, device="cpu")
    whole, half, other = (np.loadtxt(tmp_path / f"{name}.dump", skiprows=9) for name in scripts)
    np.testing.assert_allclose(other, whole, rtol=0, atol=1e-12)
    assert np.abs(half - whole).max() > 0.01


def trust_script(folder: Path, more: str = "") -> Path:
    atoms = ethanol_start()
    write_data(folder / "ethanol.data", atoms, ["C", "H", "O"])
    script = folder / "in.ethanol"
    script.write_text(
        head(str(folder / "ethanol.data"), atoms)
        + "velocity all create 900 5\nfix integrate all nve\ntimestep 0.0005\n"
        + "thermo 1\nthermo_style custom step pe v_max_devi_f\n"
        + f"{more}\nrun 60\nprint 'went on to the last line'\n"
    )
    return script


def test_stops_at_the_trust_level(tmp_path: Path) -> None:
    options = {"elements": ["C", "H", "O"], "screen": False, "device": "cpu"}
    run_script(ETHANOL, trust_script(tmp_path), log=str(tmp_path / "all"), **options)
    (free,) = thermo(tmp_path / "all")
    deviation = free["v_max_devi_f"]
    expected = int(np.argmax(deviation[:50]))
    level = (deviation[:expected].max() + deviation[expected]) / 2
    assert expected > 0
    first = int(np.argmax(deviation > level))
    halt = "fix stop all halt 1 v_max_devi_f > ${trust_hi} error soft"
    run_script(ETHANOL, trust_script(tmp_path, halt), log=str(tmp_path / "halted"), trust=Trust(None, level), **options)
    (halted,) = thermo(tmp_path / "halted")
    assert halted["Step"][-1] == first < 60
    np.testing.assert_allclose(halted["v_max_devi_f"], deviation[: first + 1], rtol=1e-7)
    assert "went on to the last line" in (tmp_path / "halted").read_text(), "a soft halt ends the run, not the script"


def test_sigma_that_is_no_number_stops(tmp_path: Path) -> None:
    """A deviation that is not finite is above every level."""
    samples = POSTERIOR.samples.clone()
    broken = random_posterior(stress_head=True)
    broken = type(broken)(samples * float("nan"), broken.chain, broken.step, broken.network, broken.reference)
    lmp, _ = attached(tmp_path, STRUCTURES["water"], posterior=broken)
    lmp.command("run 0 post no")
    assert lmp.extract_variable("max_devi_f") == float("inf")


def test_loops_and_included_runs(tmp_path: Path) -> None:
    """`jump SELF` may reach back before the line where the potential went in."""
    (tmp_path / "more").write_text("run 2\n")
    script = water_script(
        tmp_path,
        "fix integrate all nve\nlabel again\nvariable i loop 3\n"
        f"run 5\ninclude {tmp_path}/more\nnext i\njump SELF again\n",
    )
    assert run_water(script).calls == 3 * (1 + 5 + 1 + 2)


def test_rerun(tmp_path: Path) -> None:
    """The potential is asked about snapshots of a dump as about steps of a run."""
    script = water_script(
        tmp_path,
        "velocity all create 3000 1\nfix integrate all nve\nthermo_style custom step pe v_max_devi_f\nthermo 5\n"
        f"dump d all custom 5 {tmp_path}/x.dump id type x y z\ndump_modify d format float %.17g\nrun 10\n"
        f"undump d\nrerun {tmp_path}/x.dump dump x y z\n",
    )
    run_water(script, tmp_path / "log")
    ran, again = thermo(tmp_path / "log")
    assert np.ptp(ran["v_max_devi_f"]) > 0
    for name in ran:
        np.testing.assert_array_equal(again[name], ran[name])


def test_labels_of_types(tmp_path: Path) -> None:
    lmp = quiet_lammps(tmp_path, STRUCTURES["water"], ["O", "H"])
    lmp.command("labelmap atom 1 O 2 H")
    attach(lmp, POSTERIOR, device="cpu")
    lmp.command("run 0 post no")
    assert lmp.get_thermo("pe") == pytest.approx(calculated(STRUCTURES["water"])["energy"], abs=1e-8)


def test_swapped_elements_are_noticed(tmp_path: Path) -> None:
    lmp = quiet_lammps(tmp_path, STRUCTURES["water"], ["O", "H"])
    with pytest.warns(InputWarning, match=r"type 1 is H but has the mass 15\.999, nearest to O"):
        attach(lmp, POSTERIOR, elements=["H", "O"], device="cpu")


@pytest.mark.parametrize(
    ("lines", "elements", "message"),
    [
        (
            "units lj\nregion b block 0 9 0 9 0 9\ncreate_box 1 b\nrun 0\n",
            ["H"],
            "line 4: units lj: only metal and real",
        ),
        ("units metal\nrun 0\n", ["H"], "line 2: there is no box yet"),
        ("units metal\nthermo_style custom step &\n v_max_devi_f\nrun 1\n", ["H"], "line 2: there is no box yet"),
        ("units metal\nregion b block 0 9 0 9 0 9\ncreate_box 2 b\nrun 0\n", ["H"], "1 elements for 2 atom types"),
        ("units metal\nregion b block 0 9 0 9 0 9\ncreate_box 2 b\nrun 0\n", None, "which element is atom type 1, 2"),
        ("units metal\nregion b block 0 9 0 9 0 9\ncreate_box 1 b\nrun 0\n", ["Au"], "element Au is unknown"),
        (
            "units metal\nregion b block 0 9 0 9 0 9\ncreate_box 1 b\nrun 0\n",
            ["Xx"],
            "'Xx' is not a chemical symbol",
        ),
        ("units metal\nregion b block 0 9 0 9 0 9\ncreate_box 1 b\nrun 0\n", ["H"], "mass"),
        ("dimension 2\nunits metal\nregion b block 0 9 0 9 -1 1\ncreate_box 1 b\nrun 0\n", ["H"], "dimension 2"),
        ("units metal\nnonsense 1\nrun 0\n", ["H"], "LAMMPS stopped: ERROR: Unknown command: nonsense"),
        ("units metal\nregion b block 0 9 0 9 0 9\ncreate_box 1 b\nmass 1 1\nrun 0\n", ["H"], "no atoms"),
    ],
)
def test_mistakes_in_scripts(lines: str, elements: list[str] | None, message: str, tmp_path: Path) -> None:
    script = tmp_path / "in.bad"
    script.write_text(lines)
    with pytest.raises(InputError, match=message):
        run_script(POSTERIOR, script, elements=elements, log="none", screen=False, device="cpu")


def test_explosion_ends_the_script(tmp_path: Path) -> None:
    script = water_script(
        tmp_path,
        "fix integrate all nve\nfix kick all addforce 1e300 0 0\ntimestep 1e30\nneigh_modify once yes\nrun 50\n"
        f"shell touch {tmp_path}/went_on\n",
    )
    with pytest.raises(InputError, match="the simulation has exploded"):
        run_water(script, tmp_path / "log")
    assert not (tmp_path / "went_on").exists()


def test_mpirun_of_another_mpi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each process would take itself for the only one, and all would write the same files."""
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "2")
    with pytest.raises(
        InputError, match="mpirun started 2 processes, but LAMMPS sees 1: they belong to different MPIs"
    ):
        attached(tmp_path, STRUCTURES["water"])


def test_what_goes_wrong_on_the_way_back_ends_the_run(tmp_path: Path) -> None:
    """Python's exceptions cannot pass through LAMMPS; none may get lost there."""
    lmp, potential = attached(tmp_path, STRUCTURES["water"])
    lmp.command("unfix equibayes_atoms")
    with pytest.raises(Exception, match="equibayes_stop"):
        lmp.commands_string("fix integrate all nve\nrun 50")
    assert potential.failure is not None
    assert potential.calls == 2


def test_without_lammps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lammps", None)
    with pytest.raises(InputError, match=r"LAMMPS is not installed; .*equibayes\[lammps\]"):
        open_lammps()


def test_interrupt_ends_the_script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    atoms = STRUCTURES["water"]
    lmp, potential = attached(tmp_path, atoms)

    def interrupted(_: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(potential.share.evaluator, "sampled", interrupted)
    with pytest.raises(Exception, match="equibayes_stop"):
        lmp.commands_string("fix integrate all nve\nrun 50")
    assert isinstance(potential.failure, KeyboardInterrupt)
    assert potential.calls == 2, "ended with the first step"
