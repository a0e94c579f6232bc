"""Statistics of a whole simulation, accumulated step by step and kept when it is resumed."""

from dataclasses import dataclass, field, fields
from math import isfinite, nan, sqrt
from typing import Any

from equibayes import expect
from equibayes.errors import InputError, one_line
from equibayes.simulate.trust import STATES, Deviation


@dataclass
class Statistics:
    """Sums over the steps so far.

    states    number of frames in each of `trust.STATES`
    largest   largest finite deviation of an atom, eV/Å, with its step and atom (counted from 0)
    novelty   largest novelty of an atom, likewise; 0 where it is not known
    The others are sums of the temperature (K), of the conserved energy minus its first value (eV) and of the time
    (fs), for means and a linear fit.  All are finite, as JSON needs them.
    """

    frames: int = 0
    states: dict[str, int] = field(default_factory=lambda: dict.fromkeys(STATES, 0))
    largest: float = 0.0
    largest_step: int = 0
    largest_atom: int = 0
    novelty: float = 0.0
    novelty_step: int = 0
    novelty_atom: int = 0
    temperature: float = 0.0
    temperature_squared: float = 0.0
    first_energy: float | None = None
    energy: float = 0.0
    time: float = 0.0
    time_squared: float = 0.0
    time_energy: float = 0.0
    fitted: int = 0

    @staticmethod
    def check(content: Any) -> None:
        """An `InputError` for sums, as read from a file, that no simulation gives."""
        known = {each.name for each in fields(Statistics)}
        early = known - {"novelty", "novelty_step", "novelty_atom"}
        if set(expect.section(content, "statistics")) not in (known, early):
            raise InputError(f"statistics={one_line(list(content), 80)}: must be {', '.join(sorted(known))}")
        states = expect.section(content["states"], "statistics.states")
        if set(states) != set(STATES):
            raise InputError(f"statistics.states={one_line(list(states), 80)}: must be {', '.join(STATES)}")
        for name, value in states.items():
            expect.whole(value, f"statistics.states.{name}")
        for name in ("frames", "largest_step", "largest_atom", "novelty_step", "novelty_atom", "fitted"):
            expect.whole(content.get(name, 0), f"statistics.{name}")
        expect.number(content.get("novelty", 0.0), "statistics.novelty")
        sums = ("largest", "temperature", "temperature_squared", "energy", "time", "time_squared", "time_energy")
        for name in sums:
            expect.number(content[name], f"statistics.{name}")
        if content["first_energy"] is not None:
            expect.number(content["first_energy"], "statistics.first_energy")

    def add(
        self, step: int, time_fs: float, temperature: float, conserved: float, deviation: Deviation, state: str
    ) -> None:
        self.frames += 1
        self.states[state] += 1
        if isfinite(deviation.largest) and deviation.largest > self.largest:
            self.largest, self.largest_step, self.largest_atom = deviation.largest, step, deviation.atom
        if deviation.novelty > self.novelty:
            self.novelty, self.novelty_step, self.novelty_atom = deviation.novelty, step, deviation.novel_atom
        if isfinite(temperature):
            self.temperature += temperature
            self.temperature_squared += temperature**2
        if isfinite(conserved):
            if self.first_energy is None:
                self.first_energy = conserved
            above = conserved - self.first_energy
            self.fitted += 1
            self.energy += above
            self.time += time_fs
            self.time_squared += time_fs**2
            self.time_energy += time_fs * above

    @property
    def mean_temperature(self) -> float:
        return self.temperature / self.frames if self.frames else nan

    @property
    def temperature_spread(self) -> float:
        """Standard deviation over frames, K."""
        if not self.frames:
            return nan
        return sqrt(max(0.0, self.temperature_squared / self.frames - self.mean_temperature**2))

    def drift(self, atoms: int) -> float:
        """Slope of the conserved energy, meV/atom/ps; NaN with fewer than two frames or without a conserved energy."""
        spread = self.time_squared * self.fitted - self.time**2
        if self.fitted < 2 or spread <= 0:
            return nan
        slope = (self.time_energy * self.fitted - self.time * self.energy) / spread  # eV/fs
        return slope * 1e3 * 1e3 / atoms

    def fraction(self, state: str) -> float:
        return self.states[state] / self.frames if self.frames else nan
