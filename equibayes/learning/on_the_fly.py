"""Dynamics that asks: where the model does not know, an engine is called, and the trajectory goes on.

    result = on_the_fly(posterior, data, atoms, Conditions("bussi"), 2000, labeller, Trust(0.1, 1.0), config, "fly.xyz")

In every step the largest deviation of the frame is held against the trust levels (see `simulate/md.py`, on_uncertain="label").  A
candidate is labelled.  `KeepLabels` leaves it there; with `LearnAtOnce` the label joins the data, the chains go on from their samples
(`resample.py`), and the same positions and momenta move on under the new posterior.  Beyond the upper level, or where σ is no
number, the trajectory ends: that frame is never sent.

| file in the folder beside the trajectory |                                                                  |
|------------------------------------------|------------------------------------------------------------------|
| labels.xyz                               | every label so far, ready to be learned from                     |
| asked.json                               | every question: step, σ, error of the model, or why it failed    |
| label-0000/label.xyz, or refused.txt     | the answer to the first question, as soon as it is there         |
| label-0000/data.xyz, fly.posterior       | all that was learned from after it, and the posterior it gave    |

Each is whole or not there and follows from those before it: a killed run asks nothing twice and goes on to the same files.
"""

import json
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from ase import Atoms

from equibayes.config import build, section, setting
from equibayes.data.dataset import Dataset
from equibayes.data.structures import Structure
from equibayes.errors import InputError
from equibayes.files import make_folder, remove_leftovers, write_text
from equibayes.labelling.labellers import TIME_LIMIT_S, Refusal
from equibayes.labelling.pool import Labels
from equibayes.data.extxyz import read_exact, write_exact
from equibayes.learning.resample import ResampleSettings, resample
from equibayes.learning.screen import too_close
from equibayes.posterior.file import Posterior, load
from equibayes.posterior.sample import frame_mark, run_folder
from equibayes.run import checkpoint
from equibayes.run.progress import Silent as SilentSampler
from equibayes.run.settings import SampleConfig
from equibayes.simulate.calculator import Calculator
from equibayes.simulate.display import MdDisplay, Silent
from equibayes.simulate.integrators import Conditions
from equibayes.simulate.md import Watch, run_md
from equibayes.simulate.teacher import Lesson, Question
from equibayes.simulate.trust import Trust

FAR_OFF = 1.0
"""eV an atom between engine and model, above which they do not mean the same energy."""


@dataclass(frozen=True)
class FlySettings:
    """Settings of questions to an engine during dynamics, and of learning from the answers."""

    labeller_settings: dict[str, Any] = setting({}, "keyword arguments of the engine")
    label_seconds: float = setting(TIME_LIMIT_S, "time limit for one structure, s")
    resample: ResampleSettings = section(ResampleSettings, "how the posterior follows a label")
    sample: SampleConfig = section(SampleConfig, "the sampler, by default as in the posterior's own run")

    @classmethod
    def of(cls, posterior: Posterior, values: dict[str, Any]) -> "FlySettings":
        """Those of the posterior's own run, with changes."""
        known = build(SampleConfig, posterior.config) if posterior.config else SampleConfig()
        return build(cls, values, cls(sample=known))


@dataclass(frozen=True)
class Asked:
    """A frame that was sent to the labeller.

    sigma   eV/Å, the largest deviation of the frame before it was learned
    error   eV/Å, RMS of force components, model minus engine; None where the engine gave no label (`refused` says why)
    """

    step: int
    sigma: float
    error: float | None
    refused: str = ""


class KeepLabels:
    """Labels candidates and goes on with the same model."""

    def __init__(self, labeller: Labels, name: str = "") -> None:
        """name: of the engine, by which a run is recognised."""
        self.labeller, self.name = labeller, name
        self.asked: list[Asked] = []
        self.labels: list[Structure] = []
        self.folder = Path()  # until `begin`
        self.display: MdDisplay = Silent()

    @property
    def about(self) -> dict[str, Any]:
        return {"labeller": self.name}

    def begin(self, folder: Path, asked: int | None, display: MdDisplay) -> Calculator | None:
        self.folder, self.display = folder, display
        self.asked, self.labels = [], []
        if asked is None:
            for old in folder.glob("label-*"):
                shutil.rmtree(old)
            for name in ("labels.xyz", "asked.json"):
                (folder / name).unlink(missing_ok=True)
            return None
        if asked:
            self.asked = [Asked(**each) for each in json.loads((folder / "asked.json").read_text("utf-8"))[:asked]]
            found = (self._known(number, each.step) for number, each in enumerate(self.asked))
            self.labels = [label for label in found if label is not None]
        return None

    def answer(self, question: Question) -> Lesson:
        frame = Structure.from_atoms(question.atoms, _source(question.step))
        if too_close(frame):
            return Lesson(ended=f"at step {question.step} two atoms are too close")
        remove_leftovers(make_folder(self._place(question.number)))
        label = self._label(question, frame)
        sigma = question.deviation.largest
        if isinstance(label, str):
            asked = Asked(question.step, sigma, None, label)
            self.display.say(f"step {question.step}: no label ({label}); going on without")
        else:
            assert label.forces is not None
            error = float(np.sqrt(np.square(question.results["forces"] - label.forces).mean()))
            asked = Asked(question.step, sigma, error)
            told = f"σ {1e3 * sigma:.1f} meV/Å, error {1e3 * error:.1f} meV/Å (RMS)"
            self.display.say(f"step {question.step}: {told}; {len(self.labels) + 1} labels")
        lesson = Lesson() if isinstance(label, str) else self._learn(question, label)
        self.asked.append(asked)
        if not isinstance(label, str):
            self.labels.append(label)
        write_exact(self.folder / "labels.xyz", self.labels)
        listed = json.dumps([asdict(each) for each in self.asked], indent=1, ensure_ascii=False)
        write_text(self.folder / "asked.json", listed + "\n")
        return lesson

    @property
    def refused(self) -> int:
        return sum(each.error is None for each in self.asked)

    def _learn(self, question: Question, label: Structure) -> Lesson:
        """Nothing is learned."""
        return Lesson()

    def _label(self, question: Question, frame: Structure) -> Structure | str:
        """The frame with its label, or why there is none; an answer that is there is not asked for again."""
        place = self._place(question.number)
        known = self._known(question.number, question.step)
        if known is not None and known.geometry_digest() == frame.geometry_digest():
            return known
        if (place / "refused.txt").exists():
            return (place / "refused.txt").read_text("utf-8").strip()
        answer = self.labeller.label(frame)
        if isinstance(answer, Refusal):
            write_text(place / "refused.txt", answer.reason + "\n")
            return answer.reason
        label = answer.attach(frame)
        write_exact(place / "label.xyz", [label])
        return label

    def _known(self, number: int, step: int) -> Structure | None:
        path = self._place(number) / "label.xyz"
        return replace(read_exact(path)[0], source=_source(step)) if path.exists() else None

    def _place(self, number: int) -> Path:
        return self.folder / f"label-{number:04d}"


def _source(step: int) -> str:
    return f"on the fly, step {step}"


class LearnAtOnce(KeepLabels):
    """Labels candidates, learns from each at once, and goes on with the new posterior."""

    def __init__(
        self,
        labeller: Labels,
        posterior: Posterior,
        data: Dataset,
        config: SampleConfig,
        resampling: ResampleSettings | None = None,
        *,
        name: str = "",
        device: str = "cpu",
        calculator: Callable[[Posterior], Calculator] | None = None,
    ) -> None:
        """data: what `posterior` was conditioned on; all of it is learned from again.  config: settings of the sampler, whose network
        must be that of `posterior`.  calculator: makes one of a posterior."""
        super().__init__(labeller, name)
        self.first, self.posterior, self.start_data, self.config = posterior, posterior, data, config
        self.resampling, self.device = resampling or ResampleSettings(), device
        self.calculator = calculator or (lambda posterior: Calculator(posterior, device=device))

    @property
    def about(self) -> dict[str, Any]:
        settings = json.loads(json.dumps({"sample": self.config.to_dict(), "resample": asdict(self.resampling)}))
        return {**super().about, "data": self.start_data.fingerprint(), "settings": settings}

    @property
    def data(self) -> Dataset:
        """All that is learned from now."""
        start = self.start_data
        return Dataset([*start, *self.labels], start.name, start.isolated_atoms)

    @property
    def newest(self) -> Path | None:
        """The file of the posterior that is in force; None where it is still the first."""
        places = [self._place(n) for n, each in enumerate(self.asked) if each.error is not None]
        return places[-1] / "fly.posterior" if places else None

    def begin(self, folder: Path, asked: int | None, display: MdDisplay) -> Calculator | None:
        super().begin(folder, asked, display)
        self.posterior = load(self.newest) if self.newest else self.first
        return self.calculator(self.posterior) if self.newest else None

    def _learn(self, question: Question, label: Structure) -> Lesson:
        self._check_energy(question, label)
        seen, place = self.data, self._place(question.number)
        more = Dataset([*seen, label], seen.name, seen.isolated_atoms)
        output = place / "fly.posterior"
        if not output.exists():
            write_exact(place / "data.xyz", more)
            folder = run_folder(output)
            going = bool(checkpoint.newest_first(folder)) if folder.is_dir() else False
            resample(
                self.posterior,
                more,
                more[:0],
                self.config,
                self.resampling,
                seen=seen,
                output=output,
                resume=going,
                device=self.device,
                display=_Learning(self.display, question.step),
            )
            checkpoint.remove_all(folder)
        self.posterior = load(output)  # also when it is new: what is stored in half precision is not what was in memory
        return Lesson(self.calculator(self.posterior))

    def _check_energy(self, question: Question, label: Structure) -> None:
        """Labels of another engine than that of the data would teach that two things are one."""
        assert label.energy is not None
        away = abs(label.energy - float(question.results["energy"])) / len(label)
        if self.first.reference.knows(label.numbers) and away > FAR_OFF:
            raise InputError(
                f"step {question.step}: the labeller's energy is {away:.3g} eV an atom from the model's, so its data come from another "
                "level of theory; label them with the same engine first (equibayes learn --labeller …)"
            )


class _Learning(SilentSampler):
    """The sampler's progress as words in the line of the simulation."""

    def __init__(self, display: MdDisplay, step: int) -> None:
        self.display, self.step, self.total = display, step, 0

    def start(self, total_steps: int, first_step: int) -> None:
        self.total = total_steps

    def show(self, record: dict[str, Any]) -> None:
        self.display.show(self.step, f"learning: step {record['step']} of {self.total}")

    def say(self, message: str) -> None:
        self.display.say(message)


def training_frames(posterior: Posterior, data: Dataset) -> Dataset:
    """Those of `data` that the posterior was conditioned on; the frames that it held back stay held back."""
    marks = set(posterior.data.get("frame_marks", ()))
    if not marks:
        return data
    own = [structure for structure in data if frame_mark(structure) in marks]
    missing = len(marks) - len({frame_mark(structure) for structure in own})
    if missing:
        raise InputError(
            f"{data.name}: {missing} of {len(marks)} frames that the posterior was sampled from are not in it; "
            "name the data it was sampled from"
        )
    return Dataset(own, data.name, data.isolated_atoms)


@dataclass(eq=False)
class FlyResult:
    """ended: None where all steps were done, else why not;  posterior, data: as they are after the last label."""

    atoms: Atoms
    posterior: Posterior
    data: Dataset
    step: int = 0
    asked: list[Asked] = field(default_factory=list)
    ended: str | None = None

    @property
    def fraction(self) -> float:
        """Share of steps that called the labeller."""
        return len(self.asked) / max(1, self.step)


def on_the_fly(
    posterior: Posterior,
    data: Dataset,
    start: Atoms,
    conditions: Conditions,
    steps: int,
    labeller: Labels,
    trust: Trust,
    config: SampleConfig,
    output: str | Path,
    *,
    resampling: ResampleSettings | None = None,
    gap: int = 10,
    every: int = 10,
    deviation: str = "total",
    device: str = "cpu",
    resume: bool = False,
    overwrite: bool = False,
    display: MdDisplay | None = None,
) -> FlyResult:
    """Simulate `steps` steps, asking the labeller where σ is between the trust levels and learning from every answer.

    data    what `posterior` was conditioned on; all of it is learned from again
    config  settings of the sampler; chains and network must be those of `posterior`
    output  the trajectory (extended xyz)
    gap     steps between two labels, at least: neighbours in time are nearly the same
    every   steps between frames of the trajectory
    """
    teacher = LearnAtOnce(labeller, posterior, data, config, resampling, device=device)
    watch = Watch(trust, "label", deviation, every, candidate_gap=gap)
    result = run_md(
        Calculator(posterior, device=device),
        start,
        conditions,
        steps,
        output,
        watch=watch,
        resume=resume,
        overwrite=overwrite,
        display=display,
        teacher=teacher,
    )
    return FlyResult(result.atoms, teacher.posterior, teacher.data, result.step, teacher.asked, result.ended)
