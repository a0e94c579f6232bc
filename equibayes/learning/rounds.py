"""The folder of a round: the choice with its reasons, the labels, all data so far, the posterior, and its errors.

| file            |                                                                                              |
|-----------------|----------------------------------------------------------------------------------------------|
| chosen.xyz      | the structures that are sent to the labeller                                                 |
| choice.json     | score and reason of each, and the states of all proposals                                    |
| labels/0000.xyz | the label of the first, as soon as it is known; or 0000.failed with the reason.  With        |
|                 | --cluster a slow label may arrive after its round: it joins the data of a later round        |
| data.xyz        | all training data                                                                            |
| round.posterior | the posterior; round.run/ beside it has checkpoints and metrics                              |
| measured.json   | errors and σ on the test set                                                                 |
| survey.json     | σ of this posterior on the proposals for the next round                                      |

Each file is complete or absent, and follows from those above and from the previous round.  A killed run continues
with the first missing file.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from equibayes.data.dataset import Dataset
from equibayes.data.extxyz import read_exact, write_exact
from equibayes.data.structures import Structure
from equibayes.errors import InputError
from equibayes.files import make_folder, remove_leftovers, write_text
from equibayes.labelling.labellers import Label, LabelSource, Refusal
from equibayes.labelling.parallel_labeller import ParallelLabeller


@dataclass(frozen=True)
class Round:
    """One round of a study."""

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

    def previous(self) -> "Round":
        return Round(self.folder, self.number - 1)

    def note(self, name: str) -> dict[str, Any] | None:
        """A JSON file of the round, None if it does not exist yet."""
        path = self.path / f"{name}.json"
        if not path.exists():
            return None
        try:
            content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        except ValueError:
            raise InputError(f"{path}: damaged; delete it and run the same command again") from None
        return content

    def write_note(self, name: str, content: dict[str, Any]) -> None:
        make_folder(self.path)
        text = json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False)
        write_text(self.path / f"{name}.json", text + "\n")

    def write_choice(self, structures: Sequence[Structure], why: dict[str, Any]) -> None:
        make_folder(self.path)
        write_exact(self.chosen, structures)
        self.write_note("choice", why)  # last: if it exists, so do the structures

    def asked(self) -> list[Structure]:
        """The structures sent to the labeller."""
        return list(read_exact(self.chosen)) if self.chosen.exists() and self.chosen.stat().st_size else []

    def label(self, labeller: LabelSource, *, wait: bool = True) -> Iterator[tuple[int, str]]:
        """Label what is not labelled yet; yields the number of each structure and why it failed, if it did.

        wait: False collects labels that are ready, and requests the others without waiting
        """
        structures, folder = self.asked(), make_folder(self.path / "labels")
        remove_leftovers(folder)
        missing = [n for n in range(len(structures)) if not any(folder.glob(f"{n:04d}.*"))]
        for place, answer in answers(labeller, [structures[n] for n in missing], wait=wait):
            number = missing[place]
            if isinstance(answer, Refusal):
                write_text(folder / f"{number:04d}.failed", answer.reason + "\n")
                yield number, answer.reason
            else:
                write_exact(folder / f"{number:04d}.xyz", [answer.attach(structures[number])])
                yield number, ""

    def labelled(self) -> list[Structure]:
        """The labelled structures, in the order of choice."""
        return [read_exact(path)[0] for path in sorted((self.path / "labels").glob("*.xyz"))]

    def failures(self) -> list[str]:
        return [path.read_text(encoding="utf-8").strip() for path in sorted((self.path / "labels").glob("*.failed"))]

    def forget_failures(self) -> None:
        """Let the next run try them again."""
        for path in (self.path / "labels").glob("*.failed"):
            path.unlink()

    def training_data(self, isolated: dict[int, float]) -> Dataset:
        data = read_exact(self.data)
        return Dataset(data.structures, data.name, isolated)


def answers(
    labeller: LabelSource, structures: Sequence[Structure], *, wait: bool
) -> Iterator[tuple[int, Label | Refusal]]:
    """One by one, or in the order in which they finish if the labeller takes many at once."""
    if isinstance(labeller, ParallelLabeller):
        yield from labeller.label_many(structures, patience=None if wait else 0.0)
        return
    for number, structure in enumerate(structures):
        yield number, labeller.label(structure)


def finished_rounds(folder: Path) -> list[Round]:
    """The rounds that have been measured, in order."""
    found = []
    current = Round(folder, 0)
    while (current.path / "measured.json").exists():
        found.append(current)
        current = current.next()
    return found
