"""Force deviations of a frame, and the trust levels they are compared with.

The deviation of an atom is the root mean square of its three force σ; a frame has the largest, mean and smallest of
its atoms (`max_devi_f`, `avg_devi_f`, `min_devi_f`; those of DeePMD, the norm of the vector of σ, are larger by √3).

| state     | largest deviation               |                                                                  |
|-----------|---------------------------------|------------------------------------------------------------------|
| trusted   | below the lower level           |                                                                  |
| candidate | from the lower to the upper one | worth labelling                                                  |
| exploded  | at or above the upper one       | unphysical: a label would not help                               |
| unknown   | not a finite number             | the model does not know; never taken for certain, never labelled |
"""

from dataclasses import dataclass

import numpy as np

from equibayes.data.structures import FloatArray
from equibayes.errors import InputError, one_line
from equibayes.posterior.file import Posterior
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
    """Deviations of one frame, eV/Å; `atom` has the largest."""

    largest: float
    mean: float
    smallest: float
    atom: int

    @classmethod
    def of(cls, sigma: FloatArray) -> "Deviation":
        """From σ of force components [n, 3]."""
        each = atom_deviations(sigma)
        return cls(float(each.max()), float(each.mean()), float(each.min()), int(each.argmax()))


@dataclass(frozen=True)
class Trust:
    """Trust levels in eV/Å; None for no level."""

    lower: float | None = None
    upper: float | None = None

    def __post_init__(self) -> None:
        for name, level in (("lower", self.lower), ("upper", self.upper)):
            if level is not None and not 0 < level < float("inf"):
                raise InputError(f"{name} trust level {level:g}: must be above 0, in eV/Å")
        if self.lower is not None and self.upper is not None and self.lower > self.upper:
            raise InputError(
                f"the lower trust level {self.lower:g} eV/Å is above the upper one, {self.upper:g} eV/Å; swap them"
            )

    @classmethod
    def of(cls, lower: float | str | None, upper: float | str | None, posterior: Posterior) -> "Trust":
        """From the options --trust-lo and --trust-hi: see `trust_level`."""
        given = {"--trust-lo": lower, "--trust-hi": upper}
        texts = {option: None if level is None else str(level) for option, level in given.items()}
        return cls(*(trust_level(text, posterior, option) for option, text in texts.items()))

    def state(self, deviation: float) -> str:
        """One of `STATES`."""
        if not np.isfinite(deviation):
            return "unknown"
        if self.upper is not None and deviation >= self.upper:
            return "exploded"
        return "candidate" if self.lower is not None and deviation >= self.lower else "trusted"

    @property
    def stated(self) -> bool:
        """Whether there is a level at all."""
        return self != Trust()


def sentence(state: str, deviation: Deviation, symbol: str) -> str:
    """What a state other than "trusted" means; `symbol` is the element of the atom with the largest deviation."""
    where = f"σ of atom {deviation.atom} ({symbol})"
    if state == "unknown":
        return f"{where} is not finite: the model does not know"
    level = "upper" if state == "exploded" else "lower"
    return f"{where} is {deviation.largest:.3f} eV/Å, above the {level} trust level"


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
