"""Several files as one `Dataset`: patterns such as `frames/*.xyz`, and whether the files belong together."""

import warnings
from collections.abc import Sequence
from glob import glob
from pathlib import Path
from typing import Any

from equibayes.data.dataset import Dataset
from equibayes.data.elements import formula
from equibayes.data.files import one_line
from equibayes.data.read import read
from equibayes.data.specs import parse_spec
from equibayes.errors import InputError, InputWarning
from equibayes.plural import counted

Given = Dataset | str | Path
"""A data set, or DATA as users write it; `*`, `?`, `[…]` and `**` match file names."""
SPLIT_FILES = (".splits.npz", ".splits.json")
SAME_LEVEL = 0.5
"""eV per atom between the energies of one molecule in two files; thermal energies and functionals differ by less."""
NAMED_FILES = 3


def read_all(given: Given | Sequence[Given], **options: Any) -> Dataset:
    """One data set of all files, one after another, with the options of `read` for each.

    Warns where the files do not seem to belong together: energies of another level or unit, or the same frames.
    """
    each = [given] if isinstance(given, (Dataset, str, Path)) else list(given)
    parts = [part for one in each for part in _read_each(one, options)]
    if not parts:
        raise InputError("no data: name at least one file")
    if len(parts) == 1:
        return parts[0]
    messages = [*_levels(parts), *_repeats(parts)]
    for message in messages:
        warnings.warn(message, InputWarning, stacklevel=2)
    names = [part.name for part in parts]
    many = len(names) > NAMED_FILES
    whole = Dataset.concatenate(parts, f"{names[0]} + … + {names[-1]} ({len(names)} files)" if many else None)
    return whole.noted(*messages) if messages else whole


def _read_each(one: Given, options: dict[str, Any]) -> list[Dataset]:
    return [one] if isinstance(one, Dataset) else [read(spec, **options) for spec in expand(one)]


def is_pattern(text: str | Path) -> bool:
    """Whether it stands for the files that it matches, and is not itself the name of a file."""
    word = str(text)
    return not word.startswith("bundled:") and any(c in word for c in "*?[") and not parse_spec(word).path.is_file()


def expand(text: str | Path) -> list[str]:
    """The files that a pattern matches, in the order of their names; each with the `@split` of the pattern."""
    word = str(text)
    if not is_pattern(word):
        return [word]
    pattern, at, split = word.rpartition("@")
    found = _matching(word)
    if not found and at:
        found = [f"{name}@{split}" for name in _matching(pattern)]
    if not found:
        raise InputError(f"{one_line(word, 300)}: no file matches this pattern; check the folder and the ending")
    return found


def _matching(pattern: str) -> list[str]:
    names = (name for name in glob(pattern, recursive=True) if not name.endswith(SPLIT_FILES))
    return sorted(name for name in names if Path(name).is_file())


def _levels(parts: Sequence[Dataset]) -> list[str]:
    """Where energies of one molecule in two files are far apart, once for each file."""
    seen: dict[str, tuple[float, float, str]] = {}
    messages = []
    for part in parts:
        for name, (low, high) in _ranges(part).items():
            lowest, highest, before = seen.setdefault(name, (low, high, part.name))
            gap = max(low - highest, lowest - high)
            if gap > SAME_LEVEL:
                messages.append(
                    f"{part.name}: energies of {name} are {gap:.3g} eV per atom away from those in {before}; are the level "
                    "of theory, the unit and the zero of energy the same? (equibayes info shows them)"
                )
                break
            seen[name] = (min(low, lowest), max(high, highest), before)
    return messages


def _ranges(part: Dataset) -> dict[str, tuple[float, float]]:
    """Lowest and highest energy of each formula, eV per atom."""
    found: dict[str, tuple[float, float]] = {}
    for structure in part:
        if structure.energy is not None:
            name, energy = formula(structure.numbers), structure.energy / len(structure)
            low, high = found.get(name, (energy, energy))
            found[name] = (min(low, energy), max(high, energy))
    return found


def _repeats(parts: Sequence[Dataset]) -> list[str]:
    """Frames of a file that another file holds already."""
    seen: dict[bytes, str] = {}
    messages = []
    for part in parts:
        digests = [(structure.geometry_digest(), structure.source) for structure in part]
        again = [(source, seen[digest]) for digest, source in digests if digest in seen]
        if again:
            messages.append(
                f"{part.name}: {counted(len(again), 'frame')} with the geometry of one in another file ({again[0][0]} = "
                f"{again[0][1]}); they count twice: leave them out"
            )
        seen |= dict(digests)
    return messages
