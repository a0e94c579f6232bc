"""The one writer of extended xyz, and files that keep every bit of a structure.

ASE's writer rounds columns to eight decimals.  With `exact=True` each number is the shortest text that reads back as
the same number, so that a structure can be identified by its geometry after it has been written and read.
"""

import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from equibayes.data.dataset import Dataset
from equibayes.data.elements import symbol
from equibayes.data.read import read
from equibayes.data.structures import NOISE_KEY, WEIGHT_KEY, Structure
from equibayes.errors import InputWarning
from equibayes.files import write_text


def frame_text(
    structure: Structure, info: Mapping[str, Any], arrays: Mapping[str, np.ndarray], *, exact: bool = False
) -> str:
    """One frame: geometry of `structure`, then `info` (numbers, words, arrays) and `arrays` ([n] or [n, c]) in order,
    true or false ([n]) after the numbers.

    Labels of the structure are not written: put them into `info` and `arrays` under the names they should have.
    """
    from ase.io.extxyz import key_val_dict_to_str

    flags = {name: values for name, values in arrays.items() if values.dtype == np.bool_}
    columns = {"pos": structure.positions, **{name: values for name, values in arrays.items() if name not in flags}}
    widths = {name: 1 if values.ndim == 1 else values.shape[1] for name, values in columns.items()}
    properties = "".join(f":{name}:R:{width}" for name, width in widths.items()) + "".join(
        f":{name}:L:1" for name in flags
    )
    cell = " ".join(str(float(x)) for x in structure.cell.ravel())
    lattice = f'Lattice="{cell}" ' if structure.cell.any() else ""
    comment = f"{lattice}Properties=species:S:1{properties} {key_val_dict_to_str({**info, 'pbc': structure.pbc})}"
    rows = np.concatenate([np.reshape(values, (len(structure), -1)) for values in columns.values()], axis=1).tolist()
    form = repr if exact else "{:16.8f}".format
    ends = ["".join(f" {'T' if flag else 'F'}" for flag in each) for each in zip(*flags.values())] or [""] * len(rows)
    atoms = (
        f"{symbol(int(z)):2s} {' '.join(map(form, row))}{end}\n" for z, row, end in zip(structure.numbers, rows, ends)
    )
    return f"{len(structure)}\n{comment}\n{''.join(atoms)}"


def write_exact(path: str | Path, structures: Iterable[Structure]) -> None:
    """Write structures with their labels as REF_energy, REF_forces and REF_stress; the file is complete or absent."""
    write_text(path, "".join(_exact_frame(structure) for structure in structures))


def read_exact(path: str | Path) -> Dataset:
    """Read such a file, in order, with the labels that it has."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InputWarning)  # the user was warned when the structures were first read
        return read(path, require_labels=False)


def labels_of(structure: Structure) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Info and arrays with the labels of a structure, under names that cannot be mistaken for predictions."""
    info: dict[str, Any] = {"config_type": structure.config_type} if structure.config_type else {}
    if structure.weight != 1.0:
        info[WEIGHT_KEY] = structure.weight
    if structure.noise:
        info[NOISE_KEY] = structure.noise
    if structure.energy is not None:
        info["REF_energy"] = structure.energy
    if structure.stress is not None:
        info["REF_stress"] = structure.stress
    return info, {} if structure.forces is None else {"REF_forces": structure.forces}


def _exact_frame(structure: Structure) -> str:
    info, arrays = labels_of(structure)
    if structure.source:
        info["from"] = structure.source
    words = {name: _one_line(value) if isinstance(value, str) else np.ravel(value) for name, value in info.items()}
    return frame_text(structure, words, arrays, exact=True)


def _one_line(text: str) -> str:
    return " ".join(text.replace("\\", "/").replace('"', "'").split())
