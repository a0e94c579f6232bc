"""The folder of a round: what was chosen and why, its labels, all the data so far, the posterior, and how good it is.

| file            |                                                                                              |
|-----------------|----------------------------------------------------------------------------------------------|
| chosen.xyz      | the structures that are sent to the labeller                                                 |
| choice.json     | which they are, the score and the reason of each, and what became of all proposals           |
| labels/0000.xyz | the label of the first of them, as soon as it is there; or 0000.failed with the reason; with  |
|                 | --cluster one may come after its round has gone on: it is in the data of a later round       |
| data.xyz        | everything that is learned from                                                              |
| round.posterior | and beside it round.run/ with checkpoints and metrics                                        |
| measured.json   | errors and σ on the test set                                                                 |
| survey.json     | what this posterior thinks of the proposals for the next round                               |

Each is whole or not there, and each follows from those above and from the round before.  So a run that was killed goes on at the
first that is missing.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from equibayes.data.dataset import Dataset
from equibayes.data.structures import Structure
from equibayes.errors import InputError
from equibayes.files import make_folder, remove_leftovers, write_text
from equibayes.labelling.labellers import Label, Refusal
from equibayes.labelling.parallel import ParallelLabels
from equibayes.labelling.pool import Labels
from equibayes.data.extxyz import read_exact, write_exact


@dataclass(frozen=True)
class Round:
    """One of the rounds in a folder."""

    folder: Path
    number: int

    @property
    def path(self) -> Path:
        return self.folder / f"round-{self.number:03d}"

    @property
    def posterior(self) -> Path:
        return self.path / "round.posterior"

    @property
    def data(self) -> Path:
        return self.path / "data.xyz"

    @property
    def chosen(self) -> Path:
        return self.path / "chosen.xyz"

    def next(self) -> "Round":
        return Round(self.folder, self.number + 1)

    def note(self, name: str) -> dict[str, Any] | None:
        """A JSON file of the round, None where it is not there yet."""
        path = self.path / f"{name}.json"
        if not path.exists():
            return None
        try:
            content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        except ValueError:
            raise InputError(f"{path}: damaged; delete it, and the same command makes it again") from None
        return content

    def write_note(self, name: str, content: dict[str, Any]) -> None:
        make_folder(self.path)
        text = json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False)
        write_text(self.path / f"{name}.json", text + "\n")

    def write_choice(self, structures: Sequence[Structure], why: dict[str, Any]) -> None:
        make_folder(self.path)
        write_exact(self.chosen, structures)
        self.write_note("choice", why)  # last: where it is, the structures are

    def asked(self) -> list[Structure]:
        """What was sent to the labeller."""
        return list(read_exact(self.chosen)) if self.chosen.exists() and self.chosen.stat().st_size else []

    def label(self, labeller: Labels, *, wait: bool = True) -> Iterator[tuple[int, str]]:
        """Label what is not labelled yet; yields the number of each structure and why it failed, if it did.

        wait: False takes what has been labelled elsewhere in the meantime, and asks for the rest without waiting for it."""
        structures, folder = self.asked(), make_folder(self.path / "labels")
        remove_leftovers(folder)
        missing = [n for n in range(len(structures)) if not self._label_files(n)]
        for place, answer in answers(labeller, [structures[n] for n in missing], wait=wait):
            number = missing[place]
            if isinstance(answer, Refusal):
                write_text(folder / f"{number:04d}.failed", answer.reason + "\n")
                yield number, answer.reason
            else:
                write_exact(folder / f"{number:04d}.xyz", [answer.attach(structures[number])])
                yield number, ""

    def labelled(self) -> list[Structure]:
        """What came back, in the order of choice."""
        return [read_exact(path)[0] for path in sorted((self.path / "labels").glob("*.xyz"))]

    def failures(self) -> list[str]:
        return [path.read_text(encoding="utf-8").strip() for path in sorted((self.path / "labels").glob("*.failed"))]

    def forget_failures(self) -> None:
        """So that the same command asks again."""
        for path in (self.path / "labels").glob("*.failed"):
            path.unlink()

    def training_data(self, isolated: dict[int, float]) -> Dataset:
        data = read_exact(self.data)
        return Dataset(data.structures, data.name, isolated)

    def _label_files(self, number: int) -> list[Path]:
        return list((self.path / "labels").glob(f"{number:04d}.*"))


def answers(labeller: Labels, structures: Sequence[Structure], *, wait: bool) -> Iterator[tuple[int, Label | Refusal]]:
    """One after the other, or as they come where the labeller takes many at once."""
    if isinstance(labeller, ParallelLabels):
        yield from labeller.label_many(structures, patience=None if wait else 0.0)
        return
    for number, structure in enumerate(structures):
        yield number, labeller.label(structure)


def finished_rounds(folder: Path) -> list[Round]:
    """Those that have been measured, in order."""
    found = []
    current = Round(folder, 0)
    while (current.path / "measured.json").exists():
        found.append(current)
        current = current.next()
    return found
