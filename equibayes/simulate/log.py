"""The log of a simulation: one line per frame, readable by people, numpy and pandas.

columns = read_log("traj-md/md.log")
columns["temperature"]                    # K
"""

from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np

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


def header(trust: Trust, deviation: str) -> str:
    """The lines above the first frame."""
    levels = ", ".join(
        f"{name} trust level " + ("none" if level is None else f"{level:.6g} eV/Å")
        for name, level in (("lower", trust.lower), ("upper", trust.upper))
    )
    units = ", ".join(f"{name} {unit}" for name, unit in COLUMNS.items() if unit not in ("1", "word"))
    return (
        f"# equibayes md; deviations: {deviation} sigma of an atom's force components; {levels}\n"
        f"# units: {units}\n# {' '.join(COLUMNS)}\n"
    )


def line(now: Observation) -> str:
    """The line of one frame."""
    results, deviation = now.results, now.deviation
    kinetic, devi = float(now.atoms.get_kinetic_energy()), (deviation.largest, deviation.mean, deviation.smallest)
    return (
        f"{now.step:9d} {now.time_fs:12.3f} {now.temperature:10.3f} {results['energy']:18.8f} {kinetic:14.8f} "
        f"{now.conserved:18.8f} {' '.join(f'{value:12.6f}' for value in devi)} {deviation.atom:6d} "
        f"{results['energy_std']:12.6f} {now.state}\n"
    )


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
    rows = [words for words in map(str.split, text.splitlines()) if words and not words[0].startswith("#")]
    if any(len(words) != len(COLUMNS) for words in rows):
        raise InputError(
            f"{path}: a line without {len(COLUMNS)} columns; this is not a log of equibayes md, or it was cut short"
        )
    columns: dict[str, np.ndarray] = {}
    for name, values in zip(COLUMNS, zip(*rows) if rows else [()] * len(COLUMNS)):
        kind = str if name == "state" else int if name in ("step", "atom") else float
        columns[name] = np.array([kind(value) for value in values], dtype=None if kind is str else kind)
    return columns
