"""Where in a script the potential goes in."""

from pathlib import Path

import pytest

from equibayes.errors import InputError
from equibayes.simulate.lammps_script import Script, read_script


def script(folder: Path, text: str) -> Script:
    (folder / "in.x").write_text(text)
    return read_script(folder / "in.x")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("read_data a\nfix 1 all nve\nrun 10\nrun 20\n", "run 10"),
        ("read_data a\nminimize 0 0 1 1\nrun 10\n", "minimize 0 0 1 1"),
        ("read_data a\nthermo_style custom step v_max_devi_f\nrun 1\n", "thermo_style custom step v_max_devi_f"),
        ("read_data a\ndump d all custom 1 f id d_devi_f\nrun 1\n", "dump d all custom 1 f id d_devi_f"),
        ("read_data a\nfix s all halt 1 v_x > ${trust_hi}\nrun 1\n", "fix s all halt 1 v_x > ${trust_hi}"),
        ("variable x equal v_max_devi_f\nread_data a\nrun 1\n", "run 1"),
        ("# run with: equibayes lammps\nread_data a # v_max_devi_f\nrun 1\n", "run 1"),
        ("read_data a\n  # equibayes here\ninclude b\nrun 1\n", "  # equibayes here"),
        ("read_data a\nthermo_style custom step &\n   v_energy_std\nrun 1\n", "thermo_style custom step &"),
        ('read_data a\nif "1 == 1" then "run 5"\nrun 1\n', 'if "1 == 1" then "run 5"'),
        ('read_data a\nif "1 == 1" then "print run"\nrun 1\n', "run 1"),
        ("read_data a\nrun_style verlet\nrerun x dump x y z\n", "rerun x dump x y z"),
        ("read_data a\nfix my_v_max_devi_f_x all nve\nrun 1\n", "run 1"),
    ],
)
def test_before_the_first_line_that_needs_it(text: str, line: str, tmp_path: Path) -> None:
    found = script(tmp_path, text)
    assert found.lines[found.first] == line
    assert found.before + "\n".join(found.lines[found.first :]) + "\n" == text
    assert found.after.splitlines()[0] == "jump SELF equibayes_goes_on"
    assert found.after.split("label equibayes_goes_on\n")[1] == "\n".join(found.lines[found.first :]) + "\n"


def test_which_commands_stand_before(tmp_path: Path) -> None:
    found = script(tmp_path, "read_data a\nrun 1\npair_style zero 5\n")
    assert found.says_before("read_data", "pair_style")
    assert not found.says_before("pair_style")


def test_variables_that_it_uses_but_does_not_define(tmp_path: Path) -> None:
    assert script(tmp_path, "fix s all halt 1 v_x > ${trust_hi}\nrun 1\n").lacks("trust_hi")
    assert script(tmp_path, "variable y equal v_trust_hi*2\nrun 1\n").lacks("trust_hi")
    assert not script(tmp_path, "variable trust_hi equal 0.2\nprint ${trust_hi}\nrun 1\n").lacks("trust_hi")
    assert not script(tmp_path, "run 1 # ${trust_hi}\n").lacks("trust_hi")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "read_data a\n# run 1\ninclude b\n",
            "in.x: no run or minimize here; .* '# equibayes here' before the include",
        ),
        ("read_data a\nrun 1\nclear\nread_data b\nrun 1\n", "in.x, line 3: 'clear' would remove the potential"),
        (
            "read_data a\nrun 1\nunfix equibayes # off\nrun 1\n",
            "in.x, line 3: 'unfix equibayes' would remove the potential",
        ),
    ],
)
def test_scripts_that_cannot_work(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message):
        script(tmp_path, text)


def test_no_such_script(tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match=r"in\.nothing: cannot be read \(No such file or directory\); name a LAMMPS script"
    ):
        read_script(tmp_path / "in.nothing")
