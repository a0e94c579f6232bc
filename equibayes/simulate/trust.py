"""Force deviations and novelty of a frame, and the trust levels they are compared with.

The deviation of an atom is the root mean square of its three force σ; a frame has the largest, mean and smallest of
its atoms (`max_devi_f`, `avg_devi_f`, `min_devi_f`; those of DeePMD, the norm of the vector of σ, are larger by √3).

| state     | largest deviation   | or novelty  |                                                                  |
|-----------|---------------------|-------------|------------------------------------------------------------------|
| trusted   | below the lower one | and below 1 |                                                                  |
| candidate | from the lower one  | from 1      | worth labelling                                                  |
| exploded  | from the upper one  |             | unphysical: a label would not help                               |
| unknown   | not finite          | from 3      | the model does not know; never taken for certain, never labelled |

Of several states the last one counts: where the model does not know, σ means nothing.  The novelty of a frame is the
largest of its atoms (`posterior/novelty.py`).  Posteriors of early versions have none: no reason for doubt.
"""

from dataclasses import dataclass

import numpy as np

from equibayes.data.elements import symbol
from equibayes.data.structures import FloatArray, IntArray
from equibayes.errors import InputError, one_line
from equibayes.posterior.file import Posterior
from equibayes.posterior.novelty import NOVELTY
from equibayes.posterior.summary import last_validation

STATES = ("trusted", "candidate", "exploded", "unknown")
DEVIATIONS = {"total": "forces_std", "epistemic": "forces_epistemic"}
"""The σ of the forces by the name of the option, and its name in a `Prediction`."""


def check_deviation(name: str) -> None:
    """An `InputError` unless it is one of `DEVIATIONS`."""
    if name not in DEVIATIONS:
        raise InputError(f"deviation {name}: choose {' or '.join(DEVIATIONS)}")


def atom_deviations(sigma: FloatArray) -> FloatArray:
    """[n] eV/Å, one number per atom, from σ of force components [n, 3]; infinite if any of them is not finite."""
    each = np.sqrt(np.square(np.asarray(sigma, dtype=np.float64)).mean(1))
    return np.where(np.isfinite(each), each, np.inf)


@dataclass(frozen=True)
class Deviation:
    """Deviations of one frame, eV/Å, of which `atom` has the largest; `novel_atom` has the largest novelty (NaN: not
    known)."""

    largest: float
    mean: float
    smallest: float
    atom: int
    novelty: float = float("nan")
    novel_atom: int = 0

    @classmethod
    def of(cls, sigma: FloatArray, novelty: FloatArray | None = None) -> "Deviation":
        """From σ of force components [n, 3] and the novelty of the atoms [n]."""
        each = atom_deviations(sigma)
        found = float(each.max()), float(each.mean()), float(each.min()), int(each.argmax())
        return cls(*found) if novelty is None else cls(*found, float(novelty.max()), int(novelty.argmax()))


@dataclass(frozen=True)
class Trust:
    """Trust levels of deviations, in eV/Å, and of novelty; None for no level."""

    lower: float | None = None
    upper: float | None = None
    novelty_lower: float | None = NOVELTY[0]
    novelty_upper: float | None = NOVELTY[1]

    def __post_init__(self) -> None:
        for name, level in (("lower", self.lower), ("upper", self.upper)):
            if level is not None and not 0 < level < float("inf"):
                raise InputError(f"{name} trust level {level:g}: must be above 0, in eV/Å")
        if self.lower is not None and self.upper is not None and self.lower > self.upper:
            raise InputError(
                f"the lower trust level {self.lower:g} eV/Å is above the upper one, {self.upper:g} eV/Å; swap them"
            )
        for level in (self.novelty_lower, self.novelty_upper):
            if level is not None and not 0 < level < float("inf"):
                raise InputError(f"level of novelty {level:g}: must be above 0; 1 is the edge of what was learned")
        if (self.novelty_lower or 0) > (self.novelty_upper or float("inf")):
            raise InputError(
                f"the lower level of novelty {self.novelty_lower:g} is above the upper one, {self.novelty_upper:g}; swap them"
            )

    @classmethod
    def of(
        cls,
        lower: float | str | None,
        upper: float | str | None,
        posterior: Posterior,
        novelty: tuple[float | None, float | None] = NOVELTY,
    ) -> "Trust":
        """From the options --trust-lo and --trust-hi (see `trust_level`), and levels of novelty."""
        given = {"--trust-lo": lower, "--trust-hi": upper}
        texts = {option: None if level is None else str(level) for option, level in given.items()}
        levels = [trust_level(text, posterior, option) for option, text in texts.items()]
        return cls(levels[0], levels[1], novelty[0], novelty[1])

    def state(self, deviation: float, novelty: float = float("nan")) -> str:
        """One of `STATES`."""
        if not np.isfinite(deviation) or _reaches(novelty, self.novelty_upper):
            return "unknown"
        if _reaches(deviation, self.upper):
            return "exploded"
        return "candidate" if _reaches(deviation, self.lower) or _reaches(novelty, self.novelty_lower) else "trusted"

    def judge(self, deviation: Deviation) -> str:
        """The state of a frame."""
        return self.state(deviation.largest, deviation.novelty)

    @property
    def of_sigma(self) -> bool:
        """Whether there is a level of the deviation."""
        return self.lower is not None or self.upper is not None

    @property
    def of_novelty(self) -> bool:
        """Whether there is a level of novelty."""
        return self.novelty_lower is not None or self.novelty_upper is not None

    def knows(self, novelty: FloatArray | None, sigma: FloatArray) -> bool:
        """Whether the novelty of all atoms is below all levels, and all σ are finite: the usual case, found quickly."""
        level = self.novelty_upper if self.novelty_lower is None else self.novelty_lower
        below = novelty is None or level is None or bool(novelty.max() < level)
        return below and bool(np.isfinite(sigma).all())

    def sentence(self, deviation: Deviation, numbers: IntArray) -> str:
        """What a state other than "trusted" means, for atoms of these elements."""
        state, sigma = self.judge(deviation), f"σ of atom {_name(deviation.atom, numbers)}"
        if not np.isfinite(deviation.largest):
            return f"{sigma} is not finite: the model does not know"
        if state in ("exploded", "candidate") and _reaches(deviation.largest, self.lower or self.upper):
            level = "upper" if state == "exploded" else "lower"
            return f"{sigma} is {deviation.largest:.3f} eV/Å, above the {level} trust level"
        novel = f"the novelty of atom {_name(deviation.novel_atom, numbers)} is {deviation.novelty:.4g}"
        return f"{novel}: " + ("the model does not know" if state == "unknown" else "beyond what was learned")


def _reaches(value: float, level: float | None) -> bool:
    return level is not None and value >= level


def _name(atom: int, numbers: IntArray) -> str:
    return f"{atom} ({symbol(int(numbers[atom]))})"


def parse_level(text: str, option: str) -> tuple[float, bool]:
    """The number in a level, and whether it is a multiple of the validation error."""
    number, multiple = text.strip().removesuffix("x"), text.strip().endswith("x")
    try:
        value = float(number)
        if 0 < value < float("inf"):
            return value, multiple
    except ValueError:
        pass
    raise InputError(
        f"{option} {one_line(text)}: give eV/Å such as 0.2, or a multiple of the validation error such as 3x"
    )


def trust_level(text: str | None, posterior: Posterior, option: str) -> float | None:
    """A level in eV/Å from the text of an option: `0.2`, or `3x` for three times the error on the held-back frames."""
    if text is None:
        return None
    value, multiple = parse_level(text, option)
    if not multiple:
        return value
    error = (last_validation(posterior) or {}).get("validation_force_mae_of_mean")
    if error is None:
        raise InputError(f"{option} {text}: no frames were held back when this posterior was sampled; give eV/Å")
    return value * float(error)
