"""Observables by name: what `equibayes md --observe` computes after the simulation, with uncertainties over posterior
samples.

| words        |                                                      | from                                           |
|--------------|------------------------------------------------------|------------------------------------------------|
| distance i j | mean distance of two atoms (counted from 0), Å       | one simulation with the forces of each sample  |
| rdf A B      | radial distribution of element B around A, up to 6 Å | the same                                       |
| energy       | mean potential energy, eV                            | every sample's energy of the trajectory frames |

The simulations of the samples are written beside the trajectory as member-00.xyz …  They start with the same
velocities and random numbers, so that they differ only by their potentials.  A resumed run reuses those that are
finished.  With `reweight` none is needed: all observables, the energy too, follow from the frames of the trajectory
with weights for every sample (`reweight.py`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from ase import Atoms

from equibayes.errors import InputError
from equibayes.plural import counted
from equibayes.posterior.sigma import DDOF
from equibayes.run.progress import Display, Silent
from equibayes.simulate.calculator import Calculator
from equibayes.simulate.frames import read_frames
from equibayes.simulate.integrators import Conditions
from equibayes.simulate.md import can_resume, run_md
from equibayes.simulate.observables import (
    Estimate,
    bond_length,
    estimate,
    member_energies,
    radial_distribution,
    single_sample,
)
from equibayes.simulate.reporter import folder_of
from equibayes.simulate.reweight import FEWEST, effective, log_weights, reweighted
from equibayes.simulate.watch import Watch

REACH = 6.0
"""Å, the range of radial distributions."""
BINS = 120


@dataclass(frozen=True)
class Observable:
    """words: as written by the user;  kind: distance, rdf or energy;  of: the atoms or elements."""

    words: str
    kind: str
    of: tuple[str, str] = ("", "")

    def __call__(self, frames: Sequence[Atoms]) -> np.ndarray:
        """[frames, …] values, one per frame."""
        if self.kind == "distance":
            return bond_length(frames, *map(int, self.of))
        return radial_distribution(frames, *self.of, r_max=REACH, bins=BINS)[1]


def parse_observables(words: Sequence[str], start: Atoms) -> list[Observable]:
    """Parse the words of the user; an `InputError` for anything that cannot be computed for `start`."""
    return [_parse(each, start) for each in words]


def _parse(text: str, start: Atoms) -> Observable:
    match text.split():
        case ["energy"]:
            return Observable(text, "energy")
        case ["distance", i, j] if i.isdigit() and j.isdigit():
            if max(int(i), int(j)) >= len(start) or i == j:
                raise InputError(f'--observe "{text}": two different atoms from 0 to {len(start) - 1} are needed')
            return Observable(text, "distance", (i, j))
        case ["rdf", first, second]:
            missing = {first, second} - set(start.symbols)
            if missing:
                there = ", ".join(sorted(set(start.symbols)))
                raise InputError(f'--observe "{text}": no {", ".join(sorted(missing))} among the elements {there}')
            return Observable(text, "rdf", (first, second))
    raise InputError(f'--observe "{text}": write "distance 0 1", "rdf O H" or "energy"')


def observe(
    observables: Sequence[Observable],
    calculator: Calculator,
    start: Atoms,
    conditions: Conditions,
    steps: int,
    output: str | Path,
    *,
    every: int = 10,
    discard: int = 0,
    reweight: bool = False,
    display: Display | None = None,
) -> dict[str, dict[str, Any]]:
    """Each observable with its uncertainty, after the simulation `output`; the calculator must have `members=True`.

    Returns for each: mean, spread over samples, statistical error, values of the samples, unit, and a sentence.
    """
    if not 0 <= discard < steps:
        raise InputError(f"discard {discard}: must be at least 0 and fewer than the {counted(steps, 'step')}")
    if reweight:
        return _reweighted(observables, calculator, start, conditions, _kept(output, discard, steps))
    trajectories: list[list[Atoms]] = []
    if any(each.kind != "energy" for each in observables):
        trajectories = _members(calculator, start, conditions, steps, output, every, discard, display or Silent())
    found = {}
    for each in observables:
        if each.kind == "energy":
            frames = _kept(output, discard, steps)
            known = estimate(member_energies(calculator, frames))
        else:
            known = estimate([each(frames) for frames in trajectories])
        found[each.words] = _shown(known, each, start)
    return found


def _reweighted(
    observables: Sequence[Observable], calculator: Calculator, start: Atoms, conditions: Conditions, frames: list[Atoms]
) -> dict[str, dict[str, Any]]:
    """The same from one trajectory."""
    if conditions.ensemble == "nve":
        raise InputError(
            "observables: nve has no temperature to reweight at; use a thermostat, or leave --reweight out"
        )
    weights = log_weights(calculator, frames, conditions.temperature)
    energies, left, found = np.array(member_energies(calculator, frames)), effective(weights), {}
    for each in observables:
        if each.kind == "energy":  # of every sample its own, in its own ensemble
            parts = [reweighted(own, weight[None]) for own, weight in zip(energies, weights)]
            members = np.array([part.mean for part in parts])
            error = np.sqrt(np.square([part.sampling for part in parts]).mean())
            known = Estimate(members.mean(0), members, members.std(0, ddof=DDOF), error)
        else:
            known = reweighted(each(frames), weights)
        shown = _shown(known, each, start)
        words = f"; reweighted, {left.min():.0f} to {left.max():.0f} effective of {counted(len(frames), 'frame')}"
        words += ": too few, use one simulation per sample" * bool(left.min() < FEWEST)
        found[each.words] = shown | {"effective_frames": left.tolist(), "words": shown["words"] + words}
    return found


def _shown(known: Estimate, observable: Observable, start: Atoms) -> dict[str, Any]:
    if observable.kind == "rdf":
        return _curve(known, observable, start)
    return _scalar(known, "eV" if observable.kind == "energy" else "Å")


def _members(
    calculator: Calculator,
    start: Atoms,
    conditions: Conditions,
    steps: int,
    output: str | Path,
    every: int,
    discard: int,
    display: Display,
) -> list[list[Atoms]]:
    """The frames of one simulation per sample, with the forces of that sample."""
    trajectories, count = [], len(calculator.posterior)
    for index in range(count):
        path = folder_of(output) / f"member-{index:02d}.xyz"
        sample, device = single_sample(calculator.posterior, index), calculator.device
        own = Calculator(sample, device=device, dtype=calculator.dtype, novelty=(None, None))
        watch = Watch(every=every, save_every=max(every, 100))
        display.say(f"observables: simulation with sample {index + 1} of {count}")
        resume = can_resume(own, start, conditions, watch, path)
        result = run_md(
            own, start, conditions, steps, path, watch=watch, resume=resume, overwrite=not resume, display=display
        )
        if result.ended:
            raise InputError(
                f"observables: the simulation with sample {index} ended early ({result.ended}); "
                "this posterior is not good enough for simulations of this length"
            )
        trajectories.append(_kept(path, discard, steps))
    return trajectories


def _kept(path: str | Path, discard: int, steps: int) -> list[Atoms]:
    """Frames after the first `discard` steps."""
    frames = [atoms for atoms in read_frames(path) if discard < atoms.info["step"] <= steps]
    if not frames:
        raise InputError(f"{path}: no frames after step {discard}; use a smaller --discard or --every")
    return frames


def _scalar(known: Estimate, unit: str) -> dict[str, Any]:
    mean, spread, error = (float(value) for value in (known.mean, known.spread, known.sampling))
    statistical = f", statistical error {error:.2g}" if np.isfinite(error) else ""
    # to the second digit of the spread
    digits = max(0, 1 - int(np.floor(np.log10(spread)))) if spread > 0 else 4
    words = f"{mean:.{digits}f} ± {spread:.2g} {unit} over {counted(len(known.members), 'sample')}{statistical}"
    return {**_numbers(known), "unit": unit, "words": words}


def _curve(known: Estimate, observable: Observable, start: Atoms) -> dict[str, Any]:
    """A radial distribution, with its highest maximum as a sentence."""
    width = REACH / BINS
    r = (np.arange(BINS) + 0.5) * width
    top = int(np.argmax(known.mean))
    unit = "1" if start.pbc.all() else "1/Å"
    words = (
        f"largest at {r[top]:.2f} Å: {known.mean[top]:.3g} ± {known.spread[top]:.2g}"
        + (" " if unit == "1" else f" {unit} ")
        + f"over {counted(len(known.members), 'sample')}"
    )
    return {"r": r.tolist(), **_numbers(known), "unit": unit, "words": words}


def _numbers(known: Estimate) -> dict[str, Any]:
    fields = {"mean": known.mean, "spread": known.spread, "statistical_error": known.sampling, "samples": known.members}
    return {
        name: np.where(np.isfinite(value), value, np.nan).tolist() if np.ndim(value) else float(value)
        for name, value in fields.items()
    }
