"""The log of a simulation: one line per frame, readable by people, numpy and pandas.

columns = read_log("traj-md/md.log")
columns["temperature"]                    # K
"""

from collections.abc import Sequence
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np
from ase import units

from equibayes.errors import InputError
from equibayes.simulate.trust import Trust
from equibayes.simulate.watch import Observation

COLUMNS = {
    "step": "1",
    "time": "fs",
    "temperature": "K",
    "potential": "eV",
    "kinetic": "eV",
    "conserved": "eV",
    "max_devi_f": "eV/Å",
    "avg_devi_f": "eV/Å",
    "min_devi_f": "eV/Å",
    "atom": "1",
    "energy_std": "eV",
    "state": "word",
}
"""Name and unit of each column.  `atom` (counted from 0) has the largest deviation; `conserved` is nan with Langevin
dynamics, which conserves no energy."""


CELL_COLUMNS = {"volume": "Å³", "pressure": "GPa", "a": "Å", "b": "Å", "c": "Å", "pressure_std": "GPa"}
"""Further columns where the cell changes; `pressure` is that of the atoms, with their kinetic part, and `pressure_std`
its σ (not in logs of earlier versions)."""
UNITS = COLUMNS | CELL_COLUMNS


def columns_for(ensemble: str) -> list[str]:
    """The columns of a new log."""
    return [*UNITS] if ensemble.startswith("npt") else [*COLUMNS]


def columns_in(text: str) -> list[str]:
    """The columns of a log, from the last line of its header."""
    headings = [line.removeprefix("#").split() for line in text.splitlines() if line.startswith("#")]
    return headings[-1] if headings and set(headings[-1]) <= set(UNITS) else [*COLUMNS]


def header(trust: Trust, deviation: str, engine: str, columns: Sequence[str] = tuple(COLUMNS)) -> str:
    """The lines above the first frame; engine: what computes the forces."""
    levels = ", ".join(
        f"{name} trust level " + ("none" if level is None else f"{level:.6g} eV/Å")
        for name, level in (("lower", trust.lower), ("upper", trust.upper))
    )
    told = ", ".join(f"{name} {UNITS[name]}" for name in columns if UNITS[name] not in ("1", "word"))
    return (
        f"# equibayes md, engine {engine}; deviations: {deviation} sigma of an atom's force components; {levels}\n"
        f"# units: {told}\n# {' '.join(columns)}\n"
    )


def line(now: Observation, columns: Sequence[str] = tuple(COLUMNS)) -> str:
    """The line of one frame."""
    results, deviation = now.results, now.deviation
    kinetic, devi = float(now.atoms.get_kinetic_energy()), (deviation.largest, deviation.mean, deviation.smallest)
    words = (
        f"{now.step:9d} {now.time_fs:12.3f} {now.temperature:10.3f} {results['energy']:18.8f} {kinetic:14.8f} "
        f"{now.conserved:18.8f} {' '.join(f'{value:12.6f}' for value in devi)} {deviation.atom:6d} "
        f"{results['energy_std']:12.6f} {now.state}"
    )
    if "volume" in columns:
        volume, lengths = float(now.atoms.get_volume()), now.atoms.cell.lengths()
        pressure = pressure_of(volume, kinetic, results["stress"])
        words += f" {volume:14.6f} {pressure:12.6f} {' '.join(f'{length:12.6f}' for length in lengths)}"
    if "pressure_std" in columns:
        words += f" {results['pressure_std'] / units.GPa:12.6f}"
    return f"{words}\n"


def pressure_of(volume: float, kinetic: float, stress: np.ndarray) -> float:
    """GPa; kinetic energy in eV, stress [6] in eV/Å³ without the kinetic part."""
    return float((2 * kinetic / volume - stress[:3].sum()) / 3 / units.GPa)


def describe_step(record: dict[str, Any]) -> dict[str, str]:
    """What a display shows of a step (see `run/progress.py`), or of learning while the simulation waits."""
    if "learning" in record:
        return {"learning": record["learning"]}
    sigma = record["largest_sigma"]
    words = {"T": f"{record['temperature']:.0f} K"}
    words["largest σ"] = f"{1e3 * sigma:.0f} meV/Å" if isfinite(sigma) else "not finite"
    return words | ({"frame": record["state"]} if "state" in record else {})


def read_log(path: str | Path) -> dict[str, np.ndarray]:
    """Columns by name: `state` as strings, `step` and `atom` as integers."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as cause:
        raise InputError(f"{path}: cannot be read ({cause.strerror})") from cause
    names = columns_in(text)
    rows = [words for words in map(str.split, text.splitlines()) if words and not words[0].startswith("#")]
    if any(len(words) != len(names) for words in rows):
        raise InputError(
            f"{path}: a line without {len(names)} columns; this is not a log of equibayes md, or it was cut short"
        )
    columns: dict[str, np.ndarray] = {}
    for name, values in zip(names, zip(*rows) if rows else [()] * len(names)):
        kind = str if name == "state" else int if name in ("step", "atom") else float
        columns[name] = np.array([kind(value) for value in values], dtype=None if kind is str else kind)
    return columns
