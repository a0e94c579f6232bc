"""Broken input for every loader: mutations from a seed, and what a loader may do with them.

A loader may accept an input or refuse it with an `InputError` of one line.  Anything else, and anything that takes
longer than `SECONDS`, is a fault.  Readers of structures are also in `tests/data/test_fuzz_readers.py`.
"""

import copy
import json
import random
import signal
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from ase.io import write

from equibayes import tensor_file
from equibayes.config import parse_overrides, read_yaml, template
from equibayes.data import read
from equibayes.errors import InputError
from equibayes.learning.on_the_fly import FlySettings
from equibayes.learning.settings import learn_config
from equibayes.posterior import file as posterior_file
from equibayes.posterior.calibration import Calibrated, Calibration, Rescaling
from equibayes.posterior.seen import marks_of, unseen
from equibayes.posterior.summary import PosteriorSummary
from equibayes.run import checkpoint
from equibayes.run.settings import sample_config
from equibayes.run.state import RunState
from equibayes.run.verdict import judge
from equibayes.simulate import state as md_state
from equibayes.simulate.calculator import Calculator
from equibayes.simulate.integrators import Conditions
from equibayes.simulate.md import run_md
from equibayes.simulate.reporter import state_file
from equibayes.simulate.trust import Trust
from equibayes.simulate.watch import Watch
from tests.data.water_frames import water
from tests.runs import ethanol_frames, runner_of, small_config
from tests.simulate import test_ipi_hostile as peer
from tests.simulate.posteriors import ETHANOL, ethanol_start

SECONDS = 60
Random = random.Random
Attempt = Callable[[Random], None]
"""Mutates an input and loads it."""

VALUES: list[Any] = [
    None, True, False, -1, 0, 1, 3, 2**31, 2**70, -(2**63), 1e-300, 1e300, -1e300, 0.5, 5.0, float("nan"), float("inf"),
    "", "x", "H", "nan", "\ud800", "\0", "x" * 5000, [], {}, [None], [1e300], [[1]], [[]], {"x": 1}, {"": {}}, ["a", 1],
]  # fmt: skip
WORDS = [
    "&a", "*a", "<<: *a", "!!binary", "!!int", "!!timestamp", "!!python/name:os.system", "[", "]", "{", "}", "- ", "? ",
    ": ", "|", ">", "---", "...", "%YAML 1.1", "2024-13-45", "9" * 5000, "0x" + "f" * 999, "1e999", ".nan", "-.inf", "~",
    "none", "\t", "\x07", "'", '"', "#", "@", "\ud7ff", "é", "-1", "0", "1e-300", "1:2:3", "=", "\\ud800", "[" * 200,
]  # fmt: skip


class Hang(BaseException):
    """An input took too long."""


@dataclass
class Fault:
    """An input that a loader did not survive: the target, its number, and what came instead."""

    target: str
    number: int
    cause: BaseException

    def __str__(self) -> str:
        return f"{self.target}, input {self.number}: {type(self.cause).__name__}: {str(self.cause)[:300]}"


def fuzz(target: str, attempt: Attempt, count: int, seed: int = 0) -> tuple[Counter[str], list[Fault]]:
    """Inputs number 0 … count − 1 of a target; every one follows from seed and number alone."""
    outcomes, faults = Counter[str](), []
    for number in range(count):
        try:
            with _limited(), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                attempt(Random(f"{target} {seed} {number}"))
            outcomes["accepted"] += 1
        except InputError as error:
            if "\n" in str(error) or not str(error):
                faults.append(Fault(target, number, error))
            outcomes["refused"] += 1
        except (Exception, Hang) as cause:
            faults.append(Fault(target, number, cause))
    return outcomes, faults


@contextmanager
def _limited() -> Iterator[None]:
    def ring(*_: object) -> None:
        raise Hang(f"longer than {SECONDS} s")

    old = signal.signal(signal.SIGALRM, ring)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, old)


# ---- mutations


def damaged_bytes(content: bytes, rng: Random) -> bytes:
    """Bytes set, inserted, dropped, repeated or cut off."""
    for _ in range(rng.randint(1, 4)):
        at, size = rng.randrange(len(content) + 1), rng.randint(1, 6)
        piece = rng.choice([rng.randbytes(size), b"\xff" * size, b"\0" * size, content[at : at + 40]])
        kind = rng.choice(["set", "insert", "drop", "cut"] if rng.random() < 0.3 else ["set", "insert", "drop"])
        rest = {"set": content[at + size :], "insert": content[at:], "drop": content[at + 2 * size :], "cut": b""}[kind]
        content = content[:at] + (b"" if kind in ("drop", "cut") else piece) + rest
    return content


def damaged_text(text: str, rng: Random) -> str:
    """Lines and words exchanged, repeated, left out or replaced."""
    lines = text.split("\n")
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(lines))
        words = lines[at].split(" ")
        word = rng.randrange(len(words))
        kind = rng.randrange(5)
        if kind == 0:
            words[word] = rng.choice(WORDS)
        elif kind == 1:
            words.insert(word, rng.choice(WORDS))
        elif kind == 2:
            words[-1:] = [rng.choice(WORDS)] if rng.random() < 0.7 else []
        elif kind == 3:
            words = lines[rng.randrange(len(lines))].split(" ")
        else:
            words = [" " * rng.randint(0, 4), *words]
        lines[at] = " ".join(words)
    return "\n".join(lines)


def damaged_value(content: Any, rng: Random) -> Any:
    """Nested values with one or two of them replaced, removed or added."""
    content = copy.deepcopy(content)
    for _ in range(rng.randint(1, 2)):
        place = content
        while True:
            keys = list(place) if isinstance(place, dict) else list(range(len(place)))
            if not keys:
                break
            key = rng.choice(keys)
            if isinstance(place[key], (dict, list)) and place[key] and rng.random() < 0.8:
                place = place[key]
                continue
            if rng.random() < 0.15:
                del place[key]
            elif rng.random() < 0.1 and isinstance(place, dict):
                place[rng.choice(["x", "", "\ud800", key + "x"])] = copy.deepcopy(rng.choice(VALUES))
            else:
                place[key] = copy.deepcopy(rng.choice(VALUES))
            break
    return content


def damaged_tensors(tensors: dict[str, torch.Tensor], rng: Random) -> dict[str, torch.Tensor]:
    """One tensor removed, of another shape or precision, or with impossible values."""
    tensors = {name: tensor.clone() for name, tensor in tensors.items()}
    name = rng.choice(list(tensors))
    tensor = tensors[name]
    kind = rng.randrange(7)
    if kind == 0:
        del tensors[name]
    elif kind == 1:
        tensors[name] = tensor.reshape(-1)[: tensor.numel() // 2]
    elif kind == 2:
        tensors[name] = tensor[None]
    elif kind == 3:
        dtypes = [torch.int64, torch.float16, torch.float64, torch.bool, torch.uint8, torch.bfloat16, torch.float32]
        tensors[name] = tensor.to(rng.choice(dtypes))
    elif kind == 4:
        tensors[name] = tensor.new_zeros([0, *tensor.shape[1:]])
    else:
        value = rng.choice(
            [0, 1, -1, 2**40, 1e-300, 1e300, 1e30, -1e30, 1e5, float("nan"), float("inf"), -float("inf")]
        )
        flat = tensor.reshape(-1)
        if tensor.dtype == torch.int64:
            value = int(max(-(2.0**62), min(2.0**62, value))) if value == value else -5
        where = slice(None) if kind == 5 else slice(rng.randrange(max(1, len(flat))), None, max(1, len(flat) // 2))
        flat[where] = torch.tensor(value).to(tensor.dtype)  # 1e300 becomes infinite in float32
        tensors[name] = flat.reshape(tensor.shape)
    return tensors


# ---- targets


def targets(folder: Path) -> dict[str, Attempt]:
    """By name; the undamaged files are written to the folder."""
    return {
        "readers": _readers(folder),
        "settings": _settings(folder),
        "overrides": _overrides,
        "splits": _splits(folder),
        "posterior": _posterior(folder),
        "checkpoint": _checkpoint(folder),
        "state of a simulation": _state(folder),
        "i-PI": _messages,
    }


def _readers(folder: Path) -> Attempt:
    images = [water(0, periodic=True), water(1, periodic=True)]
    write(folder / "a.xyz", images, format="extxyz")
    write(folder / "a.traj", images)
    read(folder / "a.xyz").save_npz(folder / "a.npz")
    whole = {path.suffix: path.read_bytes() for path in folder.glob("a.*")}

    def attempt(rng: Random) -> None:
        ending = rng.choice(sorted(whole))
        path = folder / f"damaged{ending}"
        text = ending == ".xyz" and rng.random() < 0.5
        if text:
            path.write_text(damaged_text(whole[ending].decode(), rng), encoding="utf-8", errors="replace")
        else:
            path.write_bytes(damaged_bytes(whole[ending], rng))
        str(read(path, require_labels=False).summary())

    return attempt


def _settings(folder: Path) -> Attempt:
    texts = [template(sample_config("standard")), template(learn_config()), "seed: 1\nnetwork: {l_max: 1}\n"]

    def attempt(rng: Random) -> None:
        number = rng.randrange(len(texts))
        path = folder / "settings.yaml"
        if rng.random() < 0.3:
            path.write_bytes(damaged_bytes(texts[number].encode(), rng))
        else:
            path.write_text(damaged_text(texts[number], rng), encoding="utf-8", errors="surrogatepass")
        values = read_yaml(path)
        if number == 1:
            str(template(learn_config(None, None, values)))
        else:
            config = sample_config(None, None, values)
            template(config).encode()
            _ = config.schedule(100).total_steps

    return attempt


def _flat_names(values: dict[str, Any], prefix: str = "") -> list[str]:
    return [
        name
        for key, value in values.items()
        for name in ([f"{prefix}{key}"] + (_flat_names(value, f"{prefix}{key}.") if isinstance(value, dict) else []))
    ]


NAMES = _flat_names(sample_config().to_dict())


def _overrides(rng: Random) -> None:
    words = []
    for _ in range(rng.choice([1, 1, 2])):
        name = rng.choice(NAMES)
        if rng.random() < 0.2:
            name = rng.choice([name + ".x", name[:-1], "", ".", "x" * 500, ".".join("a" * 300)])
        value = rng.choice(VALUES) if rng.random() < 0.6 else rng.choice([1, 2, 3, 0.5, "none", "true", 10, 1e-3])
        text = rng.choice(WORDS) if rng.random() < 0.3 else value if isinstance(value, str) else json.dumps(value)
        words.append(f"{name}={text}" if rng.random() < 0.97 else name)
    config = sample_config("quick", "tiny", parse_overrides(words))
    template(config).encode()
    _ = config.schedule(100).total_steps


def _splits(folder: Path) -> Attempt:
    write(folder / "s.xyz", [water(0), water(1), water(2)], format="extxyz")
    content = {"train": [0, 2], "test": [1]}
    (folder / "s.splits.json").write_text(json.dumps(content))
    np.savez(folder / "t.npz", train=[0, 2], test=np.array([1]))
    arrays = (folder / "t.npz").read_bytes()
    specs = ["@train", "@0:2", "@::2", "@-1", "@", "@d.json:train", "@d.npz:test", "@s.splits.json:test", "@1:0:-1"]

    def attempt(rng: Random) -> None:
        (folder / "d.json").write_text(json.dumps(damaged_value(content, rng)))
        (folder / "d.npz").write_bytes(damaged_bytes(arrays, rng))
        spec = rng.choice(specs)
        if rng.random() < 0.6:
            spec = damaged_bytes(spec.encode(), rng).decode("utf-8", "replace").replace("/", "_")
        if rng.random() < 0.2:
            spec += rng.choice(["9" * 5000, ":" * 50, "@" * 3, "x" * 300, "\ud800", "-" * 5])
        read(f"{folder}/s.xyz{spec}", require_labels=False)

    return attempt


def _posterior(folder: Path) -> Attempt:
    header, tensors = posterior_file.read(ETHANOL)
    bend = (np.array([-3.0, 0.0]), np.array([0.1, 0.2]))
    parts = [
        Calibrated(name, {2: Rescaling(1.2, 1.5, {6: 1.1}, bend), 4: Rescaling(1.3)}) for name in ("monotone", "scale")
    ]
    parts[1].quantiles[4] = {0.9: 1.7}
    header["calibration"] = Calibration(*parts, {"name": "a", "frames": 20}).to_dict()
    header["history"] = header["history"][-2:]
    frame = ethanol_frames(1)[0]

    def attempt(rng: Random) -> None:
        path = folder / "damaged.posterior"
        headers = rng.random() < 0.7
        part = rng.choice(["network", "calibration", "verdict", "data", "history", "energy_reference", "", "", ""])
        own = dict(header)
        if headers and part:
            own[part] = damaged_value(header[part], rng)
        elif headers:
            own = damaged_value(header, rng)
        _write(path, own, tensors if headers else damaged_tensors(tensors, rng), "equibayes-posterior", 2, rng)
        str(PosteriorSummary(path))
        posterior = posterior_file.load(path)
        posterior.predict(frame).interval(0.9)
        unseen(marks_of(posterior), ethanol_frames(2))
        Trust.of("3x", None, posterior)
        FlySettings.of(posterior, {})
        json.dumps(PosteriorSummary(path).to_dict()).encode()

    return attempt


def _write(path: Path, header: Any, tensors: Any, format: str, version: int, rng: Random) -> None:
    """With a right checksum, as a hostile program would; now and then damaged bytes instead.

    NaN, which our own writer refuses, is written too.
    """
    content = {key: value for key, value in header.items() if key not in ("format", "format_version", "sha256")}
    content |= {"format": format, "format_version": version}
    plain = {name: tensor.contiguous() for name, tensor in tensors.items()}
    text = json.dumps({**content, "sha256": tensor_file._digest(plain, content)}, sort_keys=True)
    data = tensor_file.save(plain, {tensor_file.KEY: text})
    path.write_bytes(damaged_bytes(data, rng) if rng.random() < 0.05 else data)


def _checkpoint(folder: Path) -> Attempt:
    changes = {"burn_in": {"steps": 8}, "cycles": {"length": 4}, "samples": 4, "guard": {"interval": 4}}
    config = small_config(changes, {"output": {"checkpoint_seconds": 0.0}})
    place = folder / "run"
    place.mkdir()
    trial = runner_of(ethanol_frames(), config, folder=place)
    trial.run()
    newest, *_ = checkpoint.newest_first(place)
    whole = checkpoint.load(newest)
    early = checkpoint.newest_first(place)[-1]
    begun = checkpoint.load(early)

    def attempt(rng: Random) -> None:
        base = rng.choice([whole, begun])
        path = folder / "checkpoint-0000000001.safetensors"
        record, tensors = {"record": base.record}, base.tensors
        if rng.random() < 0.5:
            record = damaged_value(record, rng)
        else:
            tensors = damaged_tensors(tensors, rng)
        _write(path, record, tensors, checkpoint.FORMAT, checkpoint.VERSION, rng)
        state = RunState.from_checkpoint(checkpoint.load(path, RunState.check), "cpu")
        if state.history:
            judge(state, config)
        if rng.random() < 0.2:
            for old in checkpoint.newest_first(place):
                old.unlink()
            path.rename(place / path.name)
            trial.run(resume=True)

    return attempt


def _state(folder: Path) -> Attempt:
    calculator, start = Calculator(ETHANOL, device="cpu", k=1), ethanol_start()
    conditions, watch, path = Conditions("langevin", 300.0), Watch(every=1, save_every=1), folder / "t.xyz"
    run_md(calculator, start, conditions, 2, path, watch=watch)
    whole = tensor_file.read(state_file(path), format=md_state.FORMAT, version=md_state.VERSION, what="state")
    files = {each: each.read_bytes() for each in [path, *state_file(path).parent.glob("*")] if each != state_file(path)}

    def attempt(rng: Random) -> None:
        for each, content in files.items():
            each.write_bytes(content)
        header, tensors = whole
        if rng.random() < 0.6:
            header = damaged_value(header, rng)
        else:
            tensors = damaged_tensors(tensors, rng)
        _write(state_file(path), header, tensors, md_state.FORMAT, md_state.VERSION, rng)
        run_md(calculator, start, conditions, 3, path, watch=watch, resume=True)

    return attempt


def _messages(rng: Random) -> None:
    """Some words of the protocol, with payloads that may not fit."""
    start = rng.choice(["molecule", "crystal"])
    atoms = peer.START[start]
    cell = atoms.cell if start == "crystal" else 40 * np.eye(3)
    sent = b""
    for _ in range(rng.randint(1, 4)):
        scale = rng.choice([1.0, 1.0, 1.0, 1e-300, 1e-3, 1e6, 1e300, float("nan"), 0.0])
        counts = [len(atoms)] * 4 + [-1, 0, 2**31 - 1, len(atoms) + 1]
        with np.errstate(over="ignore", invalid="ignore"):
            positions = peer.posdata(cell * rng.choice([1.0, scale]), atoms.positions * scale, rng.choice(counts))
        init = peer.word("INIT") + peer.ints(rng.choice([0, 1, -1, 2**31 - 1]), 1) + b"0"
        sent += rng.choice([peer.word("STATUS"), init, positions, positions, peer.word("GETFORCE"), rng.randbytes(12)])
    if rng.random() < 0.2:
        sent = damaged_bytes(sent, rng)
    found = peer.outcome(sent + (peer.word("EXIT") if rng.random() < 0.5 else b""), start)
    if found:
        raise InputError(found)
