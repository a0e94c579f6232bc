"""The log of a simulation: one line a frame, readable by people, numpy and pandas.

names, columns = read_log("traj-md/md.log")
"""

from math import isfinite
from pathlib import Path

import numpy as np

from equibayes.errors import InputError
from equibayes.simulate.trust import Deviation, Trust

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
"""Name and unit of each column.  `atom` (counted from 0) has the largest deviation; `conserved` is nan where nothing is."""


def header(trust: Trust, deviation: str) -> str:
    """The lines before the first frame."""
    levels = ", ".join(
        f"{name} trust level " + ("none" if level is None else f"{level:.6g} eV/Å")
        for name, level in (("lower", trust.lower), ("upper", trust.upper))
    )
    units = ", ".join(f"{name} {unit}" for name, unit in COLUMNS.items() if unit not in ("1", "word"))
    return (
        f"# equibayes md; deviations: {deviation} sigma of an atom's force components; {levels}\n"
        f"# units: {units}\n# {' '.join(COLUMNS)}\n"
    )


def line(
    step: int,
    time_fs: float,
    temperature: float,
    potential: float,
    kinetic: float,
    conserved: float,
    deviation: Deviation,
    energy_std: float,
    state: str,
) -> str:
    devi = " ".join(f"{value:12.6f}" for value in (deviation.largest, deviation.mean, deviation.smallest))
    return (
        f"{step:9d} {time_fs:12.3f} {temperature:10.3f} {potential:18.8f} {kinetic:14.8f} {conserved:18.8f} "
        f"{devi} {deviation.atom:6d} {energy_std:12.6f} {state}\n"
    )


def read_log(path: str | Path) -> dict[str, np.ndarray]:
    """Columns by name; `state` as words, `step` and `atom` as whole numbers."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as cause:
        raise InputError(f"{path}: cannot be read ({cause.strerror})") from cause
    rows = [words for words in map(str.split, text.splitlines()) if words and not words[0].startswith("#")]
    if any(len(words) != len(COLUMNS) for words in rows):
        raise InputError(f"{path}: a line without {len(COLUMNS)} columns; not a log of equibayes md, or cut short")
    columns: dict[str, np.ndarray] = {}
    for name, values in zip(COLUMNS, zip(*rows) if rows else [()] * len(COLUMNS)):
        kind = str if name == "state" else int if name in ("step", "atom") else float
        columns[name] = np.array([kind(value) for value in values], dtype=None if kind is str else kind)
    return columns


def words(value: float, digits: int) -> str:
    """A number for people; what is not finite is said."""
    return f"{value:.{digits}f}" if isfinite(value) else "not finite"
