"""Learning on the fly: dynamics that calls an engine where the model is uncertain, and learns from the label.

    oracle, watch = LearnOnTheFly(labeller, posterior, data, config), Watch(Trust(0.1, 1.0), on_uncertain="label")
    result = run_md(Calculator(posterior), atoms, Conditions("bussi"), 2000, "fly.xyz", watch=watch, oracle=oracle)

At every step the largest deviation of the frame is compared with the trust levels (`simulate/watch.py`,
on_uncertain="label").  A candidate is labelled (`label_candidates.py`), the label joins the data, the chains continue
from their samples (`resample.py`) or the label is learned by exact inference around them (`resample.every`), and the
same positions and momenta move on under the new posterior.  Above the
upper level, or where σ is not finite, the trajectory ends without a query.

Each label has its folder, label-0000 …; data.xyz in it contains all data after this label and fly.posterior the
posterior sampled from them.
"""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from equibayes.config import build, section, setting
from equibayes.data.dataset import Dataset
from equibayes.data.extxyz import write_exact
from equibayes.data.structures import Structure
from equibayes.errors import InputError
from equibayes.labelling.labellers import TIME_LIMIT_S, LabelSource
from equibayes.learning.label_candidates import LabelCandidates
from equibayes.learning.resample import ResampleSettings, resample
from equibayes.plural import counted
from equibayes.posterior.file import Posterior, load
from equibayes.posterior.marks import frame_mark
from equibayes.posterior.tangent import refine
from equibayes.posterior.tangent_choice import warnings_of
from equibayes.run import Run
from equibayes.run.progress import Display, Silent
from equibayes.run.settings import SampleConfig
from equibayes.run.store import clear, run_folder
from equibayes.simulate.calculator import Calculator
from equibayes.simulate.oracle import Query, Reply

DIRECTIONS = 4096
"""Random directions for labels between two times of sampling: a few seconds."""


@dataclass(frozen=True)
class FlySettings:
    """Settings of the engine and of learning during dynamics."""

    labeller_settings: dict[str, Any] = setting({}, "keyword arguments of the engine")
    label_seconds: float = setting(TIME_LIMIT_S, "time limit for one structure, s", above=0, limit=1e9)
    resample: ResampleSettings = section(ResampleSettings, "how the posterior is updated after a label")
    sample: SampleConfig = section(SampleConfig, "the sampler, by default as in the posterior's own run")

    @classmethod
    def of(cls, posterior: Posterior, values: dict[str, Any]) -> "FlySettings":
        """The settings of the posterior's own run, with changes."""
        known = build(SampleConfig, posterior.config) if posterior.config else SampleConfig()
        return build(cls, values, cls(sample=known))


class LearnOnTheFly(LabelCandidates):
    """Labels candidates, learns from each label immediately, and continues with the new posterior."""

    def __init__(
        self,
        labeller: LabelSource,
        posterior: Posterior,
        data: Dataset,
        config: SampleConfig,
        resampling: ResampleSettings | None = None,
        *,
        name: str = "",
        device: str = "cpu",
        calculator: Callable[[Posterior], Calculator] | None = None,
    ) -> None:
        """data        what `posterior` was conditioned on; the new posterior is conditioned on all of it again
        config      settings of the sampler, whose network must be that of `posterior`
        calculator  makes a calculator of a posterior
        """
        super().__init__(labeller, posterior.reference, name)
        self.first, self.posterior, self.start_data, self.config = posterior, posterior, data, config
        self.resampling, self.device = resampling or ResampleSettings(), device
        self.calculator = calculator or (lambda posterior: Calculator(posterior, device=device))

    @property
    def identity(self) -> dict[str, Any]:
        settings = json.loads(json.dumps({"sample": self.config.to_dict(), "resample": asdict(self.resampling)}))
        return {**super().identity, "data": self.start_data.fingerprint(), "settings": settings}

    @property
    def data(self) -> Dataset:
        """All data at present."""
        start = self.start_data
        return Dataset([*start, *self.labels], start.name, start.isolated_atoms)

    @property
    def newest(self) -> Path | None:
        """The file of the present posterior; None while it is the first."""
        places = [self._place(n) for n, each in enumerate(self.asked) if each.error is not None]
        return places[-1] / "fly.posterior" if places else None

    def summary(self) -> dict[str, Any]:
        newest = None if self.newest is None else f"{self.newest.parent.name}/{self.newest.name}"
        return {**super().summary(), "learned": len(self.labels), "posterior": newest}

    def begin(self, folder: Path, asked: int | None, display: Display) -> Calculator | None:
        super().begin(folder, asked, display)
        self.posterior = load(self.newest) if self.newest else self.first
        return self.calculator(self.posterior) if self.newest else None

    def _learn(self, query: Query, label: Structure) -> Reply:
        start, place = self.start_data, self._place(query.number)
        more = Dataset([*self.data, label], start.name, start.isolated_atoms)
        output = place / "fly.posterior"
        if not output.exists():
            write_exact(place / "data.xyz", more)
            if len(self.labels) % self.resampling.every == self.resampling.every - 1:
                run = Run(device=self.device, display=_LearningDisplay(self.display, query.step))
                run = run.to(output, resume_if_begun=True)
                before, seen = self._sampled()
                resample(before, more, more[:0], self.config, self.resampling, seen=seen, run=run)
                clear(run_folder(output))
            else:
                refined = refine(self._sampled()[0], more, seed=len(self.labels), directions=DIRECTIONS)
                for warning in warnings_of(refined.verdict["tangent"]):
                    self.display.say(warning)
                refined.save(output)
        self.posterior = load(output)  # also if new: samples stored in half precision differ from those in memory
        return Reply(self.calculator(self.posterior))

    def _sampled(self) -> tuple[Posterior, Dataset]:
        """The newest posterior from chains, and what it learned from."""
        count, start = len(self.labels) // self.resampling.every * self.resampling.every, self.start_data
        places = [self._place(number) for number, each in enumerate(self.asked) if each.error is not None]
        before = load(places[count - 1] / "fly.posterior") if count else self.first
        return before, Dataset([*start, *self.labels[:count]], start.name, start.isolated_atoms)


class _LearningDisplay(Silent):
    """Shows the progress of sampling in the display of the simulation."""

    def __init__(self, display: Display, step: int) -> None:
        self.display, self.step, self.total = display, step, 0

    def start(self, total_steps: int, first_step: int) -> None:
        self.total = total_steps

    def show(self, record: dict[str, Any]) -> None:
        self.display.show({"step": self.step, "learning": f"step {record['step']} of {self.total}"})

    def say(self, message: str) -> None:
        self.display.say(message)


def training_frames(posterior: Posterior, data: Dataset) -> Dataset:
    """The frames of `data` that the posterior was conditioned on; frames it held back stay held back."""
    marks = set(posterior.data.get("frame_marks", ()))
    if not marks:
        return data
    own = [structure for structure in data if frame_mark(structure) in marks]
    missing = len(marks) - len({frame_mark(structure) for structure in own})
    if missing:
        raise InputError(
            f"{data.name}: {missing} of {counted(len(marks), 'frame')} that the posterior was sampled from are not in it; "
            "name the data it was sampled from"
        )
    return Dataset(own, data.name, data.isolated_atoms)
