"""Completion, in a real bash and a real zsh."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from equibayes.cli.completion import script
from equibayes.cli.main import VERBS, build_parser, main


def completed(line: str) -> list[str]:
    """What bash offers for the last word of a line."""
    words = line.split(" ")
    listed = " ".join(f"'{word}'" for word in words)
    after = f"COMP_WORDS=({listed}); COMP_CWORD={len(words) - 1}; _equibayes 2>/dev/null; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    done = subprocess.run(["bash", "-c", script(build_parser()) + after], capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_verbs() -> None:
    assert {verb.__name__.rpartition(".")[2] for verb in VERBS} <= set(completed("equibayes "))
    assert completed("equibayes sam") == ["sample"]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("equibayes sample d.xyz --pres", ["--preset"]),
        ("equibayes sample d.xyz --preset st", ["standard"]),
        ("equibayes md a.posterior s.xyz --ensemble np", ["npt", "npt-anisotropic"]),
        ("equibayes sample d.xyz burn_in.st", ["burn_in.steps="]),
        ("equibayes learn c.yaml sample.burn_in.st", ["sample.burn_in.steps="]),
        ("equibayes template le", ["learn"]),
        ("equibayes predict my.post", []),
    ],
)
def test_words(line: str, words: list[str]) -> None:
    assert completed(line) == words


def test_options_are_those_of_the_help() -> None:
    assert {"--preset", "--resume", "--device", "--validation"} <= set(completed("equibayes sample --"))


@pytest.mark.skipif(shutil.which("zsh") is None, reason="no zsh on the path; on Debian: apt-get install zsh")
def test_zsh_loads_it_through_its_emulation_of_bash(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "zsh"]) == 0
    script = capsys.readouterr().out + "print -r -- ${_comps[equibayes]}"
    own = os.environ | {"HOME": str(tmp_path), "ZDOTDIR": str(tmp_path)}
    done = subprocess.run(["zsh", "-f", "-c", script], env=own, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["_bash_complete", "-o", "default", "-F", "_equibayes"]
