"""The posterior file: what goes in comes out, equal content is equal bytes, and nothing else gets in."""

import json
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from equibayes.errors import InputError
from equibayes.posterior.file import Posterior, load, read, write
from equibayes.posterior.sample import sample
from tests.damage import cut, empty, flip, foreign, pickled, text, torch_file
from tests.runs import ethanol_frames, small_config
from tests.simulate.posteriors import random_posterior


@pytest.fixture(scope="module")
def posterior() -> Posterior:
    """A short run: 160 steps of burn-in, then one cycle; σ has left its start."""
    changes = {"burn_in": {"steps": 160}, "output": {"records": 5}}
    return sample(ethanol_frames(40), small_config(changes), device="cpu")


@pytest.fixture
def file(posterior: Posterior, tmp_path: Path) -> Path:
    path = tmp_path / "a.posterior"
    posterior.save(path)
    return path


def header_of(path: Path) -> dict[str, Any]:
    with safe_open(path, framework="pt") as content:
        return json.loads(content.metadata()["equibayes"])


def test_round_trip(posterior: Posterior, file: Path) -> None:
    again = load(file)
    for name in ("samples", "chain", "step"):
        assert torch.equal(getattr(again, name), getattr(posterior, name))
    for name in ("network", "reference", "config", "data", "history", "verdict", "calibration", "version"):
        assert getattr(again, name) == getattr(posterior, name), name
    first, second = (p.predict(ethanol_frames(1)[0]) for p in (posterior, again))
    assert np.array_equal(first.forces, second.forces)
    assert first.energy == second.energy


def test_equal_posteriors_are_equal_bytes(posterior: Posterior, file: Path, tmp_path: Path) -> None:
    load(file).save(tmp_path / "b.posterior")
    assert (tmp_path / "b.posterior").read_bytes() == file.read_bytes()
    replace(posterior, samples=posterior.samples + 1e-6).save(tmp_path / "b.posterior")
    assert (tmp_path / "b.posterior").read_bytes() != file.read_bytes()


def test_what_the_header_says(posterior: Posterior, file: Path) -> None:
    header = header_of(file)
    data = ethanol_frames(40)
    assert (header["format"], header["format_version"]) == ("equibayes-posterior", 4)
    assert header["units"] == {"energy": "eV", "length": "Å", "force": "eV/Å", "stress": "eV/Å³"}
    assert header["network"]["type_names"] == ["H", "C", "O"]
    assert set(header["energy_reference"]["shifts"]) == {"H", "C", "O"}
    energy = sum(header["energy_reference"]["shifts"][name] * n for name, n in (("H", 6), ("C", 2), ("O", 1)))
    assert energy == pytest.approx(np.mean([s.energy for s in data]), abs=0.1)
    assert header["data"]["frames"] == 36
    assert header["data"]["validation_frames"] == 4
    assert len(header["data"]["fingerprint"]) == 64
    assert header["config"]["burn_in"]["steps"] == 160
    assert header["calibration"] is None
    assert header["version"]
    assert len(header["history"]) >= 5


def test_the_fingerprint_is_that_of_the_training_frames(posterior: Posterior) -> None:
    from equibayes.run.prepare import prepare

    prepared = prepare(ethanol_frames(40), small_config())
    assert posterior.data["fingerprint"] == prepared.train.fingerprint()
    assert posterior.data["validation_fingerprint"] == prepared.validation.fingerprint()


def test_samples_in_double_precision(tmp_path: Path) -> None:
    config = small_config({"samples": 2, "burn_in": {"steps": 4}, "network": {"model_dtype": "float64"}})
    posterior = sample(ethanol_frames(), config, output=tmp_path / "a.posterior", device="cpu")
    again = load(tmp_path / "a.posterior")
    assert again.samples.dtype == torch.float64
    assert torch.equal(again.samples, posterior.samples)


def test_half_precision(posterior: Posterior, file: Path, tmp_path: Path) -> None:
    """Half the size, and what it does to predictions after 198 steps (force error 0.81 eV/Å, σ 1.15 eV/Å, 40 frames):

    forces of the mean move by 0.09 meV/Å (RMS, at most 0.31), σ by at most 0.05 %: four orders below σ.
    A weight is of order one and is moved by at most 2⁻¹¹ of itself.
    """
    half = tmp_path / "half.posterior"
    posterior.save(half, half_precision=True)
    with safe_open(half, framework="pt") as content:
        assert content.get_tensor("samples").dtype == torch.float16
    saved = file.stat().st_size - half.stat().st_size
    assert saved == pytest.approx(posterior.samples.nbytes / 2, abs=200), "all but the header is halved"
    again = load(half)
    assert again.samples.dtype == torch.float32
    assert not torch.equal(again.samples, posterior.samples)
    torch.testing.assert_close(again.samples, posterior.samples, rtol=2**-11, atol=1e-7)
    frames = list(ethanol_frames(40))
    before, after = posterior.predict(frames), again.predict(frames)
    shift = np.concatenate([(a.forces - b.forces).ravel() for a, b in zip(after, before)])
    sigma = np.concatenate([b.forces_std.ravel() for b in before])
    relative = np.concatenate([a.forces_std.ravel() / b.forces_std.ravel() for a, b in zip(after, before)]) - 1
    assert np.sqrt((shift**2).mean()) < 3e-4
    assert abs(shift).max() < 1e-3 * sigma.mean()
    assert abs(relative).max() < 3e-3


def test_half_precision_that_would_overflow(posterior: Posterior, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"too large for half precision; set output\.half_precision=false"):
        replace(posterior, samples=posterior.samples * 1e6).save(tmp_path / "b.posterior", half_precision=True)
    assert not (tmp_path / "b.posterior").exists()


def test_subset(posterior: Posterior) -> None:
    assert posterior.subset(2).chain.tolist() == [0, 1]
    with pytest.raises(InputError, match="k=5: this posterior has 4 samples"):
        posterior.subset(5)


# ---- files that are not what they should be


def cut_in_the_header(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:1000])


def one_bit_of_a_weight(path: Path) -> None:
    flip(path, -5000)


def one_digit_of_the_header(path: Path) -> None:
    content = path.read_bytes()
    place = content.index(b'\\"r_max\\": 4.0')
    path.write_bytes(content[: place + 11] + b"5" + content[place + 12 :])


def checkpoint(path: Path) -> None:
    save_file({"a": torch.zeros(1)}, path, {"equibayes": json.dumps({"format": "equibayes-checkpoint"})})


def newer(path: Path) -> None:
    header = {"format": "equibayes-posterior", "format_version": 5}
    save_file({"samples": torch.zeros(1, 3)}, path, {"equibayes": json.dumps(header)})


def not_json(path: Path) -> None:
    save_file({"a": torch.zeros(1)}, path, {"equibayes": "{"})


def huge_header(path: Path) -> None:
    path.write_bytes(struct.pack("<Q", 2**60) + b"{" + bytes(100))


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (cut, "not a posterior file, or a damaged one"),
        (cut_in_the_header, "not a posterior file, or a damaged one"),
        (empty, "not a posterior file, or a damaged one"),
        (one_bit_of_a_weight, r"damaged posterior file \(the checksum differs\)"),
        (one_digit_of_the_header, r"damaged posterior file \(the checksum differs\)"),
        (text, "not a posterior file, or a damaged one"),
        (foreign, "not a posterior file but a safetensors file of another program"),
        (checkpoint, "not a posterior file but equibayes-checkpoint"),
        (
            newer,
            "posterior file of format 5, this equibayes reads format 4; use the equibayes that wrote it, or a newer one",
        ),
        (not_json, "not a posterior file, or a damaged one"),
        (huge_header, "not a posterior file, or a damaged one"),
        (pickled, "not a posterior file, or a damaged one"),
        (torch_file, "not a posterior file, or a damaged one"),
    ],
)
def test_damaged_and_foreign_files(
    file: Path, damage: Callable[[Path], None], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    damage(file)
    with pytest.raises(InputError, match=rf"^{file}: {words}") as caught:
        load(file)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "sprung").exists(), "nothing in a file is executed"


def test_missing_file_and_folder(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"b\.posterior: no such file; name a posterior file"):
        load(tmp_path / "b.posterior")
    with pytest.raises(InputError, match="is a folder; name a posterior file"):
        load(tmp_path)


def rewrite(file: Path, change: Callable[[Any, Any], object]) -> None:
    """The same file with another header or other tensors, and a right checksum."""
    header, tensors = read(file)
    change(header, tensors)
    write(file, header, tensors)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda h, t: h.pop("network"), "makes no sense"),
        (lambda h, t: h["network"].update(l_max=9), "l_max=9"),
        (lambda h, t: h["network"].update(nonsense=9), "nonsense"),
        (lambda h, t: h["network"].update(num_features=5), "the network needs"),
        (lambda h, t: h.update(energy_reference=3), "makes no sense"),
        (lambda h, t: h["energy_reference"]["shifts"].update(Xx=1.0), "Xx"),
        (lambda h, t: t.pop("samples"), "samples"),
        (lambda h, t: t.update(samples=t["samples"][:, :-1]), "samples have shape"),
        (lambda h, t: t.update(samples=t["samples"][:0]), "samples have shape"),
        (lambda h, t: t.update(chain=t["chain"][:1]), "chain and step do not match"),
        (lambda h, t: t["samples"].fill_(torch.nan), "not finite"),
    ],
)
def test_whole_but_senseless(file: Path, change: Callable[[Any, Any], object], words: str) -> None:
    """A file with a right checksum whose content cannot be, as a program with a bug might write."""
    rewrite(file, change)
    with pytest.raises(InputError, match=f"{file}: .*{words}.*; sample again"):
        load(file)


def test_a_failed_write_leaves_the_old_file(posterior: Posterior, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = file.read_bytes()

    def full(self: Path, data: bytes) -> int:
        with self.open("wb") as half:
            half.write(data[:100])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(InputError, match=r"a\.posterior: the disk is full"):
        posterior.save(file)
    monkeypatch.undo()
    assert file.read_bytes() == before
    assert [path.name for path in file.parent.iterdir()] == ["a.posterior"]


def test_repr_is_short() -> None:
    text = repr(random_posterior(3))
    assert len(text.splitlines()) <= 2
    for part in ("3 samples from 3 chains", "species H C O Na Si Cl", "not calibrated", "2 layers", "cutoff 4 Å"):
        assert part in text, text
    assert "1 sample from 1 chain;" in repr(random_posterior(1))
