"""The program as a whole: exit status, what goes to stdout and stderr."""

import json
import os
import subprocess
import sys
import warnings

import pytest

import equibayes
from equibayes.cli import info, main
from equibayes.errors import InputWarning


def test_info_prints_what_was_found(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["info", "bundled:ethanol@0:100"]) == 0
    out, err = capsys.readouterr()
    assert "100 of 100 under 'energies'" in out
    assert err == ""


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["--version"]) == 0
    assert capsys.readouterr().out == f"equibayes {equibayes.__version__}\n"


def test_completion_knows_names_that_are_not_imported_yet() -> None:
    program = "import equibayes, sys; print('torch' in sys.modules, *dir(equibayes))"
    words = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert words[0] == "False"
    assert set(equibayes.__all__) <= set(words)


def test_info_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["info", "bundled:ethanol@test", "--json"]) == 0
    values = json.loads(capsys.readouterr().out)
    assert values["frames"] == 1000
    assert values["species"] == {"H": 6000, "C": 2000, "O": 1000}
    assert len(values["fingerprint"]) == 64


def test_info_table_on_a_terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert main.main(["info", "bundled:ethanol@0:5"]) == 0
    out = capsys.readouterr().out
    assert "│" in out
    assert "bundled:ethanol@0:5" in out


@pytest.mark.parametrize("argv", [["--help"], ["info", "--help"]])
def test_help_teaches_with_examples(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(argv) == 0
    assert "equibayes info bundled:ethanol" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("argv", "part"),
    [
        ([], "required: VERB; see equibayes --help"),
        (["inform"], "invalid choice: 'inform'"),
        (["info"], "required: DATA; see equibayes info --help"),
        (["info", "a.xyz", "--energy-ke", "E"], "--energy-ke"),
        (["sample", "-o", "a.posterior"], "required: DATA; see equibayes sample --help"),
        (["sample", "bundled:ethanol", "-o", "."], ".: is a folder; name a file with -o"),
        (["info", "bundled:ethanol", "--energy-unit", "kcal"], "did you mean 'kcal/mol'"),
        (["info", "bundled:ethanol@trian"], "there are: train, train_01, test, test_01"),
    ],
)
def test_mistakes_on_the_command_line(argv: list[str], part: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(argv) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("equibayes: error: ")
    assert err.count("\n") == 1
    assert part in err


def test_warnings_are_one_line_each(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def warn(arguments: object) -> int:
        warnings.warn("a.xyz: looks odd", InputWarning, stacklevel=1)
        return 0

    monkeypatch.setattr(info, "run", warn)
    before = warnings.showwarning
    assert main.main(["info", "x"]) == 0
    assert capsys.readouterr().err == "equibayes: warning: a.xyz: looks odd\n"
    assert warnings.showwarning is before


def test_interrupt(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupt(arguments: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(info, "run", interrupt)
    assert main.main(["info", "x"]) == 130
    assert capsys.readouterr().err == "equibayes: interrupted\n"


def test_a_fault_of_our_own_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(arguments: object) -> int:
        raise ZeroDivisionError

    monkeypatch.setattr(info, "run", fail)
    with pytest.raises(ZeroDivisionError):
        main.main(["info", "x"])


def test_as_a_module_with_nobody_listening() -> None:
    """`python -m equibayes … | head`: quiet, whatever the pipe does."""
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "equibayes", "info", "bundled:ethanol@0:5"]
    result = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writing)
    assert result.stderr == ""
    assert result.returncode == 141


def test_as_a_module() -> None:
    command = [sys.executable, "-m", "equibayes", "info", "nowhere.xyz"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 2
    assert result.stderr == "equibayes: error: nowhere.xyz: no such file; check the path\n"


def test_interrupted_while_it_is_still_importing() -> None:
    """No traceback: seconds pass before the program can catch anything by itself."""
    code = (
        "import sys, builtins\n"
        "before = builtins.__import__\n"
        "def interrupted(name, *rest):\n"
        "    if name == 'torch': raise KeyboardInterrupt\n"
        "    return before(name, *rest)\n"
        "builtins.__import__ = interrupted\n"
        "from equibayes.__main__ import main\n"
        "sys.exit(main())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (130, "")
