"""Proposals of structures to be labelled: a given pool, or dynamics with the current model."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from equibayes.data.dataset import Dataset
from equibayes.data.extxyz import read_exact
from equibayes.data.structures import Structure
from equibayes.files import make_folder
from equibayes.learning.settings import MdSettings
from equibayes.plural import counted
from equibayes.posterior.file import Posterior
from equibayes.simulate.trust import Trust


class Proposer(Protocol):
    """Structures without labels; a pure function of its arguments, so that a resumed run proposes the same."""

    def first(self, count: int, rng: np.random.Generator) -> list[Structure]:
        """Structures to choose from before there is a posterior, if possible more than `count`."""
        ...

    def __call__(self, posterior: Posterior, trust: Trust, folder: Path, seed: int) -> list[Structure]: ...


class PoolProposer:
    """Proposes the whole pool."""

    def __init__(self, pool: Dataset) -> None:
        self.structures = [bare(structure) for structure in pool]

    def first(self, count: int, rng: np.random.Generator) -> list[Structure]:
        return self.structures

    def __call__(self, posterior: Posterior, trust: Trust, folder: Path, seed: int) -> list[Structure]:
        return self.structures


class MdProposer:
    """Frames of trajectories with the current posterior; each ends where it explodes or the model does not know."""

    def __init__(
        self, starts: Dataset, settings: MdSettings, device: str, say: Callable[[str], None] = lambda _: None
    ) -> None:
        self.starts = [bare(structure) for structure in starts]
        self.settings, self.device, self.say = settings, device, say

    def first(self, count: int, rng: np.random.Generator) -> list[Structure]:
        """The start structures, and displaced copies if there are too few."""
        found = list(self.starts)
        while len(found) < count:
            origin = self.starts[len(found) % len(self.starts)]
            moved = origin.positions + rng.normal(scale=self.settings.rattle, size=origin.positions.shape)
            found.append(replace(origin, positions=moved, source=f"{origin.source}, displaced"))
        return found

    def __call__(self, posterior: Posterior, trust: Trust, folder: Path, seed: int) -> list[Structure]:
        from equibayes.simulate.bias import BiasedCalculator
        from equibayes.simulate.calculator import Calculator
        from equibayes.simulate.md import run_md
        from equibayes.simulate.watch import Watch

        found: list[Structure] = []
        # repeated if there are few
        origins = np.linspace(0, len(self.starts) - 1, self.settings.starts).round().astype(int)
        make_folder(folder)
        options: dict[str, Any] = {"device": self.device, "novelty": (None, None)}  # the simulation judges
        # where the model does not know, forces have little to do with the truth
        watched = replace(trust, novelty_upper=self.settings.novelty)
        watch = Watch(watched, on_uncertain="write", every=self.settings.every, save_every=self.settings.steps)
        for number, origin in enumerate(origins):
            path = folder / f"trajectory-{number:02d}.xyz"
            conditions = self.settings.conditions(seed + number)
            start, bias = self.starts[origin].to_atoms(), self.settings.bias
            # one for each trajectory: the bias begins at its start
            calculator = (
                BiasedCalculator(posterior, strength=bias, **options) if bias else Calculator(posterior, **options)
            )
            result = run_md(calculator, start, conditions, self.settings.steps, path, watch=watch, overwrite=True)
            ended = f", {result.ended}" if result.ended else ""
            self.say(f"trajectory {number}: {result.step} of {counted(self.settings.steps, 'step')}{ended}")
            # the frames contain predictions, which are not labels
            found += [bare(structure) for structure in read_exact(path)]
        return found


def bare(structure: Structure) -> Structure:
    """The structure without its labels, and without velocities, which each trajectory draws."""
    return replace(structure, energy=None, forces=None, stress=None, momenta=None)
