"""Labels for the candidates of a simulation: the oracle that calls an engine and continues with the same model.

| file in the folder beside the trajectory |                                                                     |
|------------------------------------------|---------------------------------------------------------------------|
| labels.xyz                               | all labels so far, ready to be learned from                         |
| asked.json                               | all queries: step, σ, error of the model, or why the engine failed  |
| label-0000/label.xyz, or refused.txt     | the answer to the first query, as soon as it is known               |

Each file is complete or absent and follows from those before it: a killed run asks nothing twice and ends in the same
files.
"""

import json
import shutil
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from equibayes.data.extxyz import read_exact, write_exact
from equibayes.data.reference import EnergyReference
from equibayes.data.structures import Structure
from equibayes.errors import InputError
from equibayes.files import make_folder, remove_leftovers, write_text
from equibayes.labelling.labellers import LabelSource, Refusal
from equibayes.learning.screen import too_close
from equibayes.plural import counted
from equibayes.run.progress import Display, Silent
from equibayes.simulate.calculator import Calculator
from equibayes.simulate.oracle import Query, Reply

FAR_OFF = 1.0
"""eV per atom; engine and model that differ by more do not refer to the same zero of energy."""


@dataclass(frozen=True)
class Asked:
    """A frame that was sent to the labeller.

    sigma   eV/Å, the largest deviation of the frame before it was learned
    error   eV/Å, RMS of force components, model minus engine; None if the engine gave no label (`refused` says why)
    """

    step: int
    sigma: float
    error: float | None
    refused: str = ""


class LabelCandidates:
    """Labels candidates; the simulation continues with the same model."""

    def __init__(self, labeller: LabelSource, reference: EnergyReference, name: str = "") -> None:
        """reference: of the model's energies.  name: of the engine; a run can only be resumed with the same one."""
        self.labeller, self.reference, self.name = labeller, reference, name
        self.asked: list[Asked] = []
        self.labels: list[Structure] = []
        self.folder = Path()  # until `begin`
        self.display: Display = Silent()

    @property
    def identity(self) -> dict[str, Any]:
        return {"labeller": self.name}

    def summary(self) -> dict[str, Any]:
        """Counts for the summary of a simulation."""
        refused = sum(each.error is None for each in self.asked)
        return {"asked": len(self.asked), "refused": refused, "learned": 0, "posterior": None}

    def begin(self, folder: Path, asked: int | None, display: Display) -> Calculator | None:
        self.folder, self.display = folder, display
        self.asked, self.labels = [], []
        if asked is None:
            for old in folder.glob("label-*"):
                shutil.rmtree(old)
            for name in ("labels.xyz", "asked.json"):
                (folder / name).unlink(missing_ok=True)
        elif asked:
            self.asked = [Asked(**each) for each in json.loads((folder / "asked.json").read_text("utf-8"))[:asked]]
            found = (self._known(number, each.step) for number, each in enumerate(self.asked))
            self.labels = [label for label in found if label is not None]
        return None

    def answer(self, query: Query) -> Reply:
        frame = Structure.from_atoms(query.atoms, _source(query.step))
        if too_close(frame):
            return Reply(ended=f"at step {query.step} two atoms are too close")
        remove_leftovers(make_folder(self._place(query.number)))
        label = self._label(query, frame)
        if isinstance(label, Refusal):
            self.display.say(f"step {query.step}: no label ({label.reason}); continuing without it")
            reply = Reply()
            self.asked.append(Asked(query.step, query.deviation.largest, None, label.reason))
        else:
            self._check_energy(query, label)
            error = self._report(query, label)
            reply = self._learn(query, label)
            self.asked.append(Asked(query.step, query.deviation.largest, error))
            self.labels.append(label)
        write_exact(self.folder / "labels.xyz", self.labels)
        listed = json.dumps([asdict(each) for each in self.asked], indent=1, ensure_ascii=False)
        write_text(self.folder / "asked.json", listed + "\n")
        return reply

    def _check_energy(self, query: Query, label: Structure) -> None:
        """Labels of a level of theory other than that of the data must not be mixed with them."""
        assert label.energy is not None
        away = abs(label.energy - float(query.results["energy"])) / len(label)
        if self.reference.knows(label.numbers) and away > FAR_OFF:
            raise InputError(
                f"step {query.step}: the labeller's energy differs from the model's by {away:.3g} eV per atom, "
                "so the data are of another level of theory; label them with the same engine first "
                "(equibayes learn --labeller …)"
            )

    def _report(self, query: Query, label: Structure) -> float:
        """The error of the model's forces, eV/Å (RMS), which is also displayed."""
        assert label.forces is not None
        error = float(np.sqrt(np.square(query.results["forces"] - label.forces).mean()))
        words = f"σ {1e3 * query.deviation.largest:.1f} meV/Å, error {1e3 * error:.1f} meV/Å (RMS)"
        self.display.say(f"step {query.step}: {words}; {counted(len(self.labels) + 1, 'label')}")
        return error

    def _learn(self, query: Query, label: Structure) -> Reply:
        """Nothing is learned here."""
        return Reply()

    def _label(self, query: Query, frame: Structure) -> Structure | Refusal:
        """The frame with its label, or why there is none; a stored answer is not asked for again."""
        place = self._place(query.number)
        known = self._known(query.number, query.step)
        if known is not None and known.geometry_digest() == frame.geometry_digest():
            return known
        if (place / "refused.txt").exists():
            return Refusal((place / "refused.txt").read_text("utf-8").strip(), 0.0)
        answer = self.labeller.label(frame)
        if isinstance(answer, Refusal):
            write_text(place / "refused.txt", answer.reason + "\n")
            return answer
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
