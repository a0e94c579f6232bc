"""Checkpoints: whole or not there, verified when read, and enough to go on bit for bit."""

import json
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from equibayes import files
from equibayes.errors import InputError
from equibayes.posterior.file import Posterior
from equibayes.posterior.sample import sample
from equibayes.run import checkpoint
from equibayes.run.checkpoint import Checkpoint
from equibayes.run.interrupt import Interrupted
from equibayes.run.records import MetricsLog
from equibayes.run.state import RunState
from equibayes.run.store import FolderStore, check_same_run
from tests.damage import cut, empty, flip, foreign, pickled, text
from tests.runs import Listener, ethanol_frames, runner_of, small_config


def example(step: int = 0) -> Checkpoint:
    """Every kind of content: float32, float64, whole numbers, marks, nothing, infinity, text beyond ASCII."""
    tensors = {
        "a": torch.randn(3, 50, generator=torch.Generator().manual_seed(step)),
        "b": torch.tensor([torch.inf, -0.0, 1e-310], dtype=torch.float64),
        "step": torch.tensor(step),
        "marks": torch.tensor([True, False]),
        "empty": torch.zeros(0, 2),
    }
    return Checkpoint(tensors, {"about": {"σ": 0.1}, "history": [{"step": step, "x": 1 / 3}]})


def same(left: Checkpoint, right: Checkpoint) -> bool:
    """Bit for bit, −0 and 0 apart."""
    bits = [{n: (t.dtype, t.shape, t.numpy().tobytes()) for n, t in c.tensors.items()} for c in (left, right)]
    return bits[0] == bits[1] and left.record == right.record


def test_round_trip(tmp_path: Path) -> None:
    path = checkpoint.save(tmp_path, 7, example(7))
    assert path.name == "checkpoint-0000000007.safetensors"
    assert same(checkpoint.load(path), example(7))


def test_only_the_two_newest_stay(tmp_path: Path) -> None:
    (tmp_path / "other.txt").write_text("not ours")
    for step in (1, 2, 3, 12):
        checkpoint.save(tmp_path, step, example(step))
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["checkpoint-0000000003.safetensors", "checkpoint-0000000012.safetensors", "other.txt"]


def test_a_write_that_fails_leaves_the_old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = checkpoint.save(tmp_path, 7, example(7))
    before = path.read_bytes()

    def fail(source: object, target: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "replace", fail)
    with pytest.raises(
        InputError, match=r"checkpoint-0000000007\.safetensors: the disk is full; existing files .* --resume"
    ):
        checkpoint.save(tmp_path, 7, example(8))
    assert [p.name for p in tmp_path.iterdir()] == [path.name]
    assert path.read_bytes() == before


def flip_data(path: Path) -> None:
    flip(path, -10)


def flip_header(path: Path) -> None:
    content = path.read_bytes()
    assert b"0.333333" in content
    path.write_bytes(content.replace(b"0.333333", b"0.333343", 1))


def posterior_instead(path: Path) -> None:
    header = {"format": "equibayes-posterior", "format_version": 1}
    save_file({"a": torch.zeros(3)}, path, {"equibayes": json.dumps(header)})


def newer(path: Path) -> None:
    header = {"format": "equibayes-checkpoint", "format_version": 4}
    save_file({"a": torch.zeros(3)}, path, {"equibayes": json.dumps(header)})


def no_dictionary(path: Path) -> None:
    save_file({"a": torch.zeros(3)}, path, {"equibayes": "[1, 2]"})


def folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


DAMAGES = [
    cut,
    empty,
    flip_data,
    flip_header,
    text,
    foreign,
    posterior_instead,
    newer,
    no_dictionary,
    pickled,
    folder,
]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_newest_falls_back_with_a_message(
    tmp_path: Path, damage: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    said: list[str] = []
    checkpoint.save(tmp_path, 1, example(1))
    path = checkpoint.save(tmp_path, 2, example(2))
    damage(path)
    assert same(checkpoint.load_newest(tmp_path, said.append), example(1))
    assert len(said) == 1
    assert said[0].startswith(str(path))
    assert said[0].endswith("; falling back to checkpoint-0000000001.safetensors")
    assert not (tmp_path / "sprung").exists()


def test_all_damaged_is_one_clear_error(tmp_path: Path) -> None:
    for step in (1, 2):
        flip_data(checkpoint.save(tmp_path, step, example(step)))
    with pytest.raises(InputError, match="none of its 2 checkpoints can be read; start over with --overwrite"):
        checkpoint.load_newest(tmp_path, lambda message: None)


def test_none_at_all(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no checkpoint to resume from; start without --resume"):
        checkpoint.load_newest(tmp_path)


def test_every_flipped_byte_is_noticed(tmp_path: Path) -> None:
    """A sample of all places, header and data: never a checkpoint with other content."""
    path = checkpoint.save(tmp_path, 7, example(7))
    content = path.read_bytes()
    for place in range(0, len(content), 11):
        changed = bytearray(content)
        changed[place] ^= 0x10
        path.write_bytes(changed)
        with pytest.raises(InputError):
            checkpoint.load(path)


# ---- a run, stopped and continued


class StopAt(Listener):
    """Raises a signal when the run has reached a step, as Ctrl-C would."""

    def __init__(self, step: int, number: int = signal.SIGINT) -> None:
        super().__init__()
        self.at, self.number = step, number

    def advance(self, step: int) -> None:
        if step >= self.at:
            signal.raise_signal(self.number)


def run(folder: Path, *, resume: bool = False, display: Listener | None = None, **changes: object) -> RunState:
    config = small_config({"output": {"checkpoint_seconds": 0}}, changes)
    folder.mkdir(exist_ok=True)
    return runner_of(ethanol_frames(), config, folder=folder, display=display).run(resume=resume)


def assert_same_state(left: RunState, right: RunState) -> None:
    assert same(left.to_checkpoint({}), right.to_checkpoint({}))


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> tuple[RunState, Path]:
    folder = tmp_path_factory.mktemp("run")
    return run(folder), folder


def steps_in(folder: Path) -> list[int]:
    return [json.loads(line)["step"] for line in (folder / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("step", [10, 30, 40, 50], ids=["mass adapts", "before the freeze", "first sample", "cycle"])
def test_resume_is_bit_for_bit(tmp_path: Path, uninterrupted: tuple[RunState, Path], step: int) -> None:
    with pytest.raises(Interrupted) as stop:
        run(tmp_path, display=StopAt(step))
    assert stop.value.step == step
    assert stop.value.signal == signal.SIGINT
    assert_same_state(run(tmp_path, resume=True), uninterrupted[0])
    assert steps_in(tmp_path) == steps_in(uninterrupted[1]) == [10, 20, 30, 40, 50, 60, 64]


def test_resume_after_damage_is_bit_for_bit(tmp_path: Path, uninterrupted: tuple[RunState, Path]) -> None:
    with pytest.raises(Interrupted):
        run(tmp_path, display=StopAt(50))
    flip_data(tmp_path / "checkpoint-0000000050.safetensors")
    listener = Listener()
    assert_same_state(run(tmp_path, resume=True, display=listener), uninterrupted[0])
    assert listener.messages == [
        f"{tmp_path}/checkpoint-0000000050.safetensors: damaged checkpoint (the checksum differs); "
        "falling back to checkpoint-0000000040.safetensors"
    ]
    assert listener.records[0]["step"] == 50
    assert steps_in(tmp_path) == [10, 20, 30, 40, 50, 60, 64], "steps that were done again stand in the log once"


def test_resume_of_a_finished_run_changes_nothing(uninterrupted: tuple[RunState, Path]) -> None:
    state, folder = uninterrupted
    before = (folder / "metrics.jsonl").read_bytes()
    assert_same_state(run(folder, resume=True), state)
    assert (folder / "metrics.jsonl").read_bytes() == before


def test_resume_works_from_the_first_moment(tmp_path: Path, uninterrupted: tuple[RunState, Path]) -> None:
    """A checkpoint is there before the first step."""

    class Fault(Exception):
        pass

    runner = runner_of(ethanol_frames(), small_config({"output": {"checkpoint_seconds": 0}}), folder=tmp_path)

    def fail(*arguments: object) -> None:
        raise Fault

    runner.watch(fail)
    with pytest.raises(Fault):
        runner.run()
    assert_same_state(run(tmp_path, resume=True), uninterrupted[0])


def test_checkpoints_keep_to_their_interval(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved: list[int] = []
    monkeypatch.setattr(FolderStore, "save", lambda self, step, state: saved.append(step))
    run(tmp_path, output={"checkpoint_seconds": 3600})
    assert saved == [0, 64]


def test_resume_without_an_output() -> None:
    with pytest.raises(InputError, match="nothing to resume"):
        sample(ethanol_frames(), small_config(), resume=True)


@pytest.mark.parametrize(
    ("now", "words"),
    [
        ({"config": {"burn_in": {"steps": 5}}, "the data": "x"}, "burn_in.steps was 4 when the run began and is 5 now"),
        ({"config": {"burn_in": {}}, "the data": "x"}, "burn_in.steps was 4 when the run began and is 20000 now"),
        ({"config": {"burn_in": {"steps": 5}}, "the data": "y"}, "the data changed since the run began"),
    ],
)
def test_a_changed_run_is_named(now: dict[str, object], words: str) -> None:
    saved = {"config": {"burn_in": {"steps": 4}}, "the data": "x"}
    check_same_run(saved, json.loads(json.dumps(saved)))
    with pytest.raises(InputError, match=f"^--resume: {words}; resume with the same data and settings"):
        check_same_run(saved, now)


def test_an_earlier_run_does_not_outlive_a_new_one(tmp_path: Path) -> None:
    """Checkpoints of a longer run in the same folder must not be taken for those of the new, shorter one."""
    output = tmp_path / "a.posterior"
    (tmp_path / "a.run").mkdir()
    checkpoint.save(tmp_path / "a.run", 5000, example(5000))
    config = small_config({"samples": 2, "burn_in": {"steps": 4}})
    with pytest.raises(
        InputError, match="holds an earlier run; continue it with --resume, or start over with --overwrite"
    ):
        sample(ethanol_frames(), config, output=output, device="cpu")
    posterior = sample(ethanol_frames(), config, output=output, overwrite=True, device="cpu")
    again = sample(ethanol_frames(), config, output=output, resume=True, device="cpu")
    assert isinstance(posterior, Posterior)
    assert torch.equal(again.samples, posterior.samples)


def test_what_a_kill_left_half_written_goes(tmp_path: Path) -> None:
    for name in (".a.posterior.99.tmp", ".b.posterior.99.tmp", "a.run/.checkpoint-0000000003.safetensors.99.tmp"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"half")
    config = small_config({"samples": 2, "burn_in": {"steps": 4}})
    sample(ethanol_frames(), config, output=tmp_path / "a.posterior", device="cpu")
    assert [path.name for path in tmp_path.rglob(".*")] == [".b.posterior.99.tmp"], "that of another output is not ours"


def test_two_runs_in_one_folder_are_refused(tmp_path: Path) -> None:
    with (
        files.lock(tmp_path),
        pytest.raises(InputError, match="another equibayes is running there"),
        files.lock(tmp_path),
    ):
        pass
    with files.lock(tmp_path):
        pass


def test_metrics_continue_where_the_run_does(tmp_path: Path) -> None:
    """Later lines, broken lines and lines of something else go; the clock goes on."""
    lines = [
        '{"step": 10, "seconds": 5.0}',
        '{"step": 20, "seconds": 10.0}',
        "[1]",
        '{"step": 30, "seconds": 15.0}',
        '{"st',
    ]
    (tmp_path / "metrics.jsonl").write_text("\n".join(lines))
    log = MetricsLog(tmp_path, keep_until=20)
    log.write({"step": 30, "force_mae": [0.1, None]})
    log.close()
    entries = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [entry["step"] for entry in entries] == [10, 20, 30]
    assert 10.0 <= entries[-1]["seconds"] < 12.0
    assert entries[-1]["force_mae"] == [0.1, None]
