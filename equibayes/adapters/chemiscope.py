"""Trajectories and predictions as chemiscope data sets: structures coloured by σ beside a map of all frames.

The frames are those that `equibayes md` and `equibayes predict` write.  Open the file at chemiscope's site, or in a
notebook with `chemiscope.show_input("file.json.gz")`.

| property                      | of    | unit |                                                     |
|-------------------------------|-------|------|-----------------------------------------------------|
| step, time                    | frame | fs   | of a trajectory                                     |
| energy, energy_std, …         | frame | eV   | with the parts of σ where the file has them         |
| energy_error                  | frame | eV   | where there are labels                              |
| max_devi_f                    | frame | eV/Å | the largest atom_sigma                              |
| atom_sigma                    | atom  | eV/Å | √ mean of the three squared σ of force components   |
| force_error                   | atom  | eV/Å | the same of the errors, where there are labels      |
"""

import gzip
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
from ase import Atoms

from equibayes.files import write_atomically
from equibayes.simulate.frames import read_frames

DECIMALS = 6
"""Of every number."""
SHOWN_AROUND = 3.5
"""Å around an atom that is selected."""

Value = Callable[[Atoms], Any]
OF_FRAMES: dict[str, tuple[str, str, Value]] = {
    "step": ("", "step of the simulation", lambda a: a.info["step"]),
    "time": ("fs", "time", lambda a: a.info["time"]),
    "energy": ("eV", "energy, the mean over the samples", lambda a: a.calc.results["energy"]),
    "energy_std": ("eV", "σ of the energy", lambda a: a.info["energy_std"]),
    "energy_epistemic": ("eV", "spread of the samples", lambda a: a.info["energy_epistemic"]),
    "energy_aleatoric": ("eV", "noise of the energy", lambda a: a.info["energy_aleatoric"]),
    "energy_error": ("eV", "predicted − label", lambda a: a.calc.results["energy"] - a.info["REF_energy"]),
    "max_devi_f": ("eV/Å", "largest σ of an atom's force", lambda a: a.arrays["atom_sigma"].max()),
}
OF_ATOMS: dict[str, tuple[str, str, Value]] = {
    "atom_sigma": ("eV/Å", "σ of the force, root mean square of its components", lambda a: a.arrays["atom_sigma"]),
    "force_error": (
        "eV/Å",
        "error of the force, root mean square of its components",
        lambda a: np.sqrt(np.square(a.calc.results["forces"] - a.arrays["REF_forces"]).mean(1)),
    ),
}


def convert(source: str | Path, path: str | Path) -> None:
    """Write the chemiscope file of an extended xyz file with predictions."""
    text = json.dumps(dataset(read_frames(source), Path(source).name), ensure_ascii=False, separators=(",", ":"))
    content = text.encode()
    # without a time stamp: the same trajectory gives the same bytes
    packed = gzip.compress(content, mtime=0) if str(path).endswith(".gz") else content
    write_atomically(path, lambda temporary: temporary.write_bytes(packed))


def dataset(frames: list[Atoms], name: str) -> dict[str, Any]:
    """The whole data set, as JSON has it."""
    properties = _properties("structure", OF_FRAMES, frames) | _properties("atom", OF_ATOMS, frames)
    axes = {"x": {"property": "time" if "time" in properties else "energy"}, "y": {"property": "max_devi_f"}}
    settings = {
        "target": "structure",
        "map": axes | {"color": {"property": "energy_std"}, "joinPoints": "time" in properties},
        "structure": [{"color": {"property": "atom_sigma"}, "unitCell": bool(frames[0].pbc.any())}],
    }
    described = {"name": name, "description": "energies and forces with their uncertainties, by equibayes"}
    return {
        "meta": described,
        "structures": [_structure(atoms) for atoms in frames],
        # without them, atoms cannot be coloured
        "environments": [
            {"structure": number, "center": atom, "cutoff": SHOWN_AROUND}
            for number, atoms in enumerate(frames)
            for atom in range(len(atoms))
        ],
        "properties": properties,
        "settings": settings,
    }


def _structure(atoms: Atoms) -> dict[str, Any]:
    """Å"""
    x, y, z = (_rounded(column) for column in atoms.positions.T)
    cell = {"cell": _rounded(atoms.cell.array.ravel())} if atoms.pbc.any() else {}
    return {"size": len(atoms), "names": atoms.get_chemical_symbols(), "x": x, "y": y, "z": z, **cell}


def _properties(
    target: str, kinds: dict[str, tuple[str, str, Value]], frames: list[Atoms]
) -> dict[str, dict[str, Any]]:
    """Those that every frame has."""
    found = {}
    for name, (unit, description, value) in kinds.items():
        try:
            values = np.concatenate([np.atleast_1d(value(atoms)) for atoms in frames])
        except KeyError:
            continue
        units = {"units": unit} if unit else {}
        found[name] = {"target": target, "values": _rounded(values), "description": description, **units}
    return found


def _rounded(values: Iterable[float]) -> list[float]:
    return [round(float(value), DECIMALS) for value in values]
