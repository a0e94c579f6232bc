"""Files that are complete or absent, also after kills, on full disks and with names that are too long."""

import errno
import gzip
import os
import signal
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

from equibayes import files
from equibayes.cli.main import main
from equibayes.data import files as data_files
from equibayes.data import read
from equibayes.errors import InputError
from equibayes.files import RESUME, SAME_COMMAND, reason, remedy, write_atomically, write_text
from equibayes.run.interrupt import collected_signals
from tests.cli import program
from tests.simulate.posteriors import ETHANOL

KILLED = """
import os, signal, sys
from pathlib import Path
from equibayes.files import write_atomically

def write(temporary):
    temporary.write_text("half")
    os.kill(os.getpid(), int(sys.argv[2]))

write_atomically(sys.argv[1], write)
"""


def leave_behind(target: Path, number: int = signal.SIGKILL) -> Path:
    """The hidden file that a process leaves that is killed while it writes."""
    subprocess.run([sys.executable, "-c", KILLED, str(target), str(number)], check=False)
    (left,) = target.parent.glob(".*.tmp")
    return left


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_the_next_write_removes_what_a_killed_one_left(tmp_path: Path, number: int) -> None:
    target = tmp_path / "a[1].xyz"
    leave_behind(target, number)
    write_text(target, "whole")
    assert [path.name for path in tmp_path.iterdir()] == ["a[1].xyz"]


def test_what_another_living_process_writes_stays(tmp_path: Path) -> None:
    target = tmp_path / "a.xyz"
    left = leave_behind(target)
    living = left.with_name(left.name.replace(left.name.split("-")[-1], f"{os.getppid()}.tmp"))
    elsewhere = left.with_name(left.name.replace(files._HOST, "another_host"))
    other_target = left.with_name(left.name.replace(".a.xyz", ".b.xyz"))
    for path in (living, elsewhere, other_target):
        path.write_text("half")
    write_text(target, "whole")
    assert {path.name for path in tmp_path.iterdir()} == {"a.xyz", living.name, elsewhere.name, other_target.name}


def test_predict_after_a_killed_predict(tmp_path: Path) -> None:
    """The program itself, killed while it writes."""
    argv = ["predict", str(ETHANOL), "bundled:ethanol@0:300", "-o", "out.xyz", "--threads", "1"]
    process = program.start(argv, tmp_path)
    while not (left := list(tmp_path.glob(".out.xyz.*.tmp"))):
        assert process.is_alive(), (tmp_path / "err.txt").read_text()
    process.kill()
    program.finish(process)
    assert left[0].exists()
    status, _, err = program.run([*argv[:2], "bundled:ethanol@0:2", *argv[3:]], tmp_path)
    assert (status, err) == (0, "")
    assert {path.name for path in tmp_path.iterdir()} == {"out.xyz", "out.txt", "err.txt"}


def test_long_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The longest possible name can be written; a longer one is one line, wherever it stands."""
    monkeypatch.chdir(tmp_path)
    longest = tmp_path / ("x" * 251 + ".xyz")
    write_text(longest, "whole")
    assert [path.name for path in tmp_path.iterdir()] == [longest.name]
    name, data = "x" * 260, "bundled:ethanol@0:9"
    for argv in (
        ["sample", data, "-o", name],
        ["sample", name, "-o", "a.posterior"],
        ["sample", data, f"{name}.yaml", "-o", "a.posterior"],
        ["predict", str(ETHANOL), data, "-o", f"{name}.xyz"],
        ["predict", name, data, "-o", "a.xyz"],
        ["calibrate", str(ETHANOL), data, "-o", name],
        ["evaluate", str(ETHANOL), data, "--json", name],
        ["md", str(ETHANOL), data, "-o", f"{name}.xyz", "--steps", "1", "--temperature", "300"],
        ["learn", data, "-o", name],
        ["learn", f"{name}.yaml", "-o", "folder"],
        ["compare", data, "--test", data, "-o", name],
        ["info", name],
        ["info", f"{data}@{name}.json:a"],
    ):
        assert main([*argv, *(["--threads", "1"] if argv[0] not in ("info", "serve") else [])]) == 2, argv
        err = capsys.readouterr().err
        assert err.startswith("equibayes: error: ")
        assert err.count("\n") == 1


def full(_: Path) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_full_disk_advises_what_exists(tmp_path: Path) -> None:
    cause = OSError(errno.ENOSPC, "No space left on device")
    with pytest.raises(InputError, match=r"free some space, then run the same command again$"):
        write_atomically(tmp_path / "a.xyz", full)
    with remedy(RESUME):
        assert reason(cause).endswith("continue with --resume")
    with remedy(SAME_COMMAND), remedy(RESUME):
        assert reason(cause).endswith("run the same command again, which continues")
    assert "--resume" not in reason(cause)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals_that_ask_to_stop_are_collected(number: int) -> None:
    with collected_signals() as pending:
        os.kill(os.getpid(), number)
    assert pending == [number]


def test_a_hang_up_that_is_ignored_stays_ignored() -> None:
    """As under nohup."""
    old = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with collected_signals() as pending:
            os.kill(os.getpid(), signal.SIGHUP)
        assert pending == []
    finally:
        signal.signal(signal.SIGHUP, old)


def test_compressed_files_that_unpack_without_bounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_files, "LARGEST_UNPACKED", 10**6)
    with gzip.open(tmp_path / "a.xyz.gz", "wb") as file:
        file.write(b"1\nenergy=0\nH 0 0 0\n" * 200_000)
    with pytest.raises(InputError, match=r"a.xyz.gz: .* MB that unpack to more than .*; decompress it with gunzip"):
        read(tmp_path / "a.xyz.gz")
    np.savez_compressed(tmp_path / "a.npz", z=[1], R=np.zeros((500_000, 1, 3)), E=[0.0], F=np.zeros((1, 3)))
    with pytest.raises(InputError, match=r"a.npz: .* MB that unpack to more than"):
        read(tmp_path / "a.npz")
    np.savez_compressed(tmp_path / "b.splits.npz", train=np.zeros(3_000_000, dtype=np.int64))
    with pytest.raises(InputError, match=r"b.splits.npz: .* MB that unpack to more than"):
        read(f"bundled:ethanol@{tmp_path}/b.splits.npz:train")


def test_a_line_without_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_files, "LONGEST_LINE", 10**5)
    with gzip.open(tmp_path / "a.xyz.gz", "wb") as file:
        file.write(b"1" * 10**6)
    with pytest.raises(InputError, match=r"a.xyz.gz: a line of more than"):
        read(tmp_path / "a.xyz.gz")


def test_a_zip_file_that_lies_about_its_members(tmp_path: Path) -> None:
    """An array that claims more elements than follow."""
    header = b"\x93NUMPY\x01\x00v\x00" + b"{'descr': '<f8', 'fortran_order': False, 'shape': (100000000000,), }".ljust(
        117
    )
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("z.npy", header + b"\n" + bytes(80))
    with pytest.raises(InputError, match=r"a.npz: cannot be read"):
        read(tmp_path / "a.npz")
