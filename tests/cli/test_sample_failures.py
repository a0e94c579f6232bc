"""What can go wrong around a run: one line on stderr that names the thing and the remedy, status 2, and nothing
lost."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import yaml

from equibayes.cli.main import main
from equibayes.run.settings import sample_config
from tests.cli import program

DATA = "bundled:ethanol@0:20"
RUN = (
    "--network tiny chains=2 samples=4 data.validation=4 burn_in.steps=24 burn_in.batch_size=4 cycles.length=16 "
    "cycles.batch_size=4 cycles.peak=1e-3 sampler.mass=diagonal guard.interval=8 output.checkpoint_seconds=0"
)


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def sample(output: str = "a.posterior", *more: str, data: str = DATA) -> list[str]:
    return ["sample", data, "-o", output, *RUN.split(), *more]


def refused(argv: list[str], capsys: pytest.CaptureFixture[str], *parts: str) -> None:
    """Status 2 and one line with all these parts."""
    capsys.readouterr()
    assert main(argv) == 2
    assert_one_line(capsys.readouterr().err, *parts)


def assert_one_line(err: str, *parts: str) -> None:
    assert err.startswith("equibayes: error: "), err
    assert err.count("\n") == 1, err
    for part in parts:
        assert part in err


# ---- mistakes in settings: refused before anything is read or written


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["burn_in.stebs=5"], ["burn_in.stebs: no such setting; did you mean 'steps'?"]),
        (["brun_in.steps=5"], ["brun_in: no such setting; did you mean 'burn_in'?"]),
        (["zzz=5"], ["zzz: no such setting; there are chains, samples, seed, precision, tangent, data"]),
        (["burn_in.steps=many"], ["burn_in.steps='many': must be a whole number"]),
        (["burn_in.steps=2.5"], ["burn_in.steps=2.5: must be a whole number"]),
        (["burn_in.steps=.inf"], ["burn_in.steps=inf: must be a whole number"]),
        (["cycles.peak=.nan"], ["cycles.peak=nan: must be a number"]),
        (["guard.enabled=1"], ["guard.enabled=1: must be true or false"]),
        (["cycles.kind=rise"], ["cycles.kind=rise: must be one of rise_and_fall, restart, constant"]),
        (["sampler.integrator=bao"], ["sampler.integrator='bao': must be baoa or paper"]),
        (["burn_in=5"], ["burn_in: expected a section of settings, got 5"]),
        (["burn_in.steps.x=5"], ["burn_in.steps={'x': 5}: must be a whole number"]),
        (["network.num_features=[4]"], ["network.num_features=[4]: needs l_max + 1 = 2 numbers"]),
        (["burn_in.steps=0"], ["burn_in.steps=0: must be at least 1"]),
        (["burn_in.batch_size=0"], ["burn_in.batch_size=0: must be at least 1"]),
        (["guard.interval=0"], ["guard.interval=0: must be at least 1"]),
        (["burn_in.freeze_mass=1.5"], ["burn_in.freeze_mass=1.5: must be above 0 and at most 1"]),
        (["prior.group_widths={readout: 0}"], ["prior.group_widths.readout=0.0: must be at least 1e-06"]),
        (["data.validation=-1"], ["data.validation=-1: must be at least 0"]),
        (["chains=abc"], ["chains='abc': must be a whole number"]),
        (["chains=8"], ["samples=4 is fewer than chains=8"]),
        (["=5"], ["'=5': an override is written section.key=value"]),
        (["burn_in.steps=[1"], ["cannot be read as a value"]),
        (["--preset", "quik"], ["invalid choice: 'quik'", "quick", "standard"]),
        (["--network", "huge"], ["invalid choice: 'huge'", "tiny", "paper"]),
        (["--chains", "many"], ["--chains", "invalid int value: 'many'"]),
        (["--threads", "0"], ["--threads 0: must be at least 1"]),
        (["nowhere.yaml"], ["nowhere.yaml: cannot be read (No such file or directory)"]),
    ],
)
def test_settings(words: list[str], parts: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = [word for word in RUN.split() if not any(word.startswith(w.split("=")[0] + "=") for w in words)]
    refused(["sample", DATA, "-o", "a.posterior", *options, *words], capsys, *parts)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("burn_in:\n  steps: [1\n", "s.yaml, line 3: not valid YAML"),
        ("burn_in:\n  steps: 5\n cycles: 3\n", "s.yaml, line 3: not valid YAML"),
        ("- a\n- b\n", "s.yaml: expected settings as 'key: value', got a list"),
        ("burn_in:\n  stebs: 5\n", "burn_in.stebs: no such setting; did you mean 'steps'?"),
        ("1: 2\n", "1: no such setting"),
        ("guard:\n  safety: 0.5\n", "guard.safety: this setting no longer exists (fixed at 0.5); leave it out"),
    ],
)
def test_yaml(text: str, part: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "s.yaml").write_text(text)
    refused(sample("a.posterior", "s.yaml"), capsys, part)


def test_yaml_that_is_no_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "s.yaml").write_bytes(bytes(range(128, 256)))
    refused(sample("a.posterior", "s.yaml"), capsys, "s.yaml: not a text file")


def test_a_gpu_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    refused(sample("a.posterior", "--device", "cuda"), capsys, "no GPU is visible to PyTorch here; use --device cpu")


def test_more_held_back_than_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    refused(
        sample("a.posterior", "data.validation=20"), capsys, "20 frames", "data.validation=20", "lower data.validation"
    )


def test_prior_from_nowhere(capsys: pytest.CaptureFixture[str]) -> None:
    refused(
        sample("a.posterior", "prior.center=b.posterior"),
        capsys,
        "b.posterior: no such file, and not one of the known models 7net-0",
    )


# ---- places that cannot be written to


def test_a_folder_that_does_not_exist_is_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(sample("new/deep/a.posterior")) == 0
    assert (tmp_path / "new/deep/a.posterior").is_file()
    assert "4 samples written to new/deep/a.posterior" in capsys.readouterr().out


def test_output_that_is_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.posterior").mkdir()
    refused(sample(), capsys, "a.posterior: is a folder; name a file with -o")


def test_output_below_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    refused(sample("/dev/null/a.posterior"), capsys, "/dev/null/a.run: cannot be written (Not a directory)")


def test_run_folder_that_is_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.run").write_text("mine")
    refused(sample(), capsys, "a.run: cannot be written (File exists)")
    assert (tmp_path / "a.run").read_text() == "mine"


@pytest.fixture
def mount(tmp_path: Path) -> Iterator[Path]:
    """A small file system of its own, where the system permits it."""
    place = tmp_path / "mount"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=400k", "tmpfs", str(place)]
    try:
        done = subprocess.run(command, capture_output=True, check=False).returncode == 0
    except OSError:
        done = False
    if not done:
        pytest.skip("mounting a small file system needs more rights than this user has")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def test_read_only_folder(mount: Path, capsys: pytest.CaptureFixture[str]) -> None:
    subprocess.run(["mount", "-o", "remount,ro", str(mount)], check=True)
    refused(sample(str(mount / "a.posterior")), capsys, "mount/a.run: not writable; choose another place with -o")


def test_unwritable_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "closed"
    folder.mkdir(mode=0o555)
    closed = Path("/sys") if os.geteuid() == 0 else folder  # root may write in every folder but the kernel's own
    refused(sample(str(closed / "a.posterior")), capsys, "/a.run: not writable; choose another place with -o")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """What an undisturbed run writes."""
    folder = tmp_path_factory.mktemp("whole")
    assert program.run(sample(), folder)[0] == 0
    return (folder / "a.posterior").read_bytes()


def test_disk_full(mount: Path, whole: bytes) -> None:
    """A real file system runs full in the middle of the run; with space again, --resume ends in the same bytes."""
    filler = mount / "filler"
    filler.write_bytes(bytes(180_000))  # a checkpoint takes 80 to 120 kB, and two are kept
    status, out, err = program.run(sample(), mount)
    assert status == 2, out
    assert_one_line(err, "a.run/", "the disk is full; existing files are intact", "continue with --resume")
    assert list((mount / "a.run").glob("checkpoint-*")), "what was there is there"
    assert not list(mount.rglob(".*.tmp"))
    filler.unlink()
    status, out, err = program.run(sample("a.posterior", "--resume"), mount)
    assert (status, err) == (0, ""), out
    assert (mount / "a.posterior").read_bytes() == whole


def test_full_from_the_start(mount: Path) -> None:
    (mount / "filler").write_bytes(bytes(380_000))
    status, _, err = program.run(sample(), mount)
    assert status == 2
    assert_one_line(err, "a.run/", "the disk is full")
    assert not (mount / "a.posterior").exists()


def test_no_file_may_grow(tmp_path: Path, whole: bytes) -> None:
    """The same by a limit of the process: works without any rights."""
    status, _, err = program.run(sample(), tmp_path, file_size=20_000)
    assert status == 2
    assert_one_line(err, "a.run/", "no space left (File too large)", "continue with --resume")
    status, _, err = program.run(sample(), tmp_path, file_size=85_000)
    assert status == 2
    assert_one_line(err, "a.run/checkpoint-", "continue with --resume")
    status, _, err = program.run(sample("a.posterior", "--resume"), tmp_path)
    assert (status, err) == (0, "")
    assert (tmp_path / "a.posterior").read_bytes() == whole


def test_a_full_disk_at_the_end_keeps_the_old_posterior(tmp_path: Path, whole: bytes) -> None:
    """--overwrite replaces the old file only when the new one is whole."""
    (tmp_path / "a.posterior").write_bytes(b"the old one")
    status, _, _ = program.run(sample("a.posterior", "--overwrite"), tmp_path, file_size=85_000)
    assert status == 2
    assert (tmp_path / "a.posterior").read_bytes() == b"the old one"
    status, _, err = program.run(sample("a.posterior", "--resume"), tmp_path)
    assert (status, err) == (0, "")
    assert (tmp_path / "a.posterior").read_bytes() == whole


# ---- what is there already


@pytest.fixture
def finished(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, bytes]:
    """A finished run and the content of its files."""
    assert main(sample()) == 0
    capsys.readouterr()
    return contents(tmp_path)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_existing_output(tmp_path: Path, finished: dict[str, bytes], capsys: pytest.CaptureFixture[str]) -> None:
    refused(sample(), capsys, "a.posterior: exists already; choose another name with -o, or add --overwrite")
    (tmp_path / "a.posterior").rename(tmp_path / "b.posterior")
    refused(sample(), capsys, "a.run: holds an earlier run; continue it with --resume, or start over with --overwrite")
    (tmp_path / "b.posterior").rename(tmp_path / "a.posterior")
    assert contents(tmp_path) == finished


def test_overwrite_with_a_mistake_loses_nothing(
    tmp_path: Path, finished: dict[str, bytes], capsys: pytest.CaptureFixture[str]
) -> None:
    refused(sample("a.posterior", "--overwrite", data="nowhere.xyz"), capsys, "nowhere.xyz: no such file")
    refused(sample("a.posterior", "--overwrite", "data.validation=20"), capsys, "lower data.validation")
    assert contents(tmp_path) == finished


def test_nothing_to_resume(tmp_path: Path, finished: dict[str, bytes], capsys: pytest.CaptureFixture[str]) -> None:
    refused(sample("b.posterior", "--resume"), capsys, "b.run: no checkpoint to resume from; start without --resume")
    for path in (tmp_path / "a.run").iterdir():
        path.unlink()
    refused(sample("a.posterior", "--resume"), capsys, "a.run: no checkpoint to resume from; start without --resume")
    assert (tmp_path / "a.posterior").read_bytes() == finished["a.posterior"]


def test_changed_settings_on_resume(
    tmp_path: Path, finished: dict[str, bytes], capsys: pytest.CaptureFixture[str]
) -> None:
    words = "cycles.peak was 0.001 when the run began and is 0.002 now; resume with the same data and settings"
    refused(sample("a.posterior", "--resume", "cycles.peak=2e-3"), capsys, words)
    refused(sample("a.posterior", "--resume", "--seed", "1"), capsys, "--resume:")
    refused(
        sample("a.posterior", "--resume", "prior.group_widths={readout: 0.5}"),
        capsys,
        "prior.group_widths.readout was None when the run began and is 0.5 now",
    )
    assert contents(tmp_path) == finished


def test_changed_data_on_resume(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One force of one frame is another."""
    from equibayes.data import read

    data = read(DATA)
    data.save_npz(tmp_path / "d.npz")
    assert main(sample(data="d.npz")) == 0
    before = contents(tmp_path / "a.run")
    with np.load(tmp_path / "d.npz") as file:
        arrays = dict(file)
    arrays["forces"][3 * 9 + 2, 1] += 1e-9
    np.savez(tmp_path / "d.npz", **arrays)
    refused(
        sample("a.posterior", "--resume", data="d.npz"), capsys, "the data changed since the run began", "same data"
    )
    assert contents(tmp_path / "a.run") == before


def test_changed_prior_file_on_resume(
    tmp_path: Path, finished: dict[str, bytes], capsys: pytest.CaptureFixture[str]
) -> None:
    center = "prior.center=a.posterior"
    assert main(sample("b.posterior", center)) == 0
    assert main(sample("a.posterior", "--overwrite", "--seed", "1")) == 0
    refused(sample("b.posterior", "--resume", center), capsys, "the file of prior.center changed since the run began")


def test_all_checkpoints_damaged(
    tmp_path: Path, finished: dict[str, bytes], capsys: pytest.CaptureFixture[str]
) -> None:
    for path in (tmp_path / "a.run").glob("checkpoint-*"):
        path.write_bytes(path.read_bytes()[:-1])
    refused(
        sample("a.posterior", "--resume"), capsys, "none of its 2 checkpoints can be read; start over with --overwrite"
    )
    assert (tmp_path / "a.posterior").read_bytes() == finished["a.posterior"]


def test_two_at_once(tmp_path: Path) -> None:
    """A second program in the same place is refused while the first goes on undisturbed."""
    first = program.start(sample("a.posterior", "burn_in.steps=200"), tmp_path)
    program.wait_for(tmp_path / "a.run/metrics.jsonl", first)
    (tmp_path / "second").mkdir()
    status, _, err = program.run(
        sample(str(tmp_path / "a.posterior"), "--resume", "burn_in.steps=200"), tmp_path / "second"
    )
    assert status == 2
    assert_one_line(err, "another equibayes is running there")
    assert program.finish(first) == 0


def test_every_chain_diverges(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An absurd step with the guard off: no posterior of NaN, but an error."""
    words = ["burn_in.initial=1e9", "burn_in.final=1e9", "guard.enabled=false"]
    refused(sample("a.posterior", *words), capsys, "every chain diverged; lower burn_in.initial")
    assert not (tmp_path / "a.posterior").exists()


def test_settings_may_stand_anywhere(tmp_path: Path) -> None:
    """Later ones win; options win over all."""
    (tmp_path / "s.yaml").write_text("burn_in:\n  steps: 4\ncycles:\nseed: 3\nsamples: 7\n")
    argv = "sample --network tiny bundled:ethanol@0:20 s.yaml burn_in.batch_size=2 -o a.posterior data.validation=4 chains=1"
    assert main([*argv.split(), "--samples", "1", "burn_in.steps=8"]) == 0
    config = yaml.safe_load((tmp_path / "a.run/config.yaml").read_text())
    assert (config["seed"], config["burn_in"]["steps"], config["burn_in"]["batch_size"]) == (3, 8, 2)
    assert (config["chains"], config["samples"]) == (1, 1)
    assert config["cycles"]["length"] == sample_config("quick").cycles.length, (
        "an empty section changes nothing of the preset"
    )
